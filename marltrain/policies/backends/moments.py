"""Checks of an optimizer's saved moments, for both frameworks."""

from __future__ import annotations

import numpy as np

from marltrain.checks import finite, shaped, within
from marltrain.layout import Array

MOST_STEPS = 2**24
"""Largest step count of a float32: adding 1 to it has no effect."""


def checked(name: str, values: Array, shape: tuple[int, ...]) -> Array:
    """Return one agent's moments, or its step count, as float32; raises SaveError for impossible values."""
    what = f"optimiser state {name!r}"
    array = np.ascontiguousarray(finite(what, shaped(what, values, np.float32, shape)))
    if name in ("second", "count"):  # a mean of squares; a number of steps: neither is negative
        within(what, array, 0, MOST_STEPS if name == "count" else np.inf)
    return array
