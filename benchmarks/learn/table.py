"""The table: interquartile means and bootstrap intervals of the committed results, by `rliable`.

A seed's score is the mean return of a player in 100 unseen episodes. The interquartile mean of the seeds' scores
(Agarwal et al. 2021) leaves out the best and the worst quarter; of 5 seeds, the best and the worst one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rliable import library, metrics

from benchmarks.learn.results import RESULTS, Result, read_all
from benchmarks.learn.rows import RANDOM, ROWS, Row
from marltrain.layout import Array

RESAMPLES = 10_000
HEADER = ("task", "algorithm", "env steps", "seeds", "IQM", "95 % interval", "random play", "figure", "held")


class Estimate(NamedTuple):
    """Interquartile mean and 95 % bootstrap interval, [points] each; of one seed, there is no interval (nan)."""

    iqm: Array
    low: Array
    high: Array


def estimate(scores: Array, resamples: int = RESAMPLES) -> Estimate:
    """Return the estimates of scores [seeds, points]; seeds are resampled, with a fixed seed."""
    points = range(scores.shape[1])
    with seeded():
        iqm, interval = library.get_interval_estimates(
            {"row": scores[:, None, :]},
            lambda sample: np.array([metrics.aggregate_iqm(sample[..., i]) for i in points]),
            reps=resamples,
        )
    low, high = interval["row"] if len(scores) > 1 else np.full((2, len(points)), np.nan)
    return Estimate(iqm["row"], low, high)


@contextmanager
def seeded() -> Iterator[None]:
    """Seed numpy's global generator, from which `rliable` draws whatever `random_state` says; restore it afterwards."""
    before = np.random.get_state()
    np.random.seed(0)
    try:
        yield
    finally:
        np.random.set_state(before)


def needed(row: Row, random_play: float) -> float | None:
    """Return the least interquartile mean of a held row, or None for a row without a figure."""
    return None if row.figure is None else row.figure - row.tolerance * (row.figure - random_play)


def held(row: Row, iqm: float, random_play: float) -> bool | None:
    """Return whether a row is held; None for a row without a figure."""
    least = needed(row, random_play)
    return None if least is None else iqm >= least


def table(folder: Path = RESULTS, resamples: int = RESAMPLES) -> str:
    """Return the table of all rows in Markdown, rows without results at their places."""
    random_play = {row.task.name: scores_of(read_all(row, folder)) for row in ROWS if row.algo == RANDOM}
    lines = [HEADER, ("---",) * len(HEADER)]
    for row in ROWS:
        if row.algo != RANDOM:
            lines.append(_line(row, read_all(row, folder), random_play[row.task.name], resamples))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def scores_of(found: Sequence[Result]) -> Array:
    """Return the scores of a row's seeds, [seeds]."""
    return np.array([result.score for result in found])


def _line(row: Row, found: Sequence[Result], random_play: Array, resamples: int) -> tuple[str, ...]:
    start = (row.task.title, row.algo, f"{row.steps:,}", f"{len(found)} of {len(row.seeds)}")
    known = bool(len(random_play))
    chance, figure = number(random_play[0]) if known else "", "" if row.figure is None else number(row.figure)
    if not found:
        return *start, f"not run{': ' + row.missing if row.missing else ''}", "", chance, figure, ""
    iqm, low, high = (float(values[0]) for values in estimate(scores_of(found)[:, None], resamples))
    judged = held(row, iqm, float(random_play[0])) if known and len(found) == len(row.seeds) else None
    interval = "" if np.isnan(low) else f"{number(low)} to {number(high)}"
    return *start, number(iqm), interval, chance, figure, "" if judged is None else "yes" if judged else "**no**"


def number(value: float) -> str:
    """Return a return as text, with one digit after the point for those of three digits."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
