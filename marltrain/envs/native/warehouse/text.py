"""A warehouse as text."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from typing import Any

from marltrain.core.layout import Array

ARROWS = "^v<>"
"""Headings: up, down, left, right."""
LETTERS = string.ascii_uppercase
WIDTH = 4
"""Columns of a place."""
LEGEND = "# shelf, ! requested, g goal"


def warehouse_text(state: Mapping[str, Any], goals: Array, names: Sequence[str]) -> str:
    """Return a warehouse: shelves, goals and robots, each a letter with its heading; and which robots carry a shelf.

    state: the game's fields.  goals: [G, 2], row and column.
    """
    requested = state["requested"]
    signs = [[_shelf(shelf, requested) for shelf in row] for row in state["shelf"].tolist()]
    for row, column in goals.tolist():
        signs[row][column] = signs[row][column] or "g"
    marks = [LETTERS[p] if p < len(LETTERS) else f"{p}" for p in range(len(names))]
    for mark, (row, column), heading in zip(marks, state["place"].tolist(), state["heading"].tolist(), strict=True):
        signs[row][column] = f"{mark}{ARROWS[heading]}{signs[row][column]}"
    lines = ["".join(f"{sign or '.':>{WIDTH}}" for sign in row) for row in signs]
    loaded = [" (loaded)" if load else "" for load in state["load"].tolist()]
    robots = ", ".join(f"{mark} {name}{load}" for mark, name, load in zip(marks, names, loaded, strict=True))
    return "\n".join([*lines, f"{robots}; {LEGEND}"])


def _shelf(shelf: int, requested: Array) -> str:
    if not shelf:
        return ""
    return "!" if requested[shelf - 1] else "#"
