"""The table: interquartile means and bootstrap intervals of the committed results, by `rliable`.

A seed's score is the mean return of a player in 100 unseen episodes. The interquartile mean of the seeds' scores
(Agarwal et al. 2021) leaves out the best and the worst quarter; of 5 seeds, the best and the worst one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.learn.results import RESULTS, Result, read_all
from benchmarks.learn.rows import RANDOM, ROWS, Row
from marltrain.core.layout import Array
from marltrain.tools.statistics import estimate, interquartile_means
from marltrain.tools.text_table import number

RESAMPLES = 10_000
HEADER = (
    "task", "algorithm", "env steps", "seeds", "IQM", "95 % interval", "sampled", "best test", "random play", "figure",
    "held", "seconds",
)  # fmt: skip


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
        return *start, f"not run{': ' + row.missing if row.missing else ''}", "", "", "", chance, figure, "", ""
    iqm, low, high = (float(values[0]) for values in estimate(scores_of(found)[:, None, None], resamples))
    judged = held(row, iqm, float(random_play[0])) if known and len(found) == len(row.seeds) else None
    interval = "" if np.isnan(low) else f"{number(low)} to {number(high)}"
    return (
        *start,
        number(iqm),
        interval,
        _middle([None if result.sampled is None else float(result.sampled.mean()) for result in found]),
        _middle([result.best for result in found]),
        chance,
        figure,
        "" if judged is None else "yes" if judged else "**no**",
        _seconds(found),
    )


def _middle(scores: Sequence[float | None]) -> str:
    """Return the IQM of the seeds' scores, or "" unless all seeds have measured it."""
    known = np.array([score for score in scores if score is not None])
    return number(float(interquartile_means(known[:, None])[0])) if len(known) == len(scores) else ""


def _seconds(found: Sequence[Result]) -> str:
    """Return the median of the seeds' training by the clock, and by the processor where all seeds have measured it."""
    clock = f"{np.median([result.seconds for result in found]):,.0f}"
    processor = [result.processor for result in found if result.processor is not None]
    return f"{clock} ({np.median(processor):,.0f})" if len(processor) == len(found) else clock
