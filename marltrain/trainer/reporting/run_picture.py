"""The picture of one run, metrics.png: metric and returns in tests, returns in training, losses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.trainer.reporting.curves import POINTS, Curve
from marltrain.trainer.reporting.figures import (
    COLORS,
    INK,
    LINES,
    add_title,
    draw_curve,
    marks,
    new_figure,
    style,
    write_figure,
)
from marltrain.trainer.reporting.labels import labels
from marltrain.trainer.reporting.legends import add_legends, legend_room
from marltrain.trainer.reporting.side_returns import RETURN, players_of, side_returns
from marltrain.trainer.seats.sides import sides_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

WIDTH, HEIGHT, EDGES = 7.2, 2.3, 0.6
"""Inches: width of the picture, height of a panel without its legend, height of title and label of the axis."""
LOSS = "/loss/total"
LONGEST_NAME = 30
"""Number of letters from which an agent of several players is named by the first one."""
SAME = 1e-6
"""Fraction of the largest return by which returns differ from the metric if they are drawn beside it."""
Sides = Mapping[str, Sequence[str]]


def draw_run(
    tests: pd.DataFrame, episodes: pd.DataFrame, path: str | Path, *, title: str = "", sides: Sides | None = None
) -> None:
    """Draw a run's tables (see `History`): metric and returns of the tests, training returns and losses.

    path: the image file, .png, .svg or .pdf.  sides: players whose returns in tests are one curve, see `sides_of`.
    Returns of tests are left out if each of them is the metric.
    """
    shown = sides_of(players_of(tests)) if sides is None else sides
    panels: list[Callable[[Axes], None]] = [lambda ax: _metric(ax, tests)]
    if _differ(tests, shown):
        panels.append(lambda ax: _test_returns(ax, tests, shown))
    if len(episodes):
        panels.append(lambda ax: _returns(ax, tests, episodes))
    if any(name.endswith(LOSS) and tests[name].notna().any() for name in tests.columns):
        panels.append(lambda ax: _losses(ax, tests))
    figure = new_figure(WIDTH, EDGES + HEIGHT * len(panels))
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    axes[-1].set_xlabel("env steps", color=INK)
    for ax, draw in zip(axes, panels, strict=True):
        style(ax)
        draw(ax)
    add_legends(list(axes))  # when the range of the shared axis is known
    if title:
        add_title(axes[0], title)
    write_figure(figure, path)


def _looks(tests: pd.DataFrame) -> Callable[[str], dict[str, Any]]:
    """Return a function from the name of a player or agent ("anna+ben") to its color and line style in all panels."""
    players = players_of(tests)

    def look(name: str) -> dict[str, Any]:
        i = next((i for i, player in enumerate(players) if f"{name}+".startswith(f"{player}+")), len(players))
        if i == len(players):  # a learner of a match: no player has its name
            players.append(name)
        return {"color": COLORS[i % len(COLORS)], "ls": LINES[i // len(COLORS) % len(LINES)], "lw": 1.4, "zorder": 3}

    return look


def _metric(ax: Axes, tests: pd.DataFrame) -> None:
    columns = ("env_steps", "metric", "interval_low", "interval_high")
    curve = Curve(*(tests[name].to_numpy(float) for name in columns))
    draw_curve(ax, curve, "metric, 95 % interval", INK)
    if len(bests := np.flatnonzero(tests["best"])):
        best = bests[-1]
        shown = f"best: {curve.middle[best]:.4g}"
        ax.plot(curve.x[best], curve.middle[best], "*", color=INK, ms=11, label=shown, zorder=4)
    ax.set_ylabel("metric in tests", color=INK)


def _differ(tests: pd.DataFrame, sides: Sides) -> bool:
    """Return whether some side's returns in tests are not the metric."""
    means = [side_returns(tests, side) for side in sides.values()]
    return any(not _equal(mean, tests["metric"].to_numpy(float)) for mean in means)


def _equal(one: Array, other: Array) -> bool:
    known = np.isfinite(one) & np.isfinite(other)
    return bool((np.abs(one - other)[known] <= SAME * max(1e-300, np.abs(one[known]).max(initial=0.0))).all())


def _test_returns(ax: Axes, tests: pd.DataFrame, sides: Sides) -> None:
    """Draw the mean return of each side in the tests."""
    look, x = _looks(tests), tests["env_steps"].to_numpy(float)
    names = [name if len(side) == 1 else f"{name} (mean of {len(side)} players)" for name, side in sides.items()]
    for side, shown in zip(sides.values(), labels(names, inches=legend_room(ax)), strict=True):
        means = side_returns(tests, side)
        ax.plot(x, means, label=shown, **look(side[0]), **marks(means))
    ax.set_ylabel("return in tests", color=INK)


def _returns(ax: Axes, tests: pd.DataFrame, episodes: pd.DataFrame) -> None:
    """Draw the training returns of each player, or of each match's learner: means over a fiftieth of the episodes."""
    columns = [name for name in episodes.columns if name.startswith(RETURN)]
    if "match" in episodes:
        curves = {str(match): (own, columns[0]) for match, own in episodes.groupby("match")}
    else:
        curves = {name.removeprefix(RETURN): (episodes, name) for name in columns}
    window, look = max(1, min(len(own) for own, _ in curves.values()) // 50), _looks(tests)
    for (name, (own, column)), shown in zip(curves.items(), labels(list(curves), inches=legend_room(ax)), strict=True):
        rows = np.unique(np.linspace(window - 1, len(own) - 1, POINTS).astype(int))
        means = own[column].rolling(window).mean().to_numpy()[rows]
        ax.plot(own["env_steps"].to_numpy()[rows], means, label=shown, **look(name), **marks(means))
    ax.set_ylabel(f"training return\n(mean of {window} episodes)" if window > 1 else "training return", color=INK)


def _losses(ax: Axes, tests: pd.DataFrame) -> None:
    """Draw the losses of each agent, in the color of its first player."""
    look = _looks(tests)
    agents = [name.removesuffix(LOSS) for name in tests.columns if name.endswith(LOSS) and tests[name].notna().any()]
    names = [name if len(name) <= LONGEST_NAME or "+" not in name else _first(name) for name in agents]
    for agent, shown in zip(agents, labels(names, inches=legend_room(ax)), strict=True):
        known = tests[f"{agent}{LOSS}"].notna()
        values = tests[f"{agent}{LOSS}"][known].to_numpy(float)
        ax.plot(tests["env_steps"][known], values, label=shown, **look(agent), **marks(values))
    ax.set_ylabel("loss", color=INK)


def _first(agent: str) -> str:
    return f"{agent.partition('+')[0]} and others"
