"""Traffic in a warehouse: which robots go forward if several want one place, or places of each other."""

from __future__ import annotations

from typing import Any

import numpy as np

from marltrain.jit.compiling import inner

FORWARD = 1
DOWN = np.array([-1, 1, 0, 0])
RIGHT = np.array([0, 0, -1, 1])
"""Steps by heading: up, down, left, right."""
FREE = -1
"""`s.ahead[p]` of a robot whose next place no robot holds. The robot's own number: it stays."""
SHORTEST_CIRCLE = 3
"""Two robots cannot exchange places."""


@inner
def plan_moves(s: Any) -> None:
    """Write `s.moves`: which robots go forward in this step.

    A robot goes into a free place, or into the place of a robot that leaves it. A circle of three or more robots moves.
    Of several robots with the same next place, the one with the longest queue behind it goes; see `leads`.
    """
    for p in range(len(s.place)):
        aim(s, p)
        s.chain[p] = 1
    for p in range(len(s.place)):
        count_chain(s, p)
    for p in range(len(s.place)):
        s.moves[p] = goes(s, p)


@inner
def aim(s: Any, p: int) -> None:
    """Write robot p's next place and the robot that holds it; a robot that does not try to leave is its own."""
    s.ahead[p] = p
    s.target[p, 0], s.target[p, 1] = s.place[p, 0], s.place[p, 1]
    row, column = s.place[p, 0] + DOWN[s.heading[p]], s.place[p, 1] + RIGHT[s.heading[p]]
    inside = 0 <= row < s.shelf.shape[0] and 0 <= column < s.shelf.shape[1]
    if s.action[p] != FORWARD or not inside:
        return
    holder = robot_at(s, row, column)
    standing = s.shelf[row, column] > 0 and (holder == FREE or s.load[holder] == 0)
    if s.load[p] > 0 and standing:
        return
    s.ahead[p] = holder
    s.target[p, 0], s.target[p, 1] = row, column


@inner
def robot_at(s: Any, row: int, column: int) -> int:
    """Return the robot at a place, or FREE."""
    for p in range(len(s.place)):
        if s.place[p, 0] == row and s.place[p, 1] == column:
            return p
    return FREE


@inner
def count_chain(s: Any, p: int) -> None:
    """Extend the queues that robot p stands in: `s.chain` is the longest line of robots that ends with a robot."""
    q, length = p, 1
    while s.ahead[q] != FREE and s.ahead[q] != q and length < len(s.place):
        q = s.ahead[q]
        length += 1
        s.chain[q] = max(s.chain[q], length)


@inner
def goes(s: Any, p: int) -> bool:
    """Return whether robot p goes forward: it and all robots ahead of it lead, or it is part of a circle."""
    q, first = p, True
    for length in range(1, len(s.place) + 1):
        if s.ahead[q] == q:
            return False
        first = first and leads(s, q)
        if s.ahead[q] == FREE:
            return first
        q = s.ahead[q]
        if q == p:
            return length >= SHORTEST_CIRCLE
    return False


@inner
def leads(s: Any, p: int) -> bool:
    """Return whether robot p goes before all robots with the same next place.

    The longest queue goes first; of equal ones that of the robot whose place is mentioned first.
    """
    for q in range(len(s.place)):
        if q == p or s.ahead[q] == q or s.target[q, 0] != s.target[p, 0] or s.target[q, 1] != s.target[p, 1]:
            continue
        if s.chain[q] > s.chain[p] or (s.chain[q] == s.chain[p] and mention(s, q) < mention(s, p)):
            return False
    return True


@inner
def mention(s: Any, p: int) -> int:
    """Return where robot p's place is mentioned first, if each robot in turn names its own and its next place."""
    first = 2 * p
    for q in range(len(s.place)):
        if q != p and s.ahead[q] == p:
            first = min(first, 2 * q + 1)
    return first
