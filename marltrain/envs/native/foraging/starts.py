"""The start of an episode of level-based foraging: the places and levels of players and foods."""

from __future__ import annotations

from typing import Any

from marltrain.envs.native.chance import integer
from marltrain.jit.compiling import inner

ATTEMPTS = 1000
"""Number of places tried for all foods together."""
NOWHERE = -1


@inner
def place_players(s: Any, rules: Any) -> None:
    """Place all players at different random places, with random levels."""
    s.food[:, :] = 0
    s.place[:, :] = NOWHERE
    shuffle(s, len(s.place))
    for p in range(len(s.place)):
        row, column = integer(s, s.food.shape[0]), integer(s, s.food.shape[1])
        while taken(s, row, column):
            row, column = integer(s, s.food.shape[0]), integer(s, s.food.shape[1])
        s.place[p, 0], s.place[p, 1] = row, column
        s.level[p] = between(s, rules.weakest[s.order[p]], rules.strongest[s.order[p]])


@inner
def place_foods(s: Any, rules: Any) -> None:
    """Place foods at random inside the field, apart from each other; fewer foods if ATTEMPTS are exhausted."""
    count, most = 0, weakest_three(s.level)
    s.spawned = 0
    shuffle(s, len(rules.lightest))
    for _ in range(ATTEMPTS):
        if count == len(rules.lightest):
            break
        row, column = 1 + integer(s, s.food.shape[0] - 2), 1 + integer(s, s.food.shape[1] - 2)
        if taken(s, row, column) or food_near(s.food, row, column):
            continue
        heaviest = most if rules.relative else rules.heaviest[s.order[count]]
        lightest = heaviest if rules.coop else rules.lightest[s.order[count]]
        s.food[row, column] = between(s, lightest, heaviest)
        s.spawned += s.food[row, column]
        count += 1


@inner
def shuffle(s: Any, n: int) -> None:
    """Write a random permutation of 0 to n - 1 into `s.order` (Fisher, Yates 1938)."""
    for i in range(n):
        s.order[i] = i
    for i in range(n - 1, 0, -1):
        j = integer(s, i + 1)
        s.order[i], s.order[j] = s.order[j], s.order[i]


@inner
def between(s: Any, low: int, high: int) -> int:
    """Return a random integer from `low` to `high`; nothing is drawn if both are equal."""
    return low if low == high else low + integer(s, high - low + 1)


@inner
def taken(s: Any, row: int, column: int) -> bool:
    """Return whether a player is at a place."""
    found = False
    for p in range(len(s.place)):
        found = found or (s.place[p, 0] == row and s.place[p, 1] == column)
    return found


@inner
def food_near(food: Any, row: int, column: int) -> bool:
    """Return whether a food is at a place, on one of its eight neighbors, or two places away in a straight line."""
    for r in range(max(row - 2, 0), min(row + 3, food.shape[0])):
        for c in range(max(column - 2, 0), min(column + 3, food.shape[1])):
            down, right = abs(r - row), abs(c - column)
            if food[r, c] > 0 and (max(down, right) < 2 or min(down, right) == 0):
                return True
    return False


@inner
def weakest_three(level: Any) -> int:
    """Return the sum of the three lowest levels."""
    total = 0
    for p in range(len(level)):
        weaker = 0
        for q in range(len(level)):
            weaker += level[q] < level[p] or (level[q] == level[p] and q < p)
        if weaker < 3:
            total += level[p]
    return total
