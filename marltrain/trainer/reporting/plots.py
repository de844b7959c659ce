"""plot_runs: learning curves of several runs in one picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from marltrain.core.errors import ConfigError, did_you_mean
from marltrain.core.seeds import generator
from marltrain.storage.files import path_of
from marltrain.trainer.reporting.curves import Curve, common_points, read_tests
from marltrain.trainer.reporting.figures import (
    COLORS,
    INK,
    LINES,
    add_title,
    draw_curve,
    new_figure,
    style,
    write_figure,
)
from marltrain.trainer.reporting.history import TESTS_FILE
from marltrain.trainer.reporting.labels import label, labels as labels_of
from marltrain.trainer.reporting.legends import add_legend, legend_room
from marltrain.trainer.reporting.run_groups import config_of, found, kinds, name_of, shown_names, with_tests
from marltrain.trainer.reporting.side_returns import is_zero_sum, side_returns, sides_of_run

if TYPE_CHECKING:
    import pandas as pd

AXES = {"steps": "env_steps", "episodes": "episodes", "time": "seconds"}
LABELS = {"steps": "env steps", "episodes": "training episodes", "time": "time (s)"}
METRIC = "metric"
NUMBERS = ("episodes", "seconds", METRIC, "interval_low", "interval_high")
"""Columns of a table of tests that a picture needs, beside the env steps."""
HEIGHT = 3.9
"""Inches of the picture without its legend."""
RESAMPLES = 1_000

Groups = Mapping[str, Sequence[Path]]
Tables = Mapping[Path, "pd.DataFrame"]


class _Line(NamedTuple):
    """A line of the picture: its name, the curves of its runs, its color and style."""

    name: str
    curves: Sequence[Curve]
    color: str
    style: str


def plot_runs(
    run_dirs: Sequence[str | Path],
    *,
    x: str = "steps",
    smooth: int = 1,
    metric: str | None = None,
    labels: Sequence[str] | None = None,
    title: str | None = None,
    out: str | Path = "runs.png",
) -> Path:
    """Draw the test metric of several runs; runs that differ only in their seed form one curve with a band.

    run_dirs: folders of runs; a folder that is not a run is replaced by the runs inside it. Runs without tests are
        omitted.
    x: "steps" (env steps), "episodes" or "time".  smooth: number of tests averaged per point.
    metric: column of the tables of tests, such as "return/player_0". None: the metric; in runs whose metric is 0 in
        every test, since the returns of their players sum to zero, the mean return of each side (team or player).
    labels: a name for each entry of run_dirs; runs of equal names form one curve. None: the settings that differ.
    title: of the picture. None: the algorithm and environment that the runs have in common; "": no title.
    out: the image file, .png, .svg or .pdf.

    A curve of several runs is their mean; its band is the 95 % bootstrap interval of the mean over runs. The band of a
    single run is the interval of each test, which only the metric has.
    Returns the path of the image. Raises ConfigError for a wrong argument and SaveError for a wrong folder or file.
    """
    if x not in AXES:
        raise ConfigError(f"x must be one of {', '.join(AXES)}, got {x!r}.{did_you_mean(x, AXES)}")
    if smooth < 1:
        raise ConfigError(f"smooth counts tests and must be at least 1, got {smooth}")
    if not run_dirs:
        raise ConfigError("there are no runs to plot: name at least one run's folder")
    folders = [path_of(path, "run_dirs", ConfigError) for path in run_dirs]
    common, groups = _groups(folders) if labels is None else ("", _labeled(folders, labels))
    tables = {run: read_tests(run, NUMBERS) for runs in groups.values() for run in runs}
    by_side = metric is None and all(map(is_zero_sum, tables.values()))
    if by_side:
        common = common or (next(iter(groups)) if len(groups) == 1 else "")
        lines = _sides(groups, tables, AXES[x], smooth)
    else:
        lines = _lines(groups, tables, AXES[x], smooth, metric or METRIC)
    figure = new_figure(7.2, HEIGHT)
    ax = figure.subplots()
    names = [f"{line.name} ({len(line.curves)} runs)" if len(line.curves) > 1 else line.name for line in lines]
    for shown, line in zip(labels_of(names, inches=legend_room(ax)), lines, strict=True):
        draw_curve(ax, _merged(line.curves), shown, line.color, line=line.style)
    ax.set_xlabel(LABELS[x], color=INK)
    what = "return" if by_side else metric or METRIC
    ax.set_ylabel(f"{label(what, inches=HEIGHT * 0.6)} in tests", color=INK)
    style(ax)
    add_legend(ax)
    if shown_title := common if title is None else title:
        add_title(ax, shown_title)
    write_figure(figure, out)
    return Path(out)


def _groups(folders: Sequence[Path]) -> tuple[str, dict[str, Sequence[Path]]]:
    """Return what the runs have in common, and those that differ only in their seeds by what tells them apart."""
    kinds_ = kinds(with_tests(found(folders)))
    common, names = shown_names(kinds_)
    return common, {name: kind.runs for name, kind in zip(names, kinds_, strict=True)}


def _labeled(folders: Sequence[Path], labels: Sequence[str]) -> dict[str, Sequence[Path]]:
    """Return the runs of each name; raises ConfigError for another number of names, and for mixed environments."""
    if isinstance(labels, str) or len(labels) != len(folders):
        raise ConfigError(f"labels: give one name for each of the {len(folders)} entries of run_dirs, got "
                          f"{labels!r} (--label, once for each RUN in their order)")  # fmt: skip
    groups: dict[str, dict[Path, None]] = {}
    for folder, name in zip(folders, labels, strict=True):
        groups.setdefault(str(name), {}).update(dict.fromkeys(with_tests(found([folder]))))
    for name, runs in groups.items():
        envs = {name_of(run, config_of(run))[1] for run in runs} - {""}
        if len(envs) > 1:
            raise ConfigError(f"label {name!r} is given to runs of several environments, {', '.join(sorted(envs))}: "
                              "their mean says nothing. Give them different labels")  # fmt: skip
    return {name: list(runs) for name, runs in groups.items()}


def _curve(run: Path, tests: pd.DataFrame, column: str, smooth: int, metric: str) -> Curve:
    """Return a column of a run's tests as a curve; only the metric has a band."""
    numbers = [name for name in tests.columns if tests[name].dtype.kind in "iuf"]
    if metric not in numbers:
        raise ConfigError(f"metric: {run / TESTS_FILE} has no column of numbers {metric!r}."
                          f"{did_you_mean(metric, numbers)} It has: {', '.join(numbers)}")  # fmt: skip
    kept = tests[tests[metric].notna()]
    if not len(kept):
        raise ConfigError(f"metric: no test of {run} has a value of {metric!r}")
    means = kept[[metric, "interval_low", "interval_high"]].rolling(smooth, min_periods=1).mean()
    low, high = (
        means[name] if metric == METRIC else means[name] * np.nan for name in ("interval_low", "interval_high")
    )
    return Curve(*(side.to_numpy(float) for side in (kept[column], means[metric], low, high)))


def _lines(groups: Groups, tables: Tables, column: str, smooth: int, metric: str) -> list[_Line]:
    """Return a line for each group of runs."""
    return [
        _Line(name, [_curve(run, tables[run], column, smooth, metric) for run in runs],
              COLORS[i % len(COLORS)], LINES[i // len(COLORS) % len(LINES)])
        for i, (name, runs) in enumerate(groups.items())
    ]  # fmt: skip


def _sides(groups: Groups, tables: Tables, column: str, smooth: int) -> list[_Line]:
    """Return a line for each side of each group of runs: the mean return of its players in tests.

    Sides of one group have one color, or each its own if there is one group.
    """
    lines: list[_Line] = []
    for i, (name, runs) in enumerate(groups.items()):
        curves: dict[str, list[Curve]] = {}
        for run in runs:
            for side, players in sides_of_run(config_of(run), tables[run]).items():
                returns = tables[run].assign(returns=side_returns(tables[run], players))
                curves.setdefault(side, []).append(_curve(run, returns, column, smooth, "returns"))
        for j, (side, held) in enumerate(curves.items()):
            number, turn = (i, j) if len(groups) > 1 else (j, j // len(COLORS))
            shown = f"{name}: {side}" if len(groups) > 1 else side
            lines.append(_Line(shown, held, COLORS[number % len(COLORS)], LINES[turn % len(LINES)]))
    return lines


def _merged(curves: Sequence[Curve]) -> Curve:
    """Return the mean of curves over their common range of x, with its 95 % bootstrap interval over curves.

    Raises ConfigError if they have no common range.
    """
    if len(curves) == 1:
        return curves[0]
    grid = common_points([c.x for c in curves])
    values = np.array([np.interp(grid, c.x, c.middle) for c in curves])
    chosen = generator(0, "bootstrap").integers(len(curves), size=(RESAMPLES, len(curves)))
    low, high = np.quantile(values[chosen].mean(1), [0.025, 0.975], axis=0)
    return Curve(grid, values.mean(0), low, high)
