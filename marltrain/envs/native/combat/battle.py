"""A world step: attacks, moves, deaths, and units that push each other away."""

from __future__ import annotations

import math
from typing import Any

from marltrain.envs.native.chance import uniform
from marltrain.envs.native.combat.units import (
    ATTACK,
    COOLDOWN,
    DAMAGE,
    EAST,
    HEALTH,
    NONE,
    NORTH,
    RADIUS,
    RANGE,
    SECONDS,
    SIDE,
    SPEED,
    STOP,
    is_within,
    opponent,
)
from marltrain.jit.compiling import inner

GAP = 1e-6
"""Added to the distance of units that push each other away."""


@inner
def fight(s: Any, rules: Any) -> None:
    """Make a world step: all attacks are from the state before it, and hit at once."""
    attack(s, rules)
    move(s, rules)
    push_away(s)


@inner
def attack(s: Any, rules: Any) -> None:
    """Let units attack that are ready and in range; count the hits, and set or lower cooldowns."""
    for i in range(len(s.hits)):
        s.hits[i] = 0.0
    for i in range(len(s.hits)):
        if s.health[i] > 0.0:
            j = target(s, rules, i)
            if j == NONE:
                s.cooldown[i] -= SECONDS
            else:
                s.hits[j] += DAMAGE[s.kind[i]]
                s.cooldown[i] = COOLDOWN[s.kind[i]] + uniform(s, -SECONDS, 2 * SECONDS)


@inner
def target(s: Any, rules: Any, i: int) -> int:
    """Return the unit that unit i hits in this world step, or NONE."""
    if s.doing[i] < ATTACK or s.cooldown[i] > 0.0:
        return NONE
    j = opponent(s, rules, i, s.doing[i] - ATTACK)
    return j if s.health[j] > 0.0 and is_within(s, i, j, RANGE[s.kind[i]]) else NONE


@inner
def move(s: Any, rules: Any) -> None:
    """Move units, within the map, and take the hits; a unit at the rim of the map dies."""
    for i in range(len(s.health)):
        if s.health[i] > 0.0:
            east, north = s.place[i, 0], s.place[i, 1]
            if s.doing[i] < STOP:
                way = SPEED[s.kind[i]] * SECONDS
                east += way * EAST[s.doing[i]]
                north += way * NORTH[s.doing[i]]
            s.place[i, 0], s.place[i, 1] = max(min(east, SIDE), 0.0), max(min(north, SIDE), 0.0)
            s.health[i] = max(s.health[i] - s.hits[i], 0.0)
            if rules.walls and not (0.0 < east < SIDE and 0.0 < north < SIDE):
                s.health[i] = 0.0


@inner
def push_away(s: Any) -> None:
    """Move each living unit away from those that it overlaps, by half of the overlap, all from the same places."""
    for i in range(len(s.health)):
        s.push[i, 0] = s.push[i, 1] = 0.0
        if s.health[i] > 0.0:
            for j in range(i):
                reach = RADIUS[s.kind[i]] + RADIUS[s.kind[j]]
                if s.health[j] > 0.0 and is_within(s, i, j, reach):
                    push_apart(s, i, j, reach)
    for i in range(len(s.health)):
        s.place[i, 0] += s.push[i, 0] / 2
        s.place[i, 1] += s.push[i, 1] / 2


@inner
def push_apart(s: Any, i: int, j: int, reach: float) -> None:
    """Add the overlap of units i and j to their pushes; reach: the sum of their radii."""
    east, north = s.place[i, 0] - s.place[j, 0], s.place[i, 1] - s.place[j, 1]
    overlap = max(reach / (math.sqrt(east * east + north * north) + GAP) - 1.0, 0.0)
    s.push[i, 0] += overlap * east
    s.push[i, 1] += overlap * north
    s.push[j, 0] -= overlap * east
    s.push[j, 1] -= overlap * north


@inner
def strength(s: Any, low: int, high: int) -> float:
    """Return the mean health of units low to high, as shares of their full health."""
    total = 0.0
    for i in range(low, high):
        total += s.health[i] / HEALTH[s.kind[i]]
    return total / (high - low)


@inner
def living(s: Any, low: int, high: int) -> int:
    """Return the number of living units among units low to high."""
    number = 0
    for i in range(low, high):
        number += s.health[i] > 0.0
    return number
