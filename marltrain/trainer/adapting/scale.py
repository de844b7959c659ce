"""Scale: places of a number in its range, between 0 and 1."""

from __future__ import annotations

import math

from marltrain.core.errors import ConfigError
from marltrain.core.settings import as_integer

LINEAR, LOG = SCALES = ("linear", "log")
WIDE = 10.0
"""Ratio of the bounds from which on a range is divided logarithmically."""


class Scale:
    """The range of a number from `low` to `high`; place 0 is `low`, place 1 is `high`."""

    def __init__(self, low: float, high: float, kind: str | None = None, *, sizes: bool = False) -> None:
        """Check the bounds.

        kind: "linear" or "log"; None: "log" if `high` is at least 10 times a positive `low`.
        sizes: whether the values are sizes: only low, 2 low, 4 low, ... and high, which are integers.
        Raises ConfigError unless low < high, and for a bound at or below 0 of a logarithmic range.
        """
        if not low < high:
            raise ConfigError(f"Adapt: low must be less than high, got low={low:g} and high={high:g}")
        if sizes and not (as_integer(low) == low >= 1 and as_integer(high) == high):
            raise ConfigError(f"Adapt: sizes are integers of at least 1, got low={low:g} and high={high:g}")
        log = sizes if kind is None else kind == LOG
        self.log = log or (kind is None and low > 0 and high >= WIDE * low)
        if self.log and low <= 0:
            raise ConfigError(f'Adapt: scale="log" needs a lower bound above 0, got low={low:g}')
        self.low, self.high = float(low), float(high)
        doubled = [int(low) << i for i in range(64) if int(low) << i < high] if sizes else []
        self.sizes = [*doubled, int(high)] if sizes else []

    def position(self, value: float) -> float:
        """Return the place of a value within the bounds."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def value(self, position: float) -> float:
        """Return the value at a place in [0, 1], for sizes the nearest size; it lies within the bounds."""
        if self.log:
            exact = self.low * (self.high / self.low) ** position
        else:
            exact = self.low + (self.high - self.low) * position
        if self.sizes:
            return min(self.sizes, key=lambda size: abs(math.log(size / exact)))
        return min(max(exact, self.low), self.high)
