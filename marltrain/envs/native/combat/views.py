"""Observations of a battle: a list of units."""

from __future__ import annotations

from typing import Any

from marltrain.envs.native.combat.units import (
    ATTACK,
    COOLDOWN,
    EAST,
    HEALTH,
    NORTH,
    RANGE,
    SIDE,
    SIGHT,
    STOP,
    TYPES,
    is_within,
    opponent,
    opponents,
)
from marltrain.jit.compiling import inner

OTHER, OWN = 7 + len(TYPES), 4 + len(TYPES)
"""Numbers for each other unit, and for the own one."""
IN_STATE = OWN + 2
"""Numbers of a unit in the global state."""


def view_size(units: int) -> int:
    """Return the length of an observation."""
    return OTHER * (units - 1) + OWN


@inner
def see(s: Any, rules: Any, i: int, obs: Any) -> None:
    """Write the observation of unit i: the others, those of its team first, then itself; zeros if it is dead.

    Enemies list units from the last to the first. Units that are dead or out of sight are zeros.
    """
    for entry in range(len(obs)):
        obs[entry] = 0.0
    if s.health[i] <= 0.0:
        return
    units, sight, at = len(s.health), SIGHT[s.kind[i]], 0
    for listed in range(units):
        j = listed if i < rules.allies else units - 1 - listed
        if j != i:
            if s.health[j] > 0.0 and is_within(s, i, j, sight):
                see_other(s, rules, i, j, obs[at : at + OTHER])
            at += OTHER
    obs[at] = s.health[i] / HEALTH[s.kind[i]]
    obs[at + 1], obs[at + 2] = s.place[i, 0] / SIDE, s.place[i, 1] / SIDE
    obs[at + 3] = readiness(s, i)
    obs[at + 4 + s.kind[i]] = 1.0


@inner
def see_other(s: Any, rules: Any, i: int, j: int, obs: Any) -> None:
    """Write unit j as seen by unit i: health, direction, last move, last attack, cooldown, type."""
    sight = SIGHT[s.kind[i]]
    obs[0] = s.health[j] / HEALTH[s.kind[j]]
    obs[1], obs[2] = (s.place[j, 0] - s.place[i, 0]) / sight, (s.place[j, 1] - s.place[i, 1]) / sight
    if rules.sees_actions or (i < rules.allies) == (j < rules.allies):
        if s.doing[j] < STOP:
            obs[3], obs[4] = EAST[s.doing[j]], NORTH[s.doing[j]]
        elif s.doing[j] >= ATTACK:
            obs[5] = s.doing[j] / (ATTACK + opponents(s, rules, j) - 1.0)
    obs[6] = readiness(s, j)
    obs[7 + s.kind[j]] = 1.0


@inner
def readiness(s: Any, i: int) -> float:
    """Return the cooldown of unit i as a share of its type's, from 0 to 1."""
    return max(min(s.cooldown[i] / COOLDOWN[s.kind[i]], 1.0), 0.0)


@inner
def allow(s: Any, rules: Any, i: int, mask: Any) -> None:
    """Write the legal actions of unit i: to stop; if alive, to move, and to attack living units in range."""
    alive = s.health[i] > 0.0
    for action in range(STOP):
        mask[action] = alive
    mask[STOP] = True
    for k in range(opponents(s, rules, i)):
        j = opponent(s, rules, i, k)
        mask[ATTACK + k] = alive and s.health[j] > 0.0 and is_within(s, i, j, RANGE[s.kind[i]])


@inner
def see_all(s: Any, rules: Any, out: Any) -> None:
    """Write the global state: health, place, cooldown and type of each unit, zeros if it is dead; teams; types."""
    units = len(s.health)
    for entry in range(OWN * units):
        out[entry] = 0.0
    for i in range(units):
        if s.health[i] > 0.0:
            at = OWN * i
            out[at] = s.health[i] / HEALTH[s.kind[i]]
            out[at + 1], out[at + 2], out[at + 3] = s.place[i, 0], s.place[i, 1], s.cooldown[i]
            out[at + 4 + s.kind[i]] = 1.0
        out[OWN * units + i] = i >= rules.allies
        out[(OWN + 1) * units + i] = s.kind[i]
