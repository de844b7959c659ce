"""A battle as text."""

from __future__ import annotations

import string
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from marltrain.envs.native.combat.units import ATTACK, SIDE, SIGNS, TYPES

MARKS = (string.ascii_uppercase, string.ascii_lowercase)
"""Letters of allies and of enemies."""
MORE = "+-"
"""Marks of the allies and of the enemies for which there are no letters."""
ROWS, COLUMNS = 8, 32
"""Of the map: a sign is one map unit wide and four high."""
WIDTH = 79
LEGEND = ", ".join(f"{sign} {name}" for sign, name in zip(SIGNS, TYPES, strict=True))


def battle_text(state: Mapping[str, Any], allies: int) -> str:
    """Return the map with a letter for each living unit, and the type and health of each.

    If units share a sign of the map, the last one is shown.
    """
    units = len(state["health"])
    marks = [_mark(0, i) if i < allies else _mark(1, i - allies) for i in range(units)]
    lines = [["."] * COLUMNS for _ in range(ROWS)]
    for i in range(units):
        if state["health"][i] > 0:
            east, north = (state["place"][i] / SIDE).clip(0, 0.999).tolist()
            lines[ROWS - 1 - int(ROWS * north)][int(COLUMNS * east)] = marks[i]
    told = [_unit(state, i, marks, allies) for i in range(units)]
    teams = [f"{name}: {', '.join(part)}" for name, part in (("allies", told[:allies]), ("enemies", told[allies:]))]
    return "\n".join([*("".join(line) for line in lines), *(textwrap.fill(team, WIDTH) for team in teams), LEGEND])


def _mark(team: int, number: int) -> str:
    return MARKS[team][number] if number < len(MARKS[team]) else MORE[team]


def _unit(state: Mapping[str, Any], i: int, marks: Sequence[str], allies: int) -> str:
    """Return a unit's mark, and its type, health and target, or "dead"."""
    if state["health"][i] <= 0:
        return f"{marks[i]} dead"
    target = int(state["doing"][i]) - ATTACK
    attacks = f">{marks[allies + target if i < allies else allies - 1 - target]}" if target >= 0 else ""
    return f"{marks[i]} {SIGNS[int(state['kind'][i])]}{state['health'][i]:.4g}{attacks}"
