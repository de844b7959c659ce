"""Carries in files: their names, dtypes, shapes and numbers are those of the learner."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from marltrain.core.errors import SaveError
from marltrain.policies.memory.needs import Column
from marltrain.storage.state import State
from marltrain.trainer.collecting.carries import described, rebuilt

ROWS = 2, 3
COLUMNS = {"actor": Column((5,)), "noise": Column((1,), "float64")}


def carry() -> dict[str, Any]:
    return {name: np.full((*ROWS, *column.shape), 0.5, column.dtype) for name, column in COLUMNS.items()}


def saved(value: Any) -> tuple[Any, State]:
    """The description of a carry, and the state that holds its arrays."""
    arrays: dict[str, Any] = {}
    data = described(value, "0", arrays)
    return data, State({}, arrays, "actors")


@pytest.mark.parametrize(
    ("value", "columns"),
    [
        (carry(), COLUMNS),
        (None, COLUMNS),
        (None, {}),
        (carry()["actor"], None),
        ((carry(), {"deeper": (None, carry()["noise"])}), None),
    ],
)
def test_what_was_saved_is_taken_back(value, columns):
    data, state = saved(value)
    again = rebuilt(data, state, ROWS, columns)
    assert saved(again)[0] == data
    for name, array in saved(again)[1].arrays.items():
        assert array.dtype == state.arrays[name].dtype
        np.testing.assert_array_equal(array, state.arrays[name])


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("actor", np.zeros((2, 3, 6), np.float32), r"actors/0/actor must be float32 of shape \(2, 3, 5\), got .*6\)"),
        ("actor", np.zeros((2, 3, 5, 1), np.float32), r"of shape \(2, 3, 5\), got float32 of shape \(2, 3, 5, 1\)"),
        ("actor", np.zeros((3, 3, 5), np.float32), r"of shape \(2, 3, 5\), got float32 of shape \(3, 3, 5\)"),
        ("actor", np.zeros((2, 3, 5)), r"actors/0/actor must be float32 of shape \(2, 3, 5\), got float64"),
        ("noise", np.full((2, 3, 1), np.nan), r"actors/0/noise\[0, 0, 0\] must be a finite number, got nan"),
    ],
)
def test_a_carry_of_another_form_is_refused(name, wrong, message):
    """Recurrent networks of 5 units, and noise that goes on: another width ends in an error of the matrix product."""
    data, state = saved(carry())
    state.arrays[f"0/{name}"] = wrong
    with pytest.raises(SaveError, match=message):
        rebuilt(data, state, ROWS, COLUMNS)


@pytest.mark.parametrize(
    ("told", "columns", "message"),
    [
        ({"dict": {"actor": "0/actor"}}, COLUMNS, "a carry of actor, noise is expected, got"),
        ({"dict": {"actor": "0/actor", "noise": "0/noise", "more": None}}, COLUMNS, "a carry of actor, noise is"),
        ({"dict": {"actor": "0/actor", "noise": "0/noise"}}, {}, "a carry of nothing is expected"),
        ({"dict": {"actor": "0/actor", "noise": {"dict": {}}}}, COLUMNS, "the carry 'noise' must be of type str"),
        ({"dict": {"actor": "0/actor", "noise": "elsewhere"}}, COLUMNS, "actors/elsewhere is missing"),
        ({"tuple": []}, COLUMNS, "a carry/dict"),
        ("0/actor", COLUMNS, "a carry must be of type dict, got '0/actor'"),
        (7, None, "a carry must be of type dict, got 7"),
    ],
)
def test_a_carry_of_another_structure_is_refused(told, columns, message):
    _, state = saved(carry())
    with pytest.raises(SaveError, match=message):
        rebuilt(told, state, ROWS, columns)


def test_numbers_of_an_unknown_carry_are_finite():
    data, state = saved((np.full((2, 3), np.inf, np.float32),))
    with pytest.raises(SaveError, match=r"actors/0/0\[0, 0\] must be a finite number, got inf"):
        rebuilt(data, state, ROWS, None)
