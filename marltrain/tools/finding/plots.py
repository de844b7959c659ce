"""Pictures of finders: scores over candidates, their rate of change, and learning curves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from marltrain.core.errors import ConfigError
from marltrain.core.layout import Array
from marltrain.tools.finding.comparison import Comparison
from marltrain.tools.finding.ranking import interquartile_mean, ranked
from marltrain.tools.search.axes import is_logarithmic, make_logarithmic
from marltrain.tools.search.training import LOSS, loss_of
from marltrain.trainer.reporting.figures import (
    COLORS,
    INK,
    add_title,
    name_axes,
    name_columns,
    new_figure,
    style,
    write_figure,
)
from marltrain.trainer.reporting.labels import labels
from marltrain.trainer.reporting.legends import add_legend, legend_room

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


def draw_result(
    result: Comparison, path: str | Path, *, by: str | None, smooth: int, skip: tuple[int, int],
    limits: tuple[float, float] | None,
) -> Path:  # fmt: skip
    """Draw the picture of `FindResult.plot`."""
    names = list(dict.fromkeys(result.curves["candidate"]))
    check_skip(len(names), skip)
    if smooth < 1:
        raise ConfigError(f"plot: smooth must be at least 1, got {smooth}")
    names = names[skip[0] : len(names) - skip[1]]
    shown = result.by if by is None else by
    scores = _scores(result, names, shown)
    x = _places(result, names)
    changing = result.numeric and len(names) > smooth + 1
    figure = new_figure(7.2, 5.4 + 2.2 * changing)
    axes = figure.subplots(2 + changing, 1, squeeze=False, height_ratios=[2.2, *([1.4] * changing), 2.2])[:, 0]
    _draw_scores(axes[0], x, scores, smooth, joined=result.numeric)
    axes[0].set(ylim=limits)
    name_axes(axes[0], y=shown)
    add_title(axes[0], f"{_words(result.what)}: {shown}, interquartile mean over seeds and 95 % interval")
    if changing:
        _draw_change(axes[1], x, scores, smooth)
        axes[1].sharex(axes[0])
    for ax in axes[: 1 + changing]:
        style(ax)
        _label_candidates(ax, result, names, x)
    _draw_curves(axes[-1], result.curves, names, shown, smooth)
    name_axes(axes[-1], "env steps", shown)
    style(axes[-1])
    add_legend(axes[-1])
    write_figure(figure, path)
    return Path(path)


def moving_mean(values: Array, width: int) -> Array:
    """Return means of `values` [n] and their neighbors, `width` values at most, fewer at the ends; [n]."""
    before = (width - 1) // 2
    windows = [values[max(0, i - before) : i - before + width] for i in range(len(values))]
    return np.array([window.mean() for window in windows])


def rate_of_change(values: Array, width: int) -> Array:
    """Return (v_i - v_{i - width}) / width for i >= width, [n - width]."""
    return np.asarray((values[width:] - values[:-width]) / width)


def _values_of(curves: pd.DataFrame, by: str) -> Any:
    """Return the measured quantity of every row of the curves."""
    if by == "metric":
        return curves["metric"]
    losses = [name for name in curves.columns if name.startswith(LOSS)]
    return curves[losses].apply(lambda row: loss_of(row.dropna().to_dict(), by), axis=1)


def _scores(result: Comparison, names: Sequence[str], by: str) -> list[Array]:
    """Return the scores of the trainings of each candidate that did not fail, as measured (losses not negated)."""
    curves = result.curves.assign(value=_values_of(result.curves, by))
    failed = set(zip(result.errors["candidate"], result.errors["seed"], strict=True))
    output = []
    for name in names:
        own = curves[curves["candidate"] == name].groupby("seed")["value"]
        means = [rows.tail(max(1, round(result.final * len(rows)))).mean() for seed, rows in own
                 if (name, seed) not in failed]  # fmt: skip
        output.append(np.array(means, float))
    return output


def _places(result: Comparison, names: Sequence[str]) -> Array:
    if not result.numeric:
        return np.arange(len(names), dtype=float)
    values = dict(zip(result.table["candidate"], result.table["value"], strict=True))
    return np.array([values[name] for name in names], float)


def _draw_scores(ax: Axes, x: Array, scores: Sequence[Array], smooth: int, *, joined: bool) -> None:
    known = [c for c, own in enumerate(scores) if len(own)]
    ranking = ranked([scores[c] for c in known])
    low, high = (np.where(np.isfinite(side), side, ranking.score) for side in (ranking.low, ranking.high))
    ax.vlines(x[known], low, high, color=COLORS[0], lw=5, alpha=0.3)
    for c in known:
        ax.plot(np.full(len(scores[c]), x[c]), scores[c], ".", color=INK, ms=4, alpha=0.6)
    ax.plot(x[known], ranking.score, "o", color=COLORS[0], ms=5)
    if joined:
        ax.plot(x[known], moving_mean(ranking.score, smooth), "-", color=COLORS[0])


def _draw_change(ax: Axes, x: Array, scores: Sequence[Array], smooth: int) -> None:
    means = np.array([interquartile_mean(own) if len(own) else np.nan for own in scores])
    change = rate_of_change(moving_mean(means, smooth), smooth)
    ax.axhline(0, color="#999999", lw=0.8)
    ax.plot(x[smooth:], change, "o-", color=COLORS[1], ms=4)
    ax.set_ylabel("change per candidate", color=INK)


def _label_candidates(ax: Axes, result: Comparison, names: Sequence[str], x: Array) -> None:
    if not result.numeric:
        name_columns(ax, x, names)
        return
    name_axes(ax, _words(result.what))
    if is_logarithmic(x):
        make_logarithmic(ax)


def _words(name: str) -> str:
    return name.replace("_", " ")


def _draw_curves(ax: Axes, curves: pd.DataFrame, names: Sequence[str], by: str, smooth: int) -> None:
    from matplotlib import colormaps

    curves = curves.assign(value=_values_of(curves, by))
    for c, (name, shown) in enumerate(zip(names, labels(names, inches=legend_room(ax)), strict=True)):
        own = curves[curves["candidate"] == name].pivot(index="env_steps", columns="seed", values="value").dropna()
        if len(own):
            color = COLORS[c] if len(names) <= len(COLORS) else colormaps["viridis"](c / (len(names) - 1))
            means = moving_mean(interquartile_mean(own.to_numpy()), smooth)
            ax.plot(own.index, means, label=shown, color=color, lw=1.5)


def draw_sweep(
    rates: Array, values: Array, path: str | Path, *, by: str, skip: tuple[int, int],
    limits: tuple[float, float] | None,
) -> Path:  # fmt: skip
    """Draw the picture of `LearningRateRangeTest.plot`."""
    check_skip(len(rates), skip)
    rates, values = rates[skip[0] : len(rates) - skip[1]], values[skip[0] : len(values) - skip[1]]
    figure = new_figure(7.2, 4.6)
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
    top.plot(rates, values, color=COLORS[0])
    top.set(ylim=limits)
    name_axes(top, y=by)
    bottom.axhline(0, color="#999999", lw=0.8)
    bottom.plot(rates, np.gradient(values, np.log10(rates)), color=COLORS[1])
    bottom.set_ylabel("change per decade", color=INK)
    name_axes(bottom, "learning rate")
    for ax in (top, bottom):
        style(ax)
    make_logarithmic(bottom)
    write_figure(figure, path)
    return Path(path)


def check_skip(count: int, skip: tuple[int, int]) -> None:
    """Raise ConfigError unless at least two of `count` points are left."""
    if min(skip) < 0 or count - sum(skip) < 2:
        raise ConfigError(
            f"plot: skip_start={skip[0]} and skip_end={skip[1]} must be at least 0 and leave 2 of {count} points"
        )
