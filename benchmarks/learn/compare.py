"""Two algorithms on one task: the difference of their interquartile means, with a bootstrap interval by `rliable`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from rliable import library, metrics

from benchmarks.learn.results import RESULTS, read_all
from benchmarks.learn.rows import row_of
from benchmarks.learn.table import RESAMPLES, Estimate, number, scores_of, seeded
from marltrain.layout import Array

PAIRS = (
    ("mountaincar-rainbow", "mountaincar-dqn"),
    ("lunarlander-rainbow", "lunarlander-dqn"),
    ("together-spread-mappo", "together-spread-ppo"),
)
"""Rows of one task; of each pair, the second is subtracted from the first."""
HEADER = ("task", "difference", "of IQMs", "95 % interval", "")


def difference(first: Array, second: Array, resamples: int = RESAMPLES) -> Estimate:
    """Return IQM(first) - IQM(second) of scores [seeds] each; the seeds of both are resampled independently."""
    pair = {"pair": (first[:, None], second[:, None])}
    with seeded():
        iqm, interval = library.get_interval_estimates(
            pair,
            lambda x, y: np.array([metrics.aggregate_iqm(x) - metrics.aggregate_iqm(y)]),
            reps=resamples,
        )
    return Estimate(iqm["pair"], *interval["pair"])


def verdict(low: float, high: float) -> str:
    """Return what an interval of a difference says."""
    return "better" if low > 0 else "worse" if high < 0 else "no difference shown"


def compared(folder: Path = RESULTS, resamples: int = RESAMPLES) -> str:
    """Return the comparisons in Markdown; a pair whose rows do not have all their seeds is left out."""
    lines = [HEADER, ("---",) * len(HEADER)]
    for first, second in ((row_of(one), row_of(other)) for one, other in PAIRS):
        ours, others = (scores_of(read_all(row, folder)) for row in (first, second))
        if (len(ours), len(others)) != (len(first.seeds), len(second.seeds)):
            continue
        found = difference(ours, others, resamples)
        iqm, low, high = (float(value[0]) for value in found)
        names = f"{first.algo} - {second.algo}"
        interval = f"{number(low)} to {number(high)}"
        lines.append((first.task.title, names, number(iqm), interval, verdict(low, high)))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
