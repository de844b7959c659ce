"""Values of observations: those that conversion to arrays would change in silence are refused before it.

An image becomes uint8, Discrete values become one-hots, and all others float32. A fraction, a value outside of its
space or NaN would become another value of the space: 0.5 and NaN become 0, 300 becomes 44. Environments may give any
dtype, as long as the values are in the space.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from marltrain.core.errors import shown

Array = NDArray[Any]

ADVICE = "correct the observation, widen its space, or wrap the environment to clip"
FINITE = "a finite number of float32"
SCALED = "an image that was scaled to 0 to 1 needs a space of floats, Box(0, 1, shape, np.float32)"


def leaves_space(where: str, space: Any, entry: str, actual: Any, expected: str, advice: str = ADVICE) -> str:
    """Return the message for a value outside of its space.

    where: name of the part of the observation, with a space before it, or "".  entry: place of the value in it.
    """
    return f"observation{where} leaves its space {shown(space)}: {entry} is {actual}, expected {expected} ({advice})"


class Values:
    """The allowed values of a leaf of an observation space."""

    def __init__(self, space: Any, *, image: bool) -> None:
        """Look up the bounds.

        image: whether the leaf is kept as uint8. The float32 arrays of other Boxes and of MultiBinary spaces show
            values out of range; fractions in them would be lost only by `Layout.decode`.
        """
        self.space = space
        self._image = image
        self._shown = isinstance(space, spaces.Box | spaces.MultiBinary) and not image
        self._whole = not (isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating))
        limits: tuple[Any, Any] = _limits(space) if self._whole else (None, None)
        self._low, self._high = limits
        self._every = image and np.all(self._low == 0) and np.all(self._high == 255)
        self._even = isinstance(self._low, int) and isinstance(self._high, int)

    def fault(self, where: str, array: Array, *, batched: bool, bounds: bool) -> str:
        """Return a message for the first value that conversion would change; "" if there is none.

        where: see `leaves_space`.  array: real numbers of the leaf's shape, with a leading axis if `batched`.
        bounds: whether values are refused, too, that the float32 vector shows: out of range of a space of integers, or
            not finite.
        """
        if not self._whole:
            return self._not_finite(where, array, batched=batched) if bounds else ""
        if self._shown and not bounds and array.dtype.kind != "f":
            return ""
        if self._image and array.dtype == np.uint8 and self._in_range(array):
            return ""
        if array.ndim == 0 and self._low <= (value := array.item()) <= self._high and value == int(value):
            return ""  # three times as fast as arrays
        inside = (array >= self._low) & (array <= self._high)  # NaN compares false
        if array.dtype.kind == "f":
            inside &= np.floor(array) == array
        return "" if inside.all() else self._message(where, array, inside, batched=batched)

    def _in_range(self, array: Array) -> bool:
        """Return whether uint8 values are known to be in the space, without arrays of truth values."""
        if self._every:
            return True
        return self._even and bool(array.max() <= self._high and (self._low == 0 or array.min() >= self._low))

    def _not_finite(self, where: str, array: Array, *, batched: bool) -> str:
        with np.errstate(over="ignore"):
            finite = np.isfinite(array.astype(np.float32, copy=False))
        return "" if finite.all() else self._message(where, array, finite, batched=batched)

    def _message(self, where: str, array: Array, inside: Array, *, batched: bool) -> str:
        index = tuple(int(i) for i in np.argwhere(~inside)[0])
        value, own = array[index], index[1:] if batched else index
        entry = f"entry {own[0] if len(own) == 1 else own}" if own else "the value"
        if batched:
            entry = f"row {index[0]}: {entry}"
        if not self._whole:
            return leaves_space(where, self.space, entry, value, FINITE)
        low, high = (np.broadcast_to(side, inside.shape)[index] for side in (self._low, self._high))
        fraction = self._image and array.dtype.kind == "f" and 0 < value < 1
        expected = f"a whole number from {low} to {high}"
        return leaves_space(where, self.space, entry, value, expected, SCALED if fraction else ADVICE)


def _limits(space: Any) -> tuple[Any, Any]:
    """Return the least and the greatest value of a space of integers: integers, or arrays of the space's shape."""
    if isinstance(space, spaces.Discrete):
        return int(space.start), int(space.start) + int(space.n) - 1
    if isinstance(space, spaces.MultiDiscrete):
        return _evened(space.start), _evened(space.start + space.nvec - 1)
    if isinstance(space, spaces.MultiBinary):
        return 0, 1
    return _evened(space.low), _evened(space.high)


def _evened(values: Array) -> Any:
    """Return an integer in place of an array of equal integers."""
    flat = values.reshape(-1)
    return int(flat[0]) if flat.size and (flat == flat[0]).all() else values
