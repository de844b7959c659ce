"""Carries: the state of recurrent networks and of agents, from decision to decision, one row for each seat.

A carry is None, an array [K, S * E, ...], or a dict or tuple of carries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from marltrain.core.errors import SaveError, shown
from marltrain.core.layout import Array
from marltrain.policies.memory.needs import Column
from marltrain.storage.checks import finite, of_type, shaped
from marltrain.storage.state import State


def moved(new: Any, old: Any, turn: Array) -> Any:
    """Return the next carry of each row: the new carry if the row acted, else the old one.

    old: None before the first act; rows that did not act then get zeros.
    """
    if new is None or turn.all():
        return new
    if old is None:
        return zeroed(new, ~turn)
    if isinstance(new, dict):
        return {name: moved(value, old.get(name), turn) for name, value in new.items()}
    if isinstance(new, tuple):
        return tuple(moved(value, before, turn) for value, before in zip(new, old, strict=True))
    return np.where(turn.reshape(*turn.shape, *[1] * (new.ndim - 2)), new, old)


def zeroed(carry: Any, over: Array) -> Any:
    """Return a carry with the rows `over` set to zero, the initial carry."""
    if carry is None:
        return None
    if isinstance(carry, dict):
        return {name: zeroed(value, over) for name, value in carry.items()}
    if isinstance(carry, tuple):
        return tuple(zeroed(value, over) for value in carry)
    return np.where(over.reshape(*over.shape, *[1] * (carry.ndim - 2)), 0, carry)


def each_array(carry: Any, change: Callable[[Array], Array]) -> Any:
    """Return a carry with `change` applied to every array."""
    return joined([carry], lambda arrays: change(arrays[0]))


def joined(carries: Sequence[Any], join: Callable[[Sequence[Array]], Array]) -> Any:
    """Return a carry of the structure of the given ones, whose arrays are joined by `join`."""
    first = carries[0]
    if isinstance(first, dict):
        return {name: joined([carry[name] for carry in carries], join) for name in first}
    if isinstance(first, tuple):
        return tuple(joined(parts, join) for parts in zip(*carries, strict=True))
    return None if first is None else join(carries)


def described(carry: Any, name: str, arrays: dict[str, Array]) -> Any:
    """Return the structure of a carry as JSON values; its arrays are added to `arrays`."""
    if isinstance(carry, dict):
        return {"dict": {key: described(value, f"{name}/{key}", arrays) for key, value in carry.items()}}
    if isinstance(carry, tuple):
        return {"tuple": [described(value, f"{name}/{i}", arrays) for i, value in enumerate(carry)]}
    if carry is None:
        return None
    arrays[name] = carry
    return name


def rebuilt(told: Any, state: State, rows: tuple[int, int], columns: Mapping[str, Column] | None) -> Any:
    """Return the carry that `described` described, whose arrays are [*rows, ...].

    columns: name -> column of the carry, a dict of arrays; None if the learner does not know its carry, which then has
        any structure.  Raises SaveError for other names, dtypes or shapes, and for numbers that are not finite.
    """
    if told is None:
        return None
    if columns is None:
        return _of_any_structure(told, state, rows)
    names = State(of_type("a carry", told, dict), name="a carry").value("dict", dict)
    if set(told) != {"dict"} or set(names) != set(columns):
        raise SaveError(f"a carry of {', '.join(sorted(columns)) or 'nothing'} is expected, got {shown(told)}")
    result = {}
    for name, column in columns.items():
        key = of_type(f"the carry {name!r}", names[name], str)
        result[name] = finite(state.place(key), state.array(key, column.dtype, (*rows, *column.shape))).copy()
    return result


def _of_any_structure(told: Any, state: State, rows: tuple[int, int]) -> Any:
    """Return a carry of nested dicts and tuples."""
    if told is None:
        return None
    if isinstance(told, str):
        carry = state.any_array(told)
        return finite(
            state.place(told), shaped(state.place(told), carry, carry.dtype, (*rows, *carry.shape[2:]))
        ).copy()
    inner = State(of_type("a carry", told, dict), name="a carry")
    if set(told) == {"dict"}:
        return {key: _of_any_structure(value, state, rows) for key, value in inner.value("dict", dict).items()}
    return tuple(_of_any_structure(value, state, rows) for value in inner.value("tuple", list))
