"""The enemy that JaxMARL programs: it attacks the nearest unit, follows units that it sees, or crosses the map."""

from __future__ import annotations

from typing import Any

from marltrain.envs.native.chance import integer
from marltrain.envs.native.combat.units import ATTACK, EAST, NONE, NORTH, RANGE, SIGHT, STOP, is_within
from marltrain.jit.compiling import inner


@inner
def command(s: Any, rules: Any) -> None:
    """Choose the actions of all enemies."""
    for e in range(len(s.goal)):
        i = rules.allies + e
        s.doing[i] = choose(s, rules, i, e) if s.health[i] > 0.0 else STOP


@inner
def choose(s: Any, rules: Any, i: int, e: int) -> int:
    """Return the action of unit i, enemy number e; it attacks the same unit again while that is in range."""
    reach, sight = RANGE[s.kind[i]], SIGHT[s.kind[i]]
    if s.marked[e] == NONE or not sees(s, rules, i, s.marked[e], reach):
        s.marked[e] = mark(s, rules, i, reach)
    if s.marked[e] != NONE and rules.shoots:
        return ATTACK + s.marked[e]
    east, north = s.goal[e, 0], s.goal[e, 1]
    seen = count(s, rules, i, sight)
    if seen > 0:
        j = rules.allies - 1 - pick(s, rules, i, sight, integer(s, seen))
        east, north = s.place[j, 0], s.place[j, 1]
    return heading(east - s.place[i, 0], north - s.place[i, 1])


@inner
def sees(s: Any, rules: Any, i: int, k: int, distance: float) -> bool:
    """Return whether ally k, counted from the last, is alive and less than a distance from unit i."""
    j = rules.allies - 1 - k
    return s.health[j] > 0.0 and is_within(s, i, j, distance)


@inner
def count(s: Any, rules: Any, i: int, distance: float) -> int:
    """Return the number of living allies that are less than a distance from unit i."""
    number = 0
    for k in range(rules.allies):
        number += sees(s, rules, i, k, distance)
    return number


@inner
def pick(s: Any, rules: Any, i: int, distance: float, rank: int) -> int:
    """Return number `rank` of the living allies that are less than a distance from unit i; all count from the last."""
    for k in range(rules.allies):
        if sees(s, rules, i, k, distance):
            if rank == 0:
                return k
            rank -= 1
    return NONE


@inner
def mark(s: Any, rules: Any, i: int, reach: float) -> int:
    """Return the ally that unit i attacks next: the nearest in range, or a random one; or NONE."""
    if rules.picks_randomly:
        near = count(s, rules, i, reach)
        return pick(s, rules, i, reach, integer(s, near)) if near > 0 else NONE
    found, least = NONE, reach * reach
    for k in range(rules.allies):
        j = rules.allies - 1 - k
        east, north = s.place[j, 0] - s.place[i, 0], s.place[j, 1] - s.place[i, 1]
        if s.health[j] > 0.0 and east * east + north * north < least:
            found, least = k, east * east + north * north
    return found


@inner
def heading(east: float, north: float) -> int:
    """Return the move that leads nearest to a direction."""
    best, most = 0, 0.0
    for move in range(STOP):
        ahead = east * EAST[move] + north * NORTH[move]
        if ahead > most:
            best, most = move, ahead
    return best
