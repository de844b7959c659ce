"""Estimates over seeds with stratified bootstrap intervals, by `rliable` (Agarwal et al. 2021, arXiv:2108.13264).

Scores are arrays [runs, tasks] or [runs, tasks, points]. A resample draws as many runs as there are, with replacement
and for each task by itself. All intervals are 95 % percentile intervals, and the same again for equal scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from marltrain.core.extras import imported
from marltrain.core.layout import Array

RESAMPLES = 2_000


class Estimate(NamedTuple):
    """Values and their 95 % bootstrap interval, [points] each; of a single run, there is no interval (nan)."""

    value: Array
    low: Array
    high: Array


def estimate(scores: Array, resamples: int = RESAMPLES) -> Estimate:
    """Return the interquartile means of scores [runs, tasks, points], over runs and tasks, for each point."""
    found = _estimated([scores], interquartile_means, resamples)
    nothing = np.full_like(found.value, np.nan)
    return found if len(scores) > 1 else Estimate(found.value, nothing, nothing)


def difference(first: Array, second: Array, resamples: int = RESAMPLES) -> Estimate:
    """Return the interquartile mean of `first` minus that of `second`; the runs of both are resampled independently.

    first, second: [runs, tasks], of any numbers of runs.  Returns arrays [1].
    """
    return _estimated([first, second], lambda x, y: _iqm(x) - _iqm(y), resamples)


def improvement(first: Array, second: Array, resamples: int = RESAMPLES) -> Estimate:
    """Return the probability that a run of `first` scores more than one of `second`, averaged over tasks.

    Equal scores count one half, as in the Mann-Whitney U statistic.  first, second: [runs, tasks].  Returns arrays [1].
    """
    return _estimated([first, second], _probability, resamples)


def profile(scores: Array, thresholds: Array, resamples: int = RESAMPLES) -> Estimate:
    """Return the performance profile: the share of scores [runs, tasks] above each threshold, [thresholds]."""
    return _estimated([scores], lambda x: (x[..., None] > thresholds).mean((0, 1)), resamples)


def interquartile_means(scores: Array) -> Array:
    """Return the means of scores [runs, tasks, points] without the lowest and the highest quarter, [points].

    A quarter is rounded down: of 5 scores one is left out at either end. `rliable.metrics.aggregate_iqm` has one point.
    """
    rows = np.sort(scores.reshape(-1, scores.shape[-1]), 0)
    left_out = len(rows) // 4
    return np.asarray(rows[left_out : len(rows) - left_out].mean(0))


def verdict(low: float, high: float) -> str:
    """Return what the interval of a difference says."""
    return "better" if low > 0 else "worse" if high < 0 else "no difference shown"


def _iqm(scores: Array) -> Array:
    return interquartile_means(scores[..., None])


def _probability(first: Array, second: Array) -> Array:
    above, equal = (test(first[:, None], second[None]) for test in (np.greater, np.equal))
    return np.array([(above + 0.5 * equal).mean()])


def _estimated(scores: Sequence[Array], function: Callable[..., Array], resamples: int) -> Estimate:
    library = imported("rliable.library", "compare", "A comparison of runs")
    given = scores[0] if len(scores) == 1 else list(scores)
    with _seeded():
        values, intervals = library.get_interval_estimates({"scores": given}, function, reps=resamples)
    return Estimate(np.asarray(values["scores"]), *intervals["scores"])


@contextmanager
def _seeded() -> Iterator[None]:
    """Seed numpy's global generator, from which `rliable` draws whatever `random_state` says; restore it afterwards."""
    before = np.random.get_state()
    np.random.seed(0)
    try:
        yield
    finally:
        np.random.set_state(before)
