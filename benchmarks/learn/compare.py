"""Two algorithms on one task: the difference of their interquartile means, with a bootstrap interval by `rliable`."""

from __future__ import annotations

from pathlib import Path

from benchmarks.learn.results import RESULTS, read_all
from benchmarks.learn.rows import row_of
from benchmarks.learn.table import RESAMPLES, scores_of
from marltrain.tools.statistics import difference, verdict
from marltrain.tools.text_table import interval, number

PAIRS = (
    ("mountaincar-rainbow", "mountaincar-dqn"),
    ("lunarlander-rainbow", "lunarlander-dqn"),
    ("together-spread-mappo", "together-spread-ppo"),
)
"""Rows of one task; of each pair, the second is subtracted from the first."""
HEADER = ("task", "difference", "of IQMs", "95 % interval", "")


def compared(folder: Path = RESULTS, resamples: int = RESAMPLES) -> str:
    """Return the comparisons in Markdown; a pair whose rows do not have all their seeds is left out."""
    lines = [HEADER, ("---",) * len(HEADER)]
    for first, second in ((row_of(one), row_of(other)) for one, other in PAIRS):
        ours, others = (scores_of(read_all(row, folder)) for row in (first, second))
        if (len(ours), len(others)) != (len(first.seeds), len(second.seeds)):
            continue
        found = difference(ours[:, None], others[:, None], resamples)
        iqm, low, high = (float(value[0]) for value in found)
        names = f"{first.algo} - {second.algo}"
        lines.append((first.task.title, names, number(iqm), interval(low, high), verdict(low, high)))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
