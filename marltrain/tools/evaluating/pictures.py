"""The pictures of an evaluation: returns over a grid, shares of wins, and the cross-play matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from marltrain.tools.evaluating.result import EvaluationResult
from marltrain.tools.text_table import number
from marltrain.trainer.reporting.curves import Curve
from marltrain.trainer.reporting.figures import COLORS, INK, LINES, add_legend, draw_curve, label, new_figure, style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

WON, DRAWN, LOST = COLORS[0], "#cccccc", COLORS[1]
MOST_BARS = 40
"""Maximum number of rows of a picture; the table holds all."""


def draw_returns(found: EvaluationResult) -> Figure:
    """Draw the mean returns with their 95 % intervals: lines over a numeric argument of the grid, else rows."""
    axis = _numeric(found)
    return _rows(found) if axis is None else _lines(found, axis)


def draw_wins(found: EvaluationResult) -> Figure:
    """Draw the shares of episodes that were won, drawn and lost; a row for each player of each match."""
    table = found.table.iloc[:MOST_BARS]
    figure = new_figure(7.2, 1.2 + 0.32 * len(table))
    ax = figure.subplots()
    places, left = np.arange(len(table))[::-1], np.zeros(len(table))
    for name, color in (("won", WON), ("drawn", DRAWN), ("lost", LOST)):
        ax.barh(places, table[name], left=left, height=0.7, color=color, label=name)
        left += table[name].to_numpy(float)
    style(ax, counts=False)
    ax.set_yticks(places, _labels(found, table))
    ax.set_xlim(0, 1)
    ax.set_ylim(-0.7, len(table) - 0.3)
    ax.set_xlabel(f"share of episodes{_shown(found.table)}", color=INK)
    figure.legend(loc="outside upper center", ncols=3, frameon=False, fontsize=9, labelcolor=INK)
    return figure


def draw_matrix(found: EvaluationResult) -> Figure:
    """Draw the cross-play matrix: shares of wins if the game has winners, else mean returns."""
    value = "won" if found.has_winners else "return"
    matrix = found.matrix(value)
    size = len(matrix)
    figure = new_figure(2.6 + 0.9 * size, 1.6 + 0.7 * size)
    ax = figure.subplots()
    values = matrix.to_numpy(float)
    low, high = (0.0, 1.0) if value == "won" else (float(values.min()), float(values.max()))
    shown = ax.imshow(values, cmap="cividis", vmin=low, vmax=high, aspect="auto")
    for i, j in np.ndindex(values.shape):
        dark = values[i, j] - low < 0.6 * (high - low)
        text = f"{values[i, j]:.2f}" if value == "won" else number(float(values[i, j]))
        ax.text(j, i, text, ha="center", va="center", color="white" if dark else "black", fontsize=9)
    ax.set_xticks(range(size), [*map(label, matrix.columns)], rotation=30, ha="right")
    ax.set_yticks(range(size), [*map(label, matrix.index)])
    ax.tick_params(colors=INK, labelsize=9)
    ax.set_xlabel("against", color=INK)
    ax.set_ylabel("agent", color=INK)
    bar = figure.colorbar(shown, ax=ax)
    bar.set_label("share of wins" if value == "won" else "mean return", color=INK)
    return figure


def _numeric(found: EvaluationResult) -> str | None:
    """Return the first argument of the grid with several numbers, or None."""
    for name in found.grid:
        values = found.table[name]
        if values.dtype.kind in "iuf" and values.nunique() > 1:
            return name
    return None


def _lines(found: EvaluationResult, axis: str) -> Figure:
    figure = new_figure(7.2, 4.2)
    ax = figure.subplots()
    keys = [*(name for name in found.grid if name != axis), "player", "agent", "against"]
    grouped = found.table.groupby(keys, sort=False)
    for i, (_, rows) in enumerate(grouped):
        rows = rows.sort_values(axis)
        curve = Curve(*(rows[name].to_numpy(float) for name in (axis, "return", "low", "high")))
        shown = _label(found, rows.iloc[0], but=axis)
        draw_curve(ax, curve, label(shown), COLORS[i % len(COLORS)], line=LINES[i // len(COLORS) % len(LINES)])
    style(ax, counts=False)
    ax.set_xlabel(label(axis), color=INK)
    ax.set_ylabel("mean return", color=INK)
    add_legend(ax)
    return figure


def _rows(found: EvaluationResult) -> Figure:
    table = found.table.iloc[:MOST_BARS]
    figure = new_figure(7.2, 1.1 + 0.36 * len(table))
    ax = figure.subplots()
    places = np.arange(len(table))[::-1]
    ax.hlines(places, table["low"], table["high"], color=COLORS[0], lw=6, alpha=0.3)
    ax.plot(table["return"], places, "o", color=COLORS[0], ms=5)
    style(ax, counts=False)
    ax.set_yticks(places, _labels(found, table))
    ax.set_ylim(-0.7, len(table) - 0.3)
    ax.set_xlabel(f"mean return{_shown(found.table)}", color=INK)
    return figure


def _shown(table: pd.DataFrame) -> str:
    return f" (first {MOST_BARS} of {len(table)} rows)" if len(table) > MOST_BARS else ""


def _labels(found: EvaluationResult, table: pd.DataFrame) -> Sequence[str]:
    return [label(_label(found, row)) for _, row in table.iterrows()]


def _label(found: EvaluationResult, row: Any, but: str = "") -> str:
    """Return the values of the grid, the player, and its agent and the others if there are opponents."""
    values = [f"{name}={row[name]}" for name in found.grid if name != but]
    agents = [f"{row['agent']} vs {row['against']}"] if len(found.competitors) > 1 else []
    player = [str(row["player"])] if len(found.players) > 1 else []
    return ", ".join([*values, *player, *agents]) or str(row["player"])
