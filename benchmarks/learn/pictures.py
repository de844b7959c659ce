"""The pictures: learning curves of a task's rows, with random play and the figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.learn.results import RESULTS, Result, read_all
from benchmarks.learn.rows import RANDOM, ROWS, Row
from benchmarks.learn.table import scores_of
from benchmarks.learn.tasks import TASKS, Task
from marltrain.core.layout import Array
from marltrain.storage.files import replacing
from marltrain.tools.statistics import estimate
from marltrain.trainer.reporting.curves import Curve, common_points
from marltrain.trainer.reporting.figures import COLORS, GRID, INK, draw_curve

RESAMPLES = 500
ALGORITHMS = tuple(dict.fromkeys(row.algo for row in ROWS if row.algo != RANDOM))
TOL = ("#332288", "#44aa99", "#cc6677", "#117733", "#ddcc77", "#88ccee", "#aa4499")
"""More colors that color-blind readers can distinguish, of Paul Tol."""
COLOR_OF = dict(zip(ALGORITHMS, (*COLORS, "#882255", "#661100", "#999933", *TOL), strict=False))
"""Color of an algorithm, the same in all pictures."""


def pictured(folder: Path = RESULTS) -> list[Task]:
    """Return the tasks of which some row has been trained."""
    return [task for task in TASKS if any(read_all(row, folder) for row in _rows(task))]


def draw(task: Task, path: Path, folder: Path = RESULTS) -> None:
    """Draw the curves of a task into a file: interquartile mean of the seeds and its 95 % bootstrap interval."""
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    ax = figure.subplots()
    for row in _rows(task):
        if found := read_all(row, folder):
            _curve(ax, row, found)
    chance = [read_all(row, folder) for row in ROWS if row.task is task and row.algo == RANDOM]
    for found in filter(None, chance):
        ax.axhline(scores_of(found)[0], color=INK, linestyle=":", linewidth=1, label="random play")
    ax.set_title(task.title, loc="left", color=INK, fontsize=11)
    ax.set_xlabel("env steps", color=INK)
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.set_ylabel(f"{task.score}, greedy", color=INK)
    ax.grid(color=GRID)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=8)
    with replacing(path) as beside:
        figure.savefig(beside, dpi=110, metadata={"Software": None})


def _rows(task: Task) -> list[Row]:
    return [row for row in ROWS if row.task is task and row.algo != RANDOM]


def _curve(ax: Axes, row: Row, found: Sequence[Result]) -> None:
    color = COLOR_OF[row.algo]
    steps, scores = aligned(found)
    curve = Curve(steps, *estimate(scores[:, None], RESAMPLES))
    draw_curve(ax, curve, f"{row.algo}, {len(found)} seeds", color)
    if row.figure is not None:
        ax.axhline(row.figure, color=color, linestyle="--", linewidth=1)


def aligned(found: Sequence[Result]) -> tuple[Array, Array]:
    """Return (env steps [points], returns [seeds, points]) of curves whose tests may lie some env steps apart.

    Every curve is interpolated at the tests of all, within their common range.
    """
    steps = common_points([result.curve[:, 0] for result in found])
    return steps, np.array([np.interp(steps, *result.curve.T) for result in found])
