"""Logarithmic axes of pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RATIO = 20.0
"""Ratio of the largest to the smallest value from which an axis of positive values is logarithmic."""


def is_logarithmic(values: Any) -> bool:
    """Return whether an axis of these values, an array or a column of a table, is logarithmic."""
    return bool(values.min() > 0 and values.max() / values.min() >= RATIO)


def make_logarithmic(ax: Axes) -> None:
    """Make the horizontal axis logarithmic, with powers of ten as its labels."""
    from matplotlib.ticker import LogFormatterSciNotation, NullFormatter

    ax.set_xscale("log")
    ax.xaxis.set_major_formatter(LogFormatterSciNotation())
    ax.xaxis.set_minor_formatter(NullFormatter())
