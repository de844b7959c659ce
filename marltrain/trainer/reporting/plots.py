"""Plots of tables, drawn into files without a window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from marltrain.errors import ConfigError, did_you_mean
from marltrain.files import path_of
from marltrain.random import generator
from marltrain.trainer.reporting.curves import POINTS, Curve, common_points, read_tests
from marltrain.trainer.reporting.figures import (
    COLORS,
    INK,
    LINES,
    add_legend,
    draw_curve,
    label,
    labels,
    marks,
    new_figure,
    style,
    write_figure,
)
from marltrain.trainer.reporting.run_groups import found, kinds, with_tests

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

AXES = {"steps": "env_steps", "episodes": "episodes", "time": "seconds"}
LABELS = {"steps": "env steps", "episodes": "training episodes", "time": "time (s)"}
LONGEST_NAME = 30
RESAMPLES = 1_000


def draw_run(tests: pd.DataFrame, episodes: pd.DataFrame, path: str | Path, *, title: str = "") -> None:
    """Draw a run's tables (see `History`): metric of the tests, training returns and losses.

    path: the image file, .png, .svg or .pdf.
    """
    losses = [name for name in tests.columns if name.endswith("/loss/total") and tests[name].notna().any()]
    rows = [draw for draw, some in ((_metric, True), (_returns, len(episodes) > 0), (_losses, bool(losses))) if some]
    figure = new_figure(7.2, 0.6 + 2.6 * len(rows))
    axes = figure.subplots(len(rows), 1, sharex=True, squeeze=False)[:, 0]
    for ax, draw in zip(axes, rows, strict=True):
        draw(ax, tests, episodes)
        style(ax)
    axes[-1].set_xlabel(LABELS["steps"], color=INK)
    if title:
        axes[0].set_title(label(title), loc="left", color=INK, fontsize=11)
    write_figure(figure, path)


def plot_runs(
    run_dirs: Sequence[str | Path], *, x: str = "steps", smooth: int = 1, out: str | Path = "runs.png"
) -> Path:
    """Draw the test metric of several runs; runs that differ only in their seed form one curve with a band.

    run_dirs: folders of runs; a folder that is not a run is replaced by the runs inside it. Runs without tests are
        omitted.
    x: "steps" (env steps), "episodes" or "time".  smooth: number of tests averaged per point.
    out: the image file, .png, .svg or .pdf.

    A curve of several runs is their mean; its band is the 95 % bootstrap interval of the mean over runs. The band of a
    single run is the interval of each test.
    Returns the path of the image. Raises ConfigError for a wrong argument and SaveError for a wrong folder or file.
    """
    if x not in AXES:
        raise ConfigError(f"x must be one of {', '.join(AXES)}, got {x!r}.{did_you_mean(x, AXES)}")
    if smooth < 1:
        raise ConfigError(f"smooth counts tests and must be at least 1, got {smooth}")
    if not run_dirs:
        raise ConfigError("there are no runs to plot: name at least one run's folder")
    for path in run_dirs:
        path_of(path, "run_dirs", ConfigError)
    runs = with_tests(found([*map(Path, run_dirs)]))
    groups = {name: [_read(run, AXES[x], smooth) for run in members] for name, members in kinds(runs).items()}
    figure = new_figure(7.2, 4.2)
    ax = figure.subplots()
    for i, (name, curves) in enumerate(zip(labels(groups), groups.values(), strict=True)):
        shown = name if len(curves) == 1 else f"{name} ({len(curves)} runs)"
        draw_curve(ax, _merged(curves), shown, COLORS[i % len(COLORS)])
    ax.set_xlabel(LABELS[x], color=INK)
    ax.set_ylabel("metric in tests", color=INK)
    style(ax)
    add_legend(ax)
    write_figure(figure, out)
    return Path(out)


def _read(folder: Path, column: str, smooth: int) -> Curve:
    tests = read_tests(folder, [column, "metric", "interval_low", "interval_high"])
    means = tests.rolling(smooth, min_periods=1).mean()
    sides = (means["metric"], means["interval_low"], means["interval_high"])
    return Curve(tests[column].to_numpy(float), *(side.to_numpy(float) for side in sides))


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


def _looks(tests: pd.DataFrame) -> Callable[[str], dict[str, Any]]:
    """Return a function from the name of a player or agent ("anna+ben") to its colour and line style in all panels."""
    players = [name.removeprefix("return/") for name in tests.columns if name.startswith("return/")]

    def look(name: str) -> dict[str, Any]:
        i = next(i for i, player in enumerate(players) if f"{name}+".startswith(f"{player}+"))
        return {"color": COLORS[i % len(COLORS)], "ls": LINES[i // len(COLORS) % len(LINES)], "lw": 1.4, "zorder": 3}

    return look


def _metric(ax: Axes, tests: pd.DataFrame, episodes: pd.DataFrame) -> None:
    columns = ("env_steps", "metric", "interval_low", "interval_high")
    curve = Curve(*(tests[name].to_numpy(float) for name in columns))
    draw_curve(ax, curve, "metric, 95 % interval", INK)
    if len(bests := np.flatnonzero(tests["best"])):
        best = bests[-1]
        shown = f"best: {curve.middle[best]:.4g}"
        ax.plot(curve.x[best], curve.middle[best], "*", color=INK, ms=11, label=shown, zorder=4)
    add_legend(ax)
    ax.set_ylabel("metric in tests", color=INK)


def _returns(ax: Axes, tests: pd.DataFrame, episodes: pd.DataFrame) -> None:
    """Draw the training returns of each player: means over a fiftieth of the episodes."""
    window, look = max(1, len(episodes) // 50), _looks(tests)
    rows = np.unique(np.linspace(window - 1, len(episodes) - 1, POINTS).astype(int))
    x = episodes["env_steps"].to_numpy()[rows]
    columns = [name for name in episodes.columns if name.startswith("return/")]
    players = [name.removeprefix("return/") for name in columns]
    for name, player, shown in zip(columns, players, labels(players), strict=True):
        means = episodes[name].rolling(window).mean().to_numpy()[rows]
        ax.plot(x, means, label=shown, **look(player), **marks(means))
    ax.set_ylabel(f"training return\n(mean of {window} episodes)" if window > 1 else "training return", color=INK)
    add_legend(ax)


def _losses(ax: Axes, tests: pd.DataFrame, episodes: pd.DataFrame) -> None:
    """Draw the losses of each agent, in the colour of its first player."""
    look = _looks(tests)
    for name in [name for name in tests.columns if name.endswith("/loss/total")]:
        known, agent = tests[name].notna(), name.removesuffix("/loss/total")
        values = tests[name][known].to_numpy(float)
        if len(values):
            shown = agent if len(agent) <= LONGEST_NAME else f"{agent.partition('+')[0]} and others"
            ax.plot(tests["env_steps"][known], values, label=label(shown), **look(agent), **marks(values))
    ax.set_ylabel("loss", color=INK)
    add_legend(ax)
