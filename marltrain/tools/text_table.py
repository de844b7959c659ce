"""Tables of results as text."""

from __future__ import annotations

from collections.abc import Sequence

from marltrain.core.errors import in_line


def number(value: float) -> str:
    """Return a number as text, with one digit after the point for those of two or three digits before it."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def interval(low: float, high: float) -> str:
    """Return an interval as text."""
    return f"{number(low)} to {number(high)}"


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]], texts: int) -> str:
    """Return a table in aligned columns; texts: number of first columns, which are aligned to the left.

    Cells are written in one line, see `errors.in_line`.
    """
    header, rows = [*map(in_line, header)], [[*map(in_line, row)] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        placed = (
            cell.ljust(width) if i < texts else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )  # fmt: skip
        return "  ".join(placed).rstrip()

    return "\n".join(map(line, [header, *rows]))
