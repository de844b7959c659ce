"""Bounds of a native game's fields: declared with the fields, checked by `records`."""

from __future__ import annotations

from typing import Any

import numpy as np

from marltrain.core.errors import ConfigError
from marltrain.core.layout import Array

Bounds = tuple[Array, Array]
"""The lowest and the highest value, each with the field's shape."""
COUNT = (0, 2**62)
"""Bounds of counters: not negative, and far enough from overflow."""
FINITE = (-np.finfo(np.float64).max, np.finfo(np.float64).max)
"""Bounds of finite numbers: neither infinite nor nan."""


def bounds_of(name: str, dtype: Any, shape: Any, given: Any) -> Bounds:
    """Return a field's bounds from (low, high), each a number or an array that broadcasts to the field's shape.

    Raises ConfigError if `given` is not such a pair.
    """
    kind = np.float64 if np.dtype(dtype).kind == "f" else np.int64
    try:
        low, high = (np.broadcast_to(np.asarray(side, kind), shape) for side in given)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"field {name!r}: bounds must be (low, high) for the shape {shape}, got {given!r}") from error
    if not (low <= high).all():
        raise ConfigError(f"field {name!r}: the lower bound must be at most the upper one, got {given!r}")
    return low, high


def turn_of(records: Array, mover: Array) -> Array:
    """Return whether only the player `mover` [E] has the turn and all players are in the episode: [E] bool."""
    players = np.arange(records["turn"].shape[1])
    return ((records["turn"] == (players == mover[:, None])) & (records["present"] == 1)).all(-1)
