"""The pictures of an evaluation: returns over a grid, shares of wins, and the cross-play matrix."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from marltrain.core.errors import in_line
from marltrain.tools.evaluating.result import EvaluationResult
from marltrain.tools.text_table import number
from marltrain.trainer.reporting.curves import Curve
from marltrain.trainer.reporting.figures import (
    COLORS,
    INK,
    LINES,
    draw_curve,
    name_axes,
    name_rows,
    new_figure,
    style,
)
from marltrain.trainer.reporting.labels import SIZE, label, labels, unescaped, width_of
from marltrain.trainer.reporting.legends import LINE, NAMED, add_common_legend, add_legend, legend_room

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WON, DRAWN, LOST = COLORS[0], "#cccccc", COLORS[1]
ROW, LOW_ROW = 0.36, 0.2
"""Inches of a row, and of a row of many."""
WIDEST, BARS = 4.2, 5.2
"""Inches: widest names of rows for which a picture becomes wider, and width of the axes then."""
MANY_ROWS, MOST_ROWS = 20, 120
"""Number of rows from which they are low, and maximum number of rows of a picture; the table holds all."""
PANELS, MOST_PANELS = 3, 24
"""Panels beside each other, and maximum number of panels of a picture."""
PANEL = (3.0, 2.0)
"""Inches of a panel: width, height without its title."""
CELL = (0.75, 0.5)
"""Inches of an entry of the matrix: width, height."""
NAMES, SIDES = 2.2, 2.4
"""Inches: widest names of the matrix, and width of the color bar and of its texts."""
MATCH = ("agent", "against")


def draw_returns(found: EvaluationResult) -> Figure:
    """Draw the mean returns with their 95 % intervals: lines over a numeric argument of the grid, else rows.

    More lines than a legend names are spread over panels.
    """
    axis = _numeric(found)
    if axis is None:
        return _rows(found)
    keys = _keys(found, but=axis)
    for several in range(len(keys) + 1):
        lines = found.table.drop_duplicates(keys[several:]) if keys[several:] else found.table[:1]
        if len(lines) <= NAMED:
            break
    return _panels(found, axis, keys[:several], keys[several:])


def draw_wins(found: EvaluationResult) -> Figure:
    """Draw the shares of episodes that were won, drawn and lost; a row for each player of each match."""
    table = found.table.iloc[:MOST_ROWS]
    keys = _keys(found) or ["player"]
    figure, ax = _row_axes([_label_of(row, keys) for _, row in table.iterrows()])
    places, left = np.arange(len(table))[::-1], np.zeros(len(table))
    for name, color in (("won", WON), ("drawn", DRAWN), ("lost", LOST)):
        ax.barh(places, table[name], left=left, height=0.7, color=color, label=name)
        left += table[name].to_numpy(float)
    ax.set_xlim(0, 1)
    name_axes(ax, f"share of episodes{_part(len(table), len(found.table), 'rows')}")
    add_legend(ax)
    return figure


def draw_matrix(found: EvaluationResult) -> Figure:
    """Draw the cross-play matrix: shares of wins if the game has winners, else mean returns."""
    matrix = found.matrix("won" if found.has_winners else "return")
    if found.has_winners:
        return draw_cells(matrix, (0.0, 1.0), "{:.2f}".format, "share of wins")
    values = matrix.to_numpy(float)
    return draw_cells(matrix, (float(values.min()), float(values.max())), number, "mean return")


def draw_cells(matrix: pd.DataFrame, limits: tuple[float, float], text: Callable[[float], str], value: str) -> Figure:
    """Draw a table of agents (rows) against agents as colored cells.

    limits: values of the first and the last color.  text: returns a value as text.  value: its name.  nan: no cell.
    """
    low, high = limits
    size = len(matrix)
    names = labels(matrix.index, inches=NAMES)
    widest = max(map(width_of, map(unescaped, names)))
    width = max(CELL[0] * size, widest + SIDES + 0.4)  # half of the picture at least
    figure = new_figure(SIDES + widest + width, 1.4 + widest / 2 + CELL[1] * size)
    ax = figure.subplots()
    values = matrix.to_numpy(float)
    shown = ax.imshow(values, cmap="cividis", vmin=low, vmax=high, aspect="auto")
    for i, j in np.argwhere(np.isfinite(values)).tolist():
        dark = values[i, j] - low < 0.6 * (high - low)
        color = "white" if dark else "black"
        ax.text(j, i, text(float(values[i, j])), ha="center", va="center", color=color, fontsize=9)
    ax.set_xticks(range(size), names, rotation=30, ha="right", rotation_mode="anchor")
    ax.set_yticks(range(size), names)
    ax.tick_params(colors=INK, labelsize=9)
    name_axes(ax, "against", "agent")
    bar = figure.colorbar(shown, ax=ax)
    bar.set_label(value, color=INK)
    return figure


def _numeric(found: EvaluationResult) -> str | None:
    """Return the first argument of the grid with several numbers, or None."""
    for name in found.grid:
        values = found.table[name]
        if values.dtype.kind in "iuf" and values.nunique() > 1:
            return name
    return None


def _keys(found: EvaluationResult, but: str = "") -> list[str]:
    """Return the columns that tell the rows of the table apart: of the grid, the match if there are opponents, players.

    but: an argument of the grid to leave out.
    """
    varied = [name for name in found.grid if name != but and found.table[name].nunique() > 1]
    match = MATCH if len(found.competitors) > 1 else ()
    return [*varied, *match, *(["player"] if len(found.players) > 1 else [])]


def _label_of(row: Any, keys: Sequence[str]) -> str:
    """Return the values of a row that tell it apart: "N=3, agent_0, a vs b"."""
    grid = [f"{name}={row[name]}" for name in keys if name not in (*MATCH, "player")]
    player = [str(row["player"])] if "player" in keys else []
    agents = [f"{row['agent']} vs {row['against']}"] if "agent" in keys else []
    return ", ".join([*grid, *player, *agents])


def _panels(found: EvaluationResult, axis: str, apart: Sequence[str], within: Sequence[str]) -> Figure:
    """Draw lines over an argument of the grid.

    apart: columns with a panel for each combination of values.  within: those with a line for each.
    """
    from matplotlib.ticker import MaxNLocator

    several = [rows for _, rows in found.table.groupby(list(apart), sort=False)] if apart else [found.table]
    panels = several[:MOST_PANELS]
    columns = min(PANELS, len(panels))
    lines = -(-len(panels) // columns)
    height = PANEL[1] + LINE * len(apart)
    figure = new_figure(0.6 + PANEL[0] * columns, 0.4 + height * lines) if apart else new_figure(7.2, 3.9)
    axes = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    data = list(dict.fromkeys(_label_of(row, within) for _, row in found.table.iterrows()))
    named = [name or str(found.table["player"].iloc[0]) for name in data]
    names = dict(zip(data, labels(named, inches=legend_room(axes[0, 0])), strict=True))
    for ax, rows in zip(axes.ravel(), panels, strict=False):
        style(ax, counts=False)
        _lines(ax, rows, axis, within, names)
        if apart:
            _add_titles(ax, rows.iloc[0], apart)
    for ax in axes.ravel()[len(panels) :]:
        ax.set_visible(False)
    for ax in axes[:, 0]:
        name_axes(ax, y="mean return")
    for ax in axes.ravel()[: len(panels)][-columns:]:  # the lowest panel of each column
        ax.tick_params(labelbottom=True)
        ax.xaxis.set_major_locator(MaxNLocator(5, integer=found.table[axis].dtype.kind in "iu"))
        name_axes(ax, axis)
    if len(several) > len(panels):
        name_axes(axes[-1, 0], f"{axis}{_part(len(panels), len(several), 'combinations')}")
    add_common_legend(axes.ravel()[: len(panels)].tolist())
    return figure


def _add_titles(ax: Axes, row: Any, keys: Sequence[str]) -> None:
    """Write the values of a panel above it, a line for each part of its name."""
    parts = [_label_of(row, [key]) for key in keys if key not in MATCH]
    parts += [_label_of(row, MATCH)] if MATCH[0] in keys else []
    ax.set_title("\n".join(label(part, inches=PANEL[0] - 0.5) for part in parts), loc="left", color=INK, fontsize=SIZE)


def _lines(ax: Axes, rows: pd.DataFrame, axis: str, within: Sequence[str], names: Mapping[str, str]) -> None:
    """Draw a line for each combination of values of the columns `within`, in the color of its place among all."""
    for _, own in rows.groupby(list(within), sort=False) if within else [((), rows)]:
        own = own.sort_values(axis)
        data = _label_of(own.iloc[0], within)
        i = list(names).index(data)
        curve = Curve(*(own[name].to_numpy(float) for name in (axis, "return", "low", "high")))
        draw_curve(ax, curve, names[data], COLORS[i % len(COLORS)], line=LINES[i // len(COLORS) % len(LINES)])


def _rows(found: EvaluationResult) -> Figure:
    """Draw a row for each combination of values; without opponents, all players of a cell share it."""
    keys = _keys(found)
    marked = "player" in keys and "agent" not in keys and len(keys) > 1
    apart = [key for key in keys if key != "player" or not marked] or ["player"]
    table = found.table.assign(label=[_label_of(row, apart) for _, row in found.table.iterrows()])
    names = list(dict.fromkeys(table["label"]))
    figure, ax = _row_axes(names[:MOST_ROWS])
    place = {name: len(names[:MOST_ROWS]) - 1 - i for i, name in enumerate(names[:MOST_ROWS])}
    several = [*table.groupby("player", sort=False)] if marked else [("", table)]
    players = labels([player for player, _ in several], inches=legend_room(ax))
    for i, (shown, (_, rows)) in enumerate(zip(players, several, strict=True)):
        rows, color = rows[rows["label"].isin(place)], COLORS[i % len(COLORS)]
        shift = 0.5 * ((i + 0.5) / len(several) - 0.5)
        places = np.array([place[name] for name in rows["label"]]) - shift
        ax.hlines(places, rows["low"], rows["high"], color=color, lw=6 / len(several), alpha=0.3)
        ax.plot(rows["return"], places, "o", color=color, ms=max(2.5, 5 - 0.5 * len(several)),
                label=shown if marked else None)  # fmt: skip
    name_axes(ax, f"mean return{_part(len(place), len(names), 'rows')}")
    add_legend(ax)
    return figure


def _row_axes(names: Sequence[str]) -> tuple[Figure, Axes]:
    """Return a picture with a row for each name, the first at the top, in places n - 1 to 0."""
    widest = max((width_of(in_line(name)) for name in names), default=0.0)
    width = max(7.2, min(widest, WIDEST) + BARS)
    figure = new_figure(width, 0.9 + (ROW if len(names) <= MANY_ROWS else LOW_ROW) * len(names))
    ax = figure.subplots()
    style(ax, counts=False)
    name_rows(ax, np.arange(len(names))[::-1], names)
    ax.set_ylim(-0.7, len(names) - 0.3)
    return figure, ax


def _part(shown: int, there: int, what: str) -> str:
    return f" (first {shown} of {there} {what})" if there > shown else ""
