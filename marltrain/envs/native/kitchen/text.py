"""A kitchen as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from marltrain.core.layout import Array
from marltrain.envs.native.kitchen.layouts import POT, SIGNS
from marltrain.envs.native.kitchen.views import EMPTY_POT, FULL_POT

ARROWS = "^v><"
"""Headings: up, down, right, left."""
THINGS = ("", "o", "p", "s")
NAMES = ("", "onion", "plate", "soup")
WIDTH = 5
"""Columns of a place."""
LEGEND = "W counter, O onions, B plates, P pot, X delivery; o onion, p plate, s soup"


def kitchen_text(state: Mapping[str, Any], kinds: Array, names: Sequence[str]) -> str:
    """Return a kitchen: its places with what lies on them, cooks with their headings, and what cooks hold.

    A pot shows its onions, the env steps until its soup is ready, or "s" for a soup.
    state: the game's fields.  kinds: [rows, columns].
    """
    things, pots = state["thing"].tolist(), state["pot"].tolist()
    signs = [
        [(SIGNS[kind].strip() or ".") + (_pot(pot) if kind == POT else THINGS[thing]) for kind, thing, pot in row]
        for row in (zip(*parts, strict=True) for parts in zip(kinds.tolist(), things, pots, strict=True))
    ]
    held = state["held"].tolist()
    for p, ((row, column), heading) in enumerate(zip(state["place"].tolist(), state["heading"].tolist(), strict=True)):
        signs[row][column] = f"{p + 1}{ARROWS[heading]}{THINGS[held[p]]}"
    lines = ["".join(f"{sign:>{WIDTH}}" for sign in row) for row in signs]
    cooks = [f"{p + 1} {name}" + (f" ({NAMES[held[p]]})" if held[p] else "") for p, name in enumerate(names)]
    return "\n".join([*lines, LEGEND, ", ".join(cooks)])


def _pot(pot: int) -> str:
    if pot >= FULL_POT:
        return "o" * (EMPTY_POT - pot)
    return str(pot) if pot else "s"
