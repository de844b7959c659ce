"""The field of level-based foraging as text."""

from __future__ import annotations

import string
from collections.abc import Sequence

from marltrain.core.layout import Array

LETTERS = string.ascii_uppercase
WIDTH = 4
"""Columns of a place."""


def field_text(food: Array, place: Array, level: Array, names: Sequence[str]) -> str:
    """Return a field: a number is a food's level, a letter with a number a player and its level; and who is which.

    food: [rows, columns], levels, 0 for none.  place: [P, 2], row and column.  level: [P].
    """
    signs = [[str(int(one)) if one else "." for one in row] for row in food]
    marks = [f"{LETTERS[p] if p < len(LETTERS) else p}{int(own)}" for p, own in enumerate(level)]
    marks = [mark if p < len(LETTERS) else f"#{p}" for p, mark in enumerate(marks)]
    for (row, column), mark in zip(place.tolist(), marks, strict=True):
        signs[row][column] = mark
    lines = ["".join(f"{sign:>{WIDTH}}" for sign in row) for row in signs]
    return "\n".join([*lines, ", ".join(f"{mark} {name}" for mark, name in zip(marks, names, strict=True))])
