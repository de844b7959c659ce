"""Places and types of units at the start of an episode."""

from __future__ import annotations

from typing import Any

from marltrain.envs.native.chance import integer, uniform
from marltrain.envs.native.combat.units import SIDE, TYPES
from marltrain.jit.compiling import inner

SPREAD = 2.0
"""Largest distance of a unit from the place of its group, in each direction."""
GROUPS = 4
"""Groups of a team that surrounds the other one, each on the way from a corner of the map to its middle."""


@inner
def oppose(s: Any, rules: Any) -> None:
    """Put the teams to the left and to the right of the middle."""
    for i in range(len(s.kind)):
        s.kind[i] = rules.kinds[i]
        put(s, i, SIDE / 4 if i < rules.allies else 3 * SIDE / 4, SIDE / 2)


@inner
def scatter(s: Any, rules: Any) -> None:
    """Draw types of units, equal in both teams, and places: reflected, or a team surrounds the other one."""
    allies = rules.allies
    for i in range(allies):
        s.kind[i] = s.kind[allies + i] = integer(s, len(TYPES))
    if uniform(s, 0.0, 1.0) < 0.5:
        surround(s, rules)
        return
    for i in range(allies):
        s.place[i, 0], s.place[i, 1] = uniform(s, 0.0, SIDE / 2), uniform(s, 0.0, SIDE)
        s.place[allies + i, 0], s.place[allies + i, 1] = SIDE - s.place[i, 0], s.place[i, 1]


@inner
def surround(s: Any, rules: Any) -> None:
    """Put one team, a random one, to the middle, and the other one into groups around it."""
    inside = integer(s, 2)
    for group in range(GROUPS):
        s.way[group] = uniform(s, 0.0, SIDE / 2)
    for i in range(len(s.kind)):
        if (i >= rules.allies) == inside:
            put(s, i, SIDE / 2, SIDE / 2)
        else:
            group = integer(s, GROUPS)
            way = s.way[group]
            put(s, i, way if group < 2 else SIDE - way, way if group % 2 == 0 else SIDE - way)


@inner
def put(s: Any, i: int, east: float, north: float) -> None:
    """Put unit i near a place."""
    s.place[i, 0] = east + uniform(s, -SPREAD, SPREAD)
    s.place[i, 1] = north + uniform(s, -SPREAD, SPREAD)
