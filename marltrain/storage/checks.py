"""Checks of values and arrays read from a file, before they are used.

A checksum shows only that a file is undamaged: a forged file can carry a correct checksum, too. Therefore every
number that compiled code or numpy uses to address memory is checked against its bounds here.
"""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from marltrain.core.errors import SaveError
from marltrain.core.layout import Array

MOST_COUNTED = 2**53
"""Largest count accepted from a file: float64, the dtype of counts in tables, represents all integers up to it."""


def of_type(what: str, value: Any, *kinds: type) -> Any:
    """Return a value read from a file; raises SaveError unless its type is one of `kinds`; bool is not int here."""
    if type(value) not in kinds:
        raise SaveError(f"{what} must be of type {' or '.join(kind.__name__ for kind in kinds)}, got {value!r:.80}")
    return value


def counted(what: str, value: Any, low: int = 0, high: int = MOST_COUNTED) -> int:
    """Return a count read from a file; raises SaveError unless it is an integer from `low` to `high`."""
    if not low <= of_type(what, value, int) <= high:
        raise SaveError(f"{what} must be from {low} to {high}, got {value!r:.80}")
    return int(value)


def check_memory(what: object, size: int) -> None:
    """Raise SaveError if saved data of `size` bytes exceed this machine's memory."""
    if size > (memory := memory_size()):
        raise SaveError(f"{what}: {size:,} bytes, and this machine's memory has {memory:,.0f}")


def memory_size() -> float:
    """Return the size of this machine's memory in bytes; infinite if it is unknown."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else math.inf


def shaped(what: str, values: Any, dtype: Any, shape: tuple[int, ...]) -> Array:
    """Return an array; raises SaveError, naming it, unless it has the given dtype and shape."""
    array: Array = np.asarray(values)
    if array.dtype != dtype or array.shape != shape:
        raise SaveError(f"{what} must be {np.dtype(dtype)} of shape {shape}, got {array.dtype} of shape {array.shape}")
    return array


def finite(what: str, values: Array, where: Array | None = None) -> Array:
    """Return an array; raises SaveError, naming the entry, if a number is NaN or infinite.

    where: entries to check, bool over the leading axes of `values`; None: all.
    """
    if values.dtype.kind == "f":
        _refuse(what, values, np.isfinite(values), where, "a finite number")
    return values


def within(what: str, values: Array, low: Any, high: Any, where: Array | None = None) -> Array:
    """Return an array; raises SaveError, naming the entry, if a number is not from `low` to `high`.

    low, high: numbers, or arrays that broadcast to the shape of `values`.  where: as in `finite`.
    """
    _refuse(what, values, (values >= low) & (values <= high), where, (low, high))
    return values


def actions(what: str, values: Array, space: Space[Any]) -> None:
    """Raise SaveError, naming the entry, for an action that is not in the space.

    values: actions as the streams store them (indices from 0, or flat numbers), [...] or [..., D].
    """
    if isinstance(space, spaces.Discrete):
        within(what, values, 0, int(space.n) - 1)
    elif isinstance(space, spaces.MultiDiscrete):
        within(what, values, 0, space.nvec.reshape(-1) - 1)
    else:
        finite(what, values)


def _refuse(what: str, values: Array, fits: Array, where: Array | None, allowed: str | tuple[Any, Any]) -> None:
    """Raise SaveError for the first value with fits=False among those to check; allowed: for the message."""
    if fits.all():
        return
    wrong = ~fits if where is None else ~fits & where.reshape(where.shape + (1,) * (fits.ndim - where.ndim))
    if not wrong.any():
        return
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    if not isinstance(allowed, str):
        low, high = (np.broadcast_to(side, values.shape)[place] for side in allowed)
        allowed = f"from {low} to {high}"
    raise SaveError(f"{what}{list(place) if place else ''} must be {allowed}, got {values[place]}")
