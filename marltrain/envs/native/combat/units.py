"""Types of units, the map, and distances between units."""

from __future__ import annotations

from typing import Any

import numpy as np

from marltrain.jit.compiling import inner

TYPES = ("marine", "marauder", "stalker", "zealot", "zergling", "hydralisk")
SIGNS = "mMsZzh"
SPEED = np.array([3.15, 2.25, 4.13, 3.15, 4.13, 3.15])
"""Map units per second."""
DAMAGE = np.array([9.0, 10.0, 13.0, 8.0, 5.0, 12.0])
RANGE = np.array([5.0, 6.0, 6.0, 2.0, 2.0, 5.0])
SIGHT = np.array([9.0, 10.0, 10.0, 9.0, 8.0, 9.0])
RADIUS = np.array([0.375, 0.5625, 0.625, 0.5, 0.375, 0.625])
HEALTH = np.array([45.0, 125.0, 160.0, 150.0, 35.0, 80.0])
COOLDOWN = np.array([0.61, 1.07, 1.87, 0.86, 0.5, 0.59])
"""Seconds between two attacks."""
SIDE = 32.0
"""Side of the square map."""
WORLD_STEPS, SECONDS = 8, 1 / 16
"""World steps of an env step, and seconds of a world step."""
STOP, ATTACK = 4, 5
"""Actions below STOP are moves; from ATTACK on, attacks of the units of the other team."""
NONE = -1
"""No unit."""
EAST = np.array([0.0, 1.0, 0.0, -1.0])
NORTH = np.array([1.0, 0.0, -1.0, 0.0])
"""Direction of each move: up, right, down, left."""


@inner
def is_within(s: Any, i: int, j: int, distance: float) -> bool:
    """Return whether units i and j are less than a distance apart."""
    east, north = s.place[j, 0] - s.place[i, 0], s.place[j, 1] - s.place[i, 1]
    return east * east + north * north < distance * distance


@inner
def opponent(s: Any, rules: Any, i: int, k: int) -> int:
    """Return number k of the other team, as unit i counts it: enemies count allies from the last."""
    return rules.allies + k if i < rules.allies else rules.allies - 1 - k


@inner
def opponents(s: Any, rules: Any, i: int) -> int:
    """Return the number of units of the other team."""
    return len(s.health) - rules.allies if i < rules.allies else rules.allies
