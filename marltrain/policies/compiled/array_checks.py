"""Checks of dtype, shape and contiguity of arrays that compiled code reads by address; they raise TypeError."""

from __future__ import annotations

from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.jit.views import address_of


def place_of(name: str, array: Array | None, kind: Any, shape: tuple[int, ...]) -> int:
    """Return the address of a column; raises TypeError unless it is contiguous and of this dtype and shape."""
    if not _is(array, kind, shape) or not array.flags.c_contiguous:  # type: ignore[union-attr]
        raise TypeError(f"column {name!r} must be {np.dtype(kind)} {shape} in one piece; it is {_came(array)}")
    return address_of(array)  # type: ignore[arg-type]


def check_places(what: str, places: Array | None, count: int) -> None:
    """Check that indices lie in [0, count)."""
    if places is not None and places.size and (places.min() < 0 or places.max() >= count):
        raise TypeError(f"{what} must lie in [0, {count}); they are {places.min()} to {places.max()}")


def _is(array: Array | None, kind: Any, shape: tuple[int, ...]) -> bool:
    return array is not None and array.dtype == np.dtype(kind) and array.shape == shape


def _came(array: Array | None) -> str:
    return "nothing" if array is None else f"{array.dtype} {array.shape} with strides {array.strides}"
