"""Plans and results of updates that compiled code makes between batch steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from marltrain.core.layout import Array


class DueUpdates(NamedTuple):
    """One due round of updates.

    after: batch steps until the round is due.  env_steps: env steps of the run at that time.
    updates: number of updates in the round.  credit: fraction of an update carried over to the next round.
    """

    after: int
    env_steps: int
    updates: int
    credit: float = 0.0


class MadeUpdates(NamedTuple):
    """Results of R rounds with U updates in total.

    counts: [R] int64, updates per round.
    names: the names of the M metrics, then of the L reported values.
    measured: [U, M, K] float64, the metrics of each update; NaN where a phase was not due.
    reported: [R, L, K], further values of each round.
    skipped: metric -> [K] bool, the agents for which the last update did not compute it; it is NaN.
    broken: whether the last update had a non-finite loss or gradient; its round was aborted.
    """

    rounds: Sequence[DueUpdates]
    counts: Array
    names: tuple[str, ...]
    measured: Array
    reported: Array
    skipped: Mapping[str, Array]
    broken: bool

    def means(self) -> Array:
        """Return the means over each completed round with at least one update, [R, M + L, K]."""
        whole = len(self.rounds) - self.broken
        counts = self.counts[:whole]
        values, reported = self.measured[: int(counts.sum())], self.reported[:whole]
        if len(values) != whole or not counts.all():  # otherwise each round has exactly one update
            stops = np.cumsum(counts)
            means = [mean_of_measured(values[stop - n : stop]) for stop, n in zip(stops, counts, strict=True) if n]
            values, reported = np.stack(means) if means else values, reported[counts > 0]
        return np.concatenate([values, reported], 1)


def mean_of_measured(values: Array) -> Array:
    """Return the means over axis 0 without NaN, the value of an agent that was not measured; NaN without any value."""
    measured = ~np.isnan(values)
    count = np.where(measured.any(0), measured.sum(0), np.nan)
    mean: Array = np.where(measured, values, 0.0).sum(0) / count
    return mean
