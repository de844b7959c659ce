"""Curves, boxes and bars as lines of text, for a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

Line = list[tuple[str, str]]
"""Parts of a line: (text, style of rich)."""
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of a braille character by row and column of its dots."""
BRAILLE = 0x2800
UNIT = " env steps"
PLAIN = str.maketrans({"─": "-", "│": "|", "┌": "+", "┐": "+", "└": "+", "┘": "+", "━": "#", "·": "."} | {
    chr(BRAILLE + bits): "*" if bits else " " for bits in range(256)
})  # fmt: skip
"""Replacements for terminals without Unicode."""


def width_of(line: Line) -> int:
    """Return the number of characters of a line."""
    return sum(len(text) for text, _ in line)


def fitted(line: Line, width: int) -> Line:
    """Return a line cut or filled to a width."""
    parts, left = [], width
    for text, style in line:
        parts.append((text[:left], style))
        left -= len(parts[-1][0])
    return [*parts, (" " * left, "")] if left else parts


def plain(lines: Sequence[Line]) -> str:
    """Return lines as text without styles."""
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines)


def box(title: str, lines: Sequence[Line], width: int, height: int) -> list[Line]:
    """Return a frame of this size around lines, which are cut or filled; the title stands in its upper edge."""
    inner, rows = width - 4, height - 2
    title = f" {title[: width - 6]} "
    body = [*lines[:rows], *[[] for _ in range(rows - len(lines))]]
    framed: list[Line] = [[("│ ", "dim"), *fitted(line, inner), (" │", "dim")] for line in body]
    top: Line = [("┌─", "dim"), (title, "bold"), ("─" * (width - 3 - len(title)) + "┐", "dim")]
    return [top, *framed, [("└" + "─" * (width - 2) + "┘", "dim")]]


def beside(*blocks: Sequence[Line]) -> list[Line]:
    """Return blocks of equal height side by side."""
    return [[part for line in row for part in line] for row in zip(*blocks, strict=True)]


def bar(share: float, width: int) -> Line:
    """Return a bar that is filled from the left by a share from 0 to 1."""
    filled = round(share * width)
    return [("━" * filled, "green"), ("─" * (width - filled), "dim")]


def number(value: float, width: int = 9) -> str:
    """Return a number in `width` characters, right-aligned."""
    return f"{value:{width}.4g}"


def curve(xs: Sequence[float], ys: Sequence[float], width: int, height: int) -> list[Line]:
    """Return a curve through points, with the values of its axes; several points in one column are averaged.

    xs: increasing.  height: lines, the line with the values of x included.  Values that are not finite are left out.
    """
    points = [(x, y) for x, y in zip(xs, ys, strict=True) if math.isfinite(x) and math.isfinite(y)]
    label = 9
    columns, rows = 2 * (width - label - 1), 4 * (height - 1)
    if not points or columns < 2 or rows < 4:
        return [[("no value yet", "dim")], *[[] for _ in range(height - 1)]]
    means = _means(points, columns)
    low, high = min(y for _, y in means), max(y for _, y in means)
    span, middle = (high - low) or 1.0, (height - 2) // 2
    cells = [[0] * (columns // 2) for _ in range(height - 1)]
    heights = [(x, round((high - y) / span * (rows - 1)) if high > low else 4 * middle + 1) for x, y in means]
    before = heights[0][1]
    for (x0, y0), (x1, y1) in zip([heights[0], *heights], heights, strict=False):
        for column in range(x0, x1 + 1):  # a straight line to the next point
            last, before = before, round(y0 + (y1 - y0) * (column - x0) / max(1, x1 - x0))
            step = 1 if before >= last else -1
            for row in range(last + step if last != before else last, before + step, step):
                cells[row // 4][column // 2] |= DOTS[row % 4][column % 2]
    labels = {0: high, (height - 2): low} if high > low else {middle: low}
    lines: list[Line] = [
        [(number(labels[i], label) if i in labels else " " * label, "dim"), (" ", ""),
         ("".join(chr(BRAILLE + bits) for bits in cells[i]), "cyan")]
        for i in range(height - 1)
    ]  # fmt: skip
    begin, end = f"{points[0][0]:,.0f}", f"{points[-1][0]:,.0f}"
    if len(begin) + len(end) + len(UNIT) < columns // 2:
        end += UNIT
    between = " " * max(1, columns // 2 - len(begin) - len(end))
    return [*lines, [(" " * (label + 1) + begin + between + end, "dim")]]


def _means(points: Sequence[tuple[float, float]], columns: int) -> list[tuple[int, float]]:
    """Return the mean of the points of each column that has any."""
    first, last = points[0][0], points[-1][0]
    sums: dict[int, list[float]] = {}
    for x, y in points:
        column = round((x - first) / (last - first) * (columns - 1)) if last > first else 0
        total = sums.setdefault(column, [0.0, 0.0])
        total[0] += y
        total[1] += 1
    return [(column, total / count) for column, (total, count) in sorted(sums.items())]
