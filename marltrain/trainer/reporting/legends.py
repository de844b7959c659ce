"""Legends below the axes, and lines that lie on each other, which are drawn and named so that all are seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.trainer.reporting.figures import INK, plain_texts
from marltrain.trainer.reporting.labels import LONGEST_LABEL, POINTS, SIZE, label, unescaped, width_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

NAMED = 12
"""Maximum number of entries of a legend; more would take more room than the curves."""
MOST_COLUMNS, MOST_LETTERS = 4, 80
"""Maximum number of columns of a legend, and of letters of an entry that says on which line another one lies."""
MARGIN = 0.95
"""Inches of a picture's width that its legend leaves to the labels of the vertical axis."""
HANDLE = 0.45
"""Inches of an entry beside its text."""
LINE = 1.45 * SIZE / POINTS
"""Inches of a line of a legend."""
PAD = 6.0
"""Points between a legend and the labels of the horizontal axis."""
NEAR = 0.004
"""Fraction of the axes by which lines may differ that are seen as one: a pixel of a picture of usual size."""
COMPARED = 200
"""Maximum number of lines that are compared with each other, since their pairs take time."""
OVERLAP = 0.9
"""Fraction of the range of each line in which lines must be equal that are seen as one."""
DASH = 5.0
"""Length of a dash of coincident lines, in widths of the line."""
LARGEST_MARK = 10.0
"""Maximum size of a marker of coincident lines, in points."""
TURNS = "dashes that take turns: lines on each other"
SHORT = 1.0
"""Maximum number of inches of the name of the line on which another one lies."""


def legend_room(ax: Axes) -> float:
    """Return the inches of the widest label of a line for which the legend of this picture has room."""
    return _room(ax) - SHORT - width_of(_same_as(""))


def add_legends(panels: Sequence[Axes]) -> None:
    """Add the legends of panels below each other; of panels with equal entries, only the lowest has one.

    To be called when all else is drawn; see `add_legend`.
    """
    for ax in panels:
        show_coincident(ax)
    entries = [ax.get_legend_handles_labels()[1] for ax in panels]
    for i, ax in enumerate(panels):
        if i + 1 == len(panels) or entries[i] != entries[i + 1]:
            _add_legend(ax)


def add_legend(ax: Axes) -> None:
    """Add the legend below the axes, which keep their size: the picture grows. To be called when all else is drawn.

    If it has too many entries, it shows the first ones and the number of the others. Labeled lines that lie on each
    other get dashes that take turns, and their entries say so.
    """
    add_legends([ax])


def add_common_legend(panels: Sequence[Axes]) -> None:
    """Add one legend of several panels, whose lines of equal labels look alike, below the picture, which grows.

    To be called when all else is drawn; see `add_legend`.
    """
    if len(panels) == 1:
        add_legend(panels[0])
        return
    entries: dict[str, Any] = {}
    for ax in panels:
        entries |= dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    notes = [TURNS] if any(_lying(ax) for ax in panels) else []
    handles, texts, how = _entries(panels[0], list(entries.values()), list(entries), notes)
    if texts:
        figure: Any = panels[0].figure
        figure.legend(handles, texts, loc="outside lower left", **how)  # takes the looks of the lines as they are
        _grow(panels[0], len(texts), how["ncols"])
    for ax in panels:
        show_coincident(ax)


def _add_legend(ax: Axes) -> None:
    handles, texts, how = _entries(ax, *ax.get_legend_handles_labels())
    if texts:
        place = {"loc": "upper left", "bbox_to_anchor": (0.0, 0.0), "bbox_transform": _below(ax)}
        ax.legend(handles, texts, borderaxespad=0.0, borderpad=0.0, **place, **how)
        _grow(ax, len(texts), how["ncols"])


def _entries(
    ax: Axes, handles: Sequence[Any], texts: Sequence[str], notes: Sequence[str] = ()
) -> tuple[list[Any], list[str], dict[str, Any]]:
    """Return handles and texts of a legend, notes included, and its look."""
    from matplotlib.lines import Line2D

    if len(texts) > NAMED:
        notes = [f"and {len(texts) - NAMED + 1} more", *notes]
        handles, texts = handles[: NAMED - 1], texts[: NAMED - 1]
    texts = [*texts, *notes]
    widest = max((width_of(unescaped(text)) for text in texts), default=0.0) + HANDLE
    columns = int(min(MOST_COLUMNS, len(texts), max(1, (_room(ax) + HANDLE) // widest)))
    how = {"frameon": False, "fontsize": SIZE, "ncols": columns, "labelcolor": INK, "handlelength": 1.8,
           "columnspacing": 1.2}  # fmt: skip
    return [*handles, *(Line2D([], [], lw=0) for _ in notes)], texts, how


def _grow(ax: Axes, entries: int, columns: int) -> None:
    """Let the picture grow by the height of a legend."""
    figure: Any = ax.figure
    figure.set_figheight(figure.get_figheight() + -(-entries // columns) * LINE + PAD / POINTS)


def show_coincident(ax: Axes) -> None:
    """Let the labeled lines of axes that lie on each other be seen: dashes take turns, later marks are smaller.

    The label of every line but the first says on which one it lies.
    """
    for lines in _lying(ax):
        first = label(unescaped(str(lines[0].get_label())), inches=SHORT)
        seen = min(len(lines), NAMED)
        for turn, line in enumerate(lines):
            if turn:
                end = _same_as(first)
                letters, room = MOST_LETTERS - len(end), _room(ax) - width_of(unescaped(end))
                own = label(unescaped(str(line.get_label())), min(LONGEST_LABEL, letters), inches=room)
                line.set_label(own + end)
            line.set_zorder(line.get_zorder() + 0.01 * (turn if turn < seen else -1))
            if turn < seen:
                line.set_linestyle((turn * DASH, (DASH, (seen - 1) * DASH)))
                line.set_markersize(min(LARGEST_MARK, line.get_markersize() + 2.0 * (seen - 1 - turn)))


def _lying(ax: Axes) -> list[list[Line2D]]:
    """Return the groups of labeled lines of axes that lie on each other."""
    lines = [line for line in ax.lines if not str(line.get_label()).startswith("_")]
    if len(lines) < 2:
        return []
    ax.autoscale_view()
    return [[lines[i] for i in group] for group in coincident([_points(ax, line) for line in lines[:COMPARED]])]


def coincident(curves: Sequence[Array]) -> list[list[int]]:
    """Return groups of curves, by their places, that are seen as one because they lie on each other.

    curves: [points, 2] each, as fractions of the axes. Points that are not finite are left out.
    Curves of different points are compared at the points of both, within their common range.
    """
    groups: list[list[int]] = []
    finite = [curve[np.isfinite(curve).all(1)] for curve in curves]
    for i, curve in enumerate(finite):
        for group in groups:
            if _same(finite[group[0]], curve):
                group.append(i)
                break
        else:
            groups.append([i])
    return [group for group in groups if len(group) > 1]


def _same(one: Array, other: Array) -> bool:
    if not len(one) or not len(other):
        return False
    low, high = max(one[0, 0], other[0, 0]), min(one[-1, 0], other[-1, 0])
    widest = max(one[-1, 0] - one[0, 0], other[-1, 0] - other[0, 0])
    if high < low or high - low < OVERLAP * widest:
        return False
    if abs(np.interp(low, *one.T) - np.interp(low, *other.T)) > NEAR:  # most differ here, which is quick to see
        return False
    x = np.unique(np.concatenate([one[:, 0], other[:, 0]]))
    x = x[(low <= x) & (x <= high)]
    return bool(np.abs(np.interp(x, *one.T) - np.interp(x, *other.T)).max() <= NEAR)


def _points(ax: Axes, line: Line2D) -> Array:
    """Return the points of a line as fractions of the axes, [points, 2], x rising; none of a line across the axes."""
    points = np.column_stack([np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)])
    if line.get_transform() != ax.transData or len(points) < 1:
        return np.zeros((0, 2))
    placed = np.asarray((ax.transScale + ax.transLimits).transform(points))
    return placed[np.argsort(placed[:, 0], kind="stable")]


def _room(ax: Axes) -> float:
    """Return the inches that the widest text of a legend may take."""
    figure: Any = ax.figure
    return float(figure.get_figwidth()) - MARGIN - HANDLE


def _below(ax: Axes) -> Any:
    """Return the transformation of the axes, moved below the labels of the horizontal axis."""
    from matplotlib.transforms import ScaledTranslation

    figure: Any = ax.figure
    with plain_texts(ax.xaxis):
        taken = ax.xaxis.get_tightbbox(figure.canvas.get_renderer())
    deep = 0.0 if taken is None else max(0.0, ax.bbox.y0 - taken.y0)
    return ax.transAxes + ScaledTranslation(0.0, -deep / figure.dpi - PAD / POINTS, figure.dpi_scale_trans)


def _same_as(first: str) -> str:
    return f" (same line as {first})"
