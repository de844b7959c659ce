"""Observations of level-based foraging as one-hots: places relative to the player, and levels."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.core.layout import Array
from marltrain.jit.compiling import inner


def one_hot_space(rows: int, columns: int, sight: int, player: Array, food: Array, named: bool) -> spaces.Box:
    """Return the space of one-hots of all foods, of the other players, and of the player itself.

    player: [P], food: [F], the highest possible levels.  named: whether players' levels are included.
    """
    down, right = min(sight, rows - 1), min(sight, columns - 1)
    away, levels = 2 * (down + right + 1), int(player.max()) * named
    width = len(food) * (away + int(food.max())) + (len(player) - 1) * (away + levels) + down + right + 2 + levels
    return spaces.Box(np.zeros(width, np.float32), np.ones(width, np.float32))


@inner
def see_one_hots(s: Any, rules: Any, p: int, obs: Any) -> None:
    """Write rows, columns and levels of the foods in sight, of the other players in sight, and of player p.

    Rows and columns of foods and of others are relative to player p. Its own are those of lists: its distances from
    the upper and the left wall, `sight` at most. Missing objects have zeros. The order is that of lists.
    """
    obs[:] = 0.0
    rows, columns = s.food.shape
    row, column = s.place[p, 0], s.place[p, 1]
    down, right = min(rules.sight, rows - 1), min(rules.sight, columns - 1)
    heaviest, strongest = rules.heaviest.max(), rules.strongest.max() * rules.levels
    at = 0
    for r in range(max(row - down, 0), min(row + down + 1, rows)):
        for c in range(max(column - right, 0), min(column + right + 1, columns)):
            if s.food[r, c] > 0:
                at = mark(obs, at, r - row + down, 2 * down + 1)
                at = mark(obs, at, c - column + right, 2 * right + 1)
                at = mark(obs, at, s.food[r, c] - 1, heaviest)
    at = len(rules.heaviest) * (2 * (down + right + 1) + heaviest)
    for q in range(len(s.place)):
        below, beyond = s.place[q, 0] - row, s.place[q, 1] - column
        if q != p and abs(below) <= down and abs(beyond) <= right:
            at = mark(obs, at, below + down, 2 * down + 1)
            at = mark(obs, at, beyond + right, 2 * right + 1)
            at = mark(obs, at, s.level[q] - 1, strongest)
    at = len(obs) - (down + right + 2 + strongest)
    at = mark(obs, at, min(row, down), down + 1)
    at = mark(obs, at, min(column, right), right + 1)
    mark(obs, at, s.level[p] - 1, strongest)


@inner
def mark(obs: Any, at: int, number: int, count: int) -> int:
    """Write 1 at entry `number` of the `count` entries from `at` on, if there are any; return the index after them."""
    if count > 0:
        obs[at + number] = 1.0
    return at + count
