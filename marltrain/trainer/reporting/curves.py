"""Curves of runs: the table of tests from its file, and the points that several curves have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from marltrain.core.errors import ConfigError, SaveError
from marltrain.core.layout import Array
from marltrain.trainer.reporting.history import TESTS_FILE

if TYPE_CHECKING:
    import pandas as pd

POINTS = 400
"""Maximum number of points of a drawn curve."""


@dataclass(frozen=True)
class Curve:
    """A curve with its band; x, middle, low, high: [points] float64."""

    x: Array
    middle: Array
    low: Array
    high: Array


def read_tests(folder: Path, numbers: Sequence[str] = ("metric",)) -> pd.DataFrame:
    """Return a run's table of tests, with `numbers` as float columns; raises SaveError for another file, naming it."""
    import pandas as pd

    file = folder / TESTS_FILE
    try:
        return pd.read_parquet(file).astype({"env_steps": int, **dict.fromkeys(numbers, float)})
    except (OSError, ValueError, KeyError, TypeError, NotImplementedError) as error:
        raise SaveError(f"{file}: not a table of tests, or damaged: {error}") from error


def common_points(several: Sequence[Array], most: int = POINTS) -> Array:
    """Return the points of curves within their common range, or `most` evenly spaced ones if there are more.

    several: the x values of each curve, rising. Raises ConfigError if there is no common range.
    """
    first, last = max(x[0] for x in several), min(x[-1] for x in several)
    known = np.unique(np.concatenate(several))
    points = known[(known >= first) & (known <= last)]
    if not len(points):
        raise ConfigError(
            "runs of one group have no common range of the axis, so they have no mean; plot them by another axis"
        )
    return points if len(points) <= most else np.linspace(points[0], points[-1], most)
