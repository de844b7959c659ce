"""Updates that fall due together, planned for compiled code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from marltrain.layout import Array


class DueUpdates(NamedTuple):
    """After how many batch steps it is due, at which env step of the run, and how many updates it has."""

    after: int
    env_steps: int
    updates: int


class MadeUpdates(NamedTuple):
    """Rounds that were made, R of them, of U updates in all.

    counts: [R] int64, the updates of each.  measured: [U, M, K] float64, the metrics `names` of each update.
    reported: [R, L, K], what else is told of each round, by the names that follow.  broken: whether the last update's
    loss or gradient was not finite: its round was given up.
    """

    rounds: Sequence[DueUpdates]
    counts: Array
    names: tuple[str, ...]
    measured: Array
    reported: Array
    broken: bool

    def means(self) -> Array:
        """Return the means over each round that was not given up and had updates, [R, M + L, K]."""
        whole = len(self.rounds) - self.broken
        counts = self.counts[:whole]
        values, reported = self.measured[: int(counts.sum())], self.reported[:whole]
        if len(values) != whole or not counts.all():  # not one each
            stops = np.cumsum(counts)
            means = [values[stop - n : stop].mean(0) for stop, n in zip(stops, counts, strict=True) if n]
            values, reported = np.stack(means) if means else values, reported[counts > 0]
        return np.concatenate([values, reported], 1)
