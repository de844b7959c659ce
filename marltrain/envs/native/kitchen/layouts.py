"""Layouts of kitchens: the five that JaxMARL has, or a drawing."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from marltrain.core.errors import ConfigError, did_you_mean, shown
from marltrain.core.layout import Array

FLOOR, COUNTER, POT, ONIONS, PLATES, GOAL = range(6)
"""Kinds of places."""
SIGNS = " WPOBX"
"""The sign of each kind in a drawing, as in JaxMARL's."""
PLAYERS = 2
LAYOUTS = {
    "cramped_room": ("WWPWW", "O1 2O", "W   W", "WBWXW"),
    "asymm_advantages": ("WWWWWWWWW", "O WXWOW X", "W   P   W", "W 1 P2  W", "WWWBWBWWW"),
    "coord_ring": ("WWWPW", "W 1 P", "B2W W", "O   W", "WOXWW"),
    "forced_coord": ("WWWPW", "O W2P", "O1W W", "B W W", "WWWXW"),
    "counter_circuit": ("WWWPPWWW", "W 1    W", "B WWWW X", "W     2W", "WWWOOWWW"),
}
"""Names of Carroll et al. 2019; 1 and 2 are the players' first places."""


class Kitchen(NamedTuple):
    """Places of a kitchen.

    kinds: [rows, columns], FLOOR to GOAL.  starts: [PLAYERS, 2], row and column of each player's first place.
    """

    kinds: Array
    starts: Array

    def places(self, kind: int) -> Array:
        """Return the places of a kind, [n, 2], row by row."""
        return np.argwhere(self.kinds == kind)


def kitchen_of(layout: Any) -> Kitchen:
    """Return the kitchen of a layout's name, or of a drawing.

    A drawing has a line for each row: W is a counter, P a pot, O a pile of onions, B a pile of plates, X the place of
    deliveries, a space or a point the floor, and 1 and 2, or A twice, are the players. Raises ConfigError.
    """
    if not isinstance(layout, str):
        raise ConfigError(f"layout must be a name or a text with a line for each row, got {shown(layout)}")
    if layout in LAYOUTS:
        return _drawn(LAYOUTS[layout])
    if "\n" not in layout:
        raise ConfigError(
            f"layout must be one of {', '.join(LAYOUTS)}, or a text with a line for each row, got {shown(layout)}."
            f"{did_you_mean(layout, LAYOUTS)}"
        )
    lines = layout.strip("\n").replace(".", " ").upper().replace("A", "1", 1).replace("A", "2", 1).split("\n")
    return _drawn(lines)


def _drawn(lines: Any) -> Kitchen:
    signs = "".join(lines)
    if {len(line) for line in lines} != {len(lines[0])} or set(signs) - {*SIGNS, "1", "2"}:
        raise ConfigError(
            f"layout must have rows of equal length of W, P, O, B, X, 1, 2 and spaces, got {shown(list(lines))}"
        )
    if any(signs.count(player) != 1 for player in "12"):
        raise ConfigError(f"layout must have {PLAYERS} players, 1 and 2, or A twice, got {shown(list(lines))}")
    drawing = np.array([list(line) for line in lines])
    starts = np.concatenate([np.argwhere(drawing == player) for player in "12"])
    kinds = np.array([[SIGNS.find(sign) if sign in SIGNS else FLOOR for sign in row] for row in drawing])
    rim = np.concatenate([kinds[0], kinds[-1], kinds[:, 0], kinds[:, -1]])
    if (rim == FLOOR).any():
        raise ConfigError(f"layout must have no floor at its rim, got {shown(list(lines))}")
    if missing := [SIGNS[kind] for kind in (POT, ONIONS, PLATES, GOAL) if not (kinds == kind).any()]:
        raise ConfigError(
            f"layout must have {', '.join(missing)} too, or no soup is delivered, got {shown(list(lines))}"
        )
    return Kitchen(kinds, starts)
