import math

import numpy as np
import pytest

from marltrain.core.errors import SaveError
from marltrain.storage.state import State
from marltrain.trainer.reporting.tables import LongTable, Readings

KINDS = {"a": np.int64, "b": np.float64}


def table(folder, rows=0, held=10):
    result = LongTable(KINDS, folder / "rows", held)
    for i in range(rows):
        result.add(i, i / 2)
    return result


def check(made, rows):
    arrays = made.arrays()
    assert len(made) == rows
    np.testing.assert_array_equal(arrays["a"], np.arange(rows))
    np.testing.assert_array_equal(arrays["b"], np.arange(rows) / 2)
    assert {name: array.dtype for name, array in arrays.items()} == KINDS


def test_readings_accept_new_and_missing_names():
    readings = Readings(["a"])
    readings.add({"a": 1.0})
    readings.add({"b": 2.0})
    readings.add({"b": 3.0, "a": 4.0, "c": 5.0})
    assert readings.names == ["a", "b", "c"]
    nan = math.nan
    np.testing.assert_array_equal(readings.values, [[1, nan, nan], [nan, 2, nan], [4, 3, 5]])


def test_readings_grow():
    readings = Readings(["a", "b"])
    for i in range(1000):
        readings.add({"a": i, "b": -i})
    np.testing.assert_array_equal(readings.values, np.stack([np.arange(1000), -np.arange(1000)], 1))


@pytest.mark.parametrize("rows", [0, 1, 64, 70])
def test_readings_continue_from_a_state(rows):
    readings, again = Readings(["a"]), Readings(["a"])
    for i in range(rows):
        readings.add({"a": i, "b": 2 * i})
    again.restore(readings.state())
    for one in (readings, again):
        one.add({"c": 7})
    assert again.names == readings.names
    np.testing.assert_array_equal(again.values, readings.values)


def test_readings_of_another_width_are_refused():
    with pytest.raises(SaveError, match=r"rows must be float64 of shape \(4, 2\), got float64 of shape \(4, 3\)"):
        Readings([]).restore(State({"names": ["a", "b"]}, {"rows": np.zeros((4, 3))}))


@pytest.mark.parametrize(("rows", "files"), [(0, 0), (9, 0), (10, 1), (11, 1), (35, 3)])
def test_full_parts_are_written_to_disk(tmp_path, rows, files):
    result = table(tmp_path, rows)
    check(result, rows)
    assert len([*tmp_path.glob("rows/*.safetensors")]) == files
    assert len(result.state().arrays["a"]) == rows % 10
    assert sum(len(part["b"]) for part in result.parts()) == rows


def test_a_row_of_the_wrong_width_is_refused(tmp_path):
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        table(tmp_path).add(1)


@pytest.mark.parametrize("rows", [0, 7, 20, 33])
def test_table_continues_from_a_state(tmp_path, rows):
    state = table(tmp_path, rows).state()
    again = table(tmp_path)
    again.restore(state)
    check(again, rows)
    for i in range(rows, rows + 15):
        again.add(i, i / 2)
    check(again, rows + 15)


def test_two_runs_resumed_from_one_state_keep_separate_files(tmp_path):
    result = table(tmp_path, 15)
    state = result.state()
    for i in range(15, 25):
        result.add(i, -1.0)
    later = result.state()
    again = table(tmp_path)
    again.restore(state)
    for i in range(15, 25):
        again.add(i, i / 2)
    check(again, 25)
    result = table(tmp_path)
    result.restore(later)
    assert result.arrays()["b"][15:].tolist() == [-1.0] * 10


def test_missing_changed_or_unrelated_file_is_named(tmp_path):
    state = table(tmp_path, 25).state()
    first, second = (tmp_path / "rows" / f"{name}.safetensors" for name in state.info["files"])
    with pytest.raises(SaveError, match="begins with row 0"):
        table(tmp_path).restore(State({"files": state.info["files"][::-1]}, state.arrays))
    whole = second.read_bytes()
    second.write_bytes(whole[:-1] + b"\x01")
    with pytest.raises(SaveError, match=f"{second.name}: its checksum is not the one in its name"):
        table(tmp_path).restore(state)
    second.write_bytes(whole)
    first.unlink()
    with pytest.raises(SaveError, match=f"{first.name}: cannot be read"):
        table(tmp_path).restore(state)


def test_file_name_must_not_leave_the_folder(tmp_path):
    with pytest.raises(SaveError, match="leads out of the folder"):
        table(tmp_path).restore(State({"files": ["../../secret"]}, table(tmp_path).state().arrays))


def test_invalid_file_names_are_refused(tmp_path):
    with pytest.raises(SaveError, match=r"names\[0\] must be of type str, got 3"):
        Readings([]).restore(State({"names": [3]}, {"rows": np.zeros((1, 1))}))
    with pytest.raises(SaveError, match=r"files\[0\] must be of type str, got None"):
        table(tmp_path).restore(State({"files": [None]}, table(tmp_path).state().arrays))


@pytest.mark.parametrize(
    "arrays",
    [{"a": np.zeros(3)}, {"a": np.zeros(3), "b": np.zeros(4)}, {"a": np.zeros(10), "b": np.zeros(10)}],
)
def test_rows_of_another_table_are_refused(tmp_path, arrays):
    with pytest.raises(SaveError, match="a table of the columns a, b"):
        table(tmp_path).restore(State({"files": []}, arrays))


def test_parts_of_another_table_are_refused(tmp_path):
    state = table(tmp_path, 10).state()
    with pytest.raises(SaveError, match="12 rows of a, b were expected"):
        table(tmp_path, held=12).restore(state)


def test_full_disk_raises_save_error(tmp_path, monkeypatch):
    result = table(tmp_path, 9)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(SaveError, match=r"rows.*\.safetensors: cannot be written: No space left on device"):
        result.add(9, 4.5)
    check(result, 10)
    assert not [*tmp_path.glob("rows/*")]


@pytest.mark.parametrize("sizes", [[3, 4, 2], [9, 1, 10, 25], [0, 30]])
def test_many_rows_can_be_added_at_once(sizes, tmp_path):
    """Less than one file, exactly one file, and more than two files; a single number is repeated for all rows."""
    result, first = LongTable({**KINDS, "c": np.int32}, tmp_path / "rows", 10), 0
    for rows in sizes:
        numbers = np.arange(first, first + rows)
        result.extend(rows, numbers, numbers / 2, rows)
        first += rows
    arrays = result.arrays()
    np.testing.assert_array_equal(arrays["a"], np.arange(first))
    np.testing.assert_array_equal(arrays["b"], np.arange(first) / 2)
    np.testing.assert_array_equal(arrays["c"], np.repeat(sizes, sizes))
    assert len(result) == first


def test_without_a_folder_all_rows_are_held_in_memory(tmp_path):
    result = LongTable(KINDS, None, 3)
    for i in range(5):
        result.add(i, i / 2)
    result.extend(4, np.arange(5, 9), 0.5)
    assert len(result) == 9
    assert result.arrays()["a"].tolist() == list(range(9))
    assert not list(tmp_path.iterdir())
