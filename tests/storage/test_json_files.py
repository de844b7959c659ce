import json
from typing import Any

import numpy as np
import pytest

from marltrain.core.errors import SaveError
from marltrain.policies.hyperparameters.schedules import linear
from marltrain.policies.networks.specs import MLP
from marltrain.storage import json_files
from marltrain.storage.json_files import read_json, to_json, write_json


def test_json_comes_back(tmp_path):
    value = {"a": [1, 2.5, None, True, "ü"], "big": 2**127, "b": {}}
    write_json(tmp_path / "v.json", value)
    assert read_json(tmp_path / "v.json") == value


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [float("nan"), {"a": float("inf")}, {1, 2}, object(), nested(65), nested(10_000), {"a": [{1: 2}]}, {None: 1}],
)
def test_what_would_not_be_read_as_it_is_is_not_written(tmp_path, value):
    with pytest.raises(SaveError, match=r"v\.json: cannot be written"):
        write_json(tmp_path / "v.json", value)
    assert not list(tmp_path.iterdir())


def test_what_is_too_large_is_not_written_and_the_larger_part_named(tmp_path, monkeypatch):
    """Of 1,000 bytes and some, the most are in the second of `b`'s parts."""
    monkeypatch.setattr(json_files, "JSON_LIMIT", 900)
    value = {"a": "x" * 100, "b": [{"told": [1]}, {"told": ["y" * 700], "more": 1}], "c": "z" * 200}
    with pytest.raises(SaveError, match=r"at most 900 are read again.* in it\['b'\]\[1\]\['told'\]\[0\]: keep"):
        write_json(tmp_path / "v.json", value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not a JSON file"),
        ("", "not a JSON file"),
        ('{"a": NaN}', "NaN is not a JSON value"),
        ('{"a": 1e999}', "1e999 is larger than any number"),
        ("9" * 5000, "not a JSON file"),
        ('{"a": 1, "a": 2}', "the key 'a' stands twice"),
        ("[" * 65 + "]" * 65, "deeper than 64"),
        ("[" * 100_000 + "]" * 100_000, "deeper than 64"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "deeper than 64"),
        ('{"a": "\udce4"}', "not a JSON file"),
    ],
)
def test_a_wrong_json_file_is_named(tmp_path, text, said):
    path = tmp_path / "v.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(SaveError, match=said) as raised:
        read_json(path)
    assert str(path) in str(raised.value)


def test_json_of_the_deepest_kind_is_read(tmp_path):
    (tmp_path / "v.json").write_text("[" * 64 + "]" * 64)
    assert read_json(tmp_path / "v.json")


def test_a_large_or_missing_json_file_is_refused(tmp_path, monkeypatch):
    with pytest.raises(SaveError, match="cannot be read: No such file"):
        read_json(tmp_path / "v.json")
    monkeypatch.setattr(json_files, "JSON_LIMIT", 10)
    (tmp_path / "v.json").write_text(json.dumps("123456789"))
    with pytest.raises(SaveError, match=r"11 bytes, and no JSON file of marltrain.s is larger than 10"):
        read_json(tmp_path / "v.json")
    (tmp_path / "v.json").write_text(json.dumps("12345678"))
    assert read_json(tmp_path / "v.json") == "12345678"


def test_any_value_becomes_json(tmp_path):
    value = {
        "numbers": (np.float32(0.5), np.int64(3), np.arange(2), np.bool_(True)),
        "odd": (float("nan"), float("-inf")),
        "made": [linear(1, 0, 10), MLP(hidden=(8,))],
        "code": [test_json_comes_back, MLP, object()],
        "path": tmp_path,
        3: {"b", "a"},
    }
    data = to_json(value)
    assert data["numbers"] == [0.5, 3, [0, 1], True]
    assert data["odd"] == ["nan", "-inf"]
    assert data["made"][0] == {"kind": "linear", "start": 1, "stop": 0, "steps": 10}
    assert data["made"][1] == {"type": "MLP", "hidden": [8], "activation": "tanh"}
    assert data["code"][0].endswith("test_json_files:test_json_comes_back")
    assert data["code"][1:] == ["marltrain.policies.networks.specs:MLP", "builtins:object"]
    assert data["path"] == str(tmp_path)
    assert data["3"] == ["a", "b"]
    write_json(tmp_path / "told.json", data)


def test_text_that_no_file_can_hold_is_refused(tmp_path):
    (tmp_path / "a").write_text('"\\ud800"')
    with pytest.raises(SaveError, match="a: not a JSON file"):
        read_json(tmp_path / "a")
    write_json(tmp_path / "a", r"\ud800")
    assert read_json(tmp_path / "a") == r"\ud800"
