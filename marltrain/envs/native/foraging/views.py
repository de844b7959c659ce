"""Observations of level-based foraging: lists of the objects in sight, or grids."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.core.layout import Array
from marltrain.jit.compiling import inner

UNSEEN = -1


def list_space(rows: int, columns: int, player: Array, food: Array, named: bool) -> spaces.Box:
    """Return the space of list observations: rows, columns and levels of foods, then of players.

    The original exchanges rows and columns, and rejects non-square fields if this matters.

    player: [P], food: [F], the highest possible levels.  named: whether players' levels are included.
    """
    low: list[int] = []
    high: list[int] = []
    for _ in food:
        low, high = [*low, UNSEEN, UNSEEN, 0], [*high, rows - 1, columns - 1, food.max()]
    for _ in player:
        low, high = [*low, UNSEEN, UNSEEN, *[0] * named], [*high, rows - 1, columns - 1, *[player.max()] * named]
    return spaces.Box(np.array(low, np.float32), np.array(high, np.float32))


def picture_space(sight: int, player: Array, food: Array, named: bool) -> spaces.Box:
    """Return the space of grid observations [3, 2 * sight + 1, 2 * sight + 1]; see `list_space`."""
    each = (2 * sight + 1, 2 * sight + 1)
    high = np.stack([np.full(each, top, np.float32) for top in (player.max() if named else 1, food.max(), 1)])
    return spaces.Box(np.zeros_like(high), high)


@inner
def see_list(s: Any, rules: Any, p: int, obs: Any) -> None:
    """Write row, column and level of the foods in sight, of player p, and of the other players in sight.

    Rows and columns are relative to the corner of the visible area. Foods are in the order of places, players in the
    order of their numbers. Missing entries are -1, -1 and 0.
    """
    top, left = max(s.place[p, 0] - rules.sight, 0), max(s.place[p, 1] - rules.sight, 0)
    at = see_foods(s, rules, p, top, left, obs)
    end = 3 * len(rules.lightest)
    while at < end:
        at = write_object(obs, at, UNSEEN, UNSEEN, 0, True)
    for i in range(len(s.place)):
        q = p if i == 0 else (i - 1 if i <= p else i)
        row, column = s.place[q, 0] - top, s.place[q, 1] - left
        # As in the original: near the upper or left wall, the visible area still extends over 2 * sight + 1 places.
        if 0 <= row <= 2 * rules.sight and 0 <= column <= 2 * rules.sight:
            at = write_object(obs, at, row, column, s.level[q], rules.levels)
    while at < len(obs):
        at = write_object(obs, at, UNSEEN, UNSEEN, 0, rules.levels)


@inner
def see_foods(s: Any, rules: Any, p: int, top: int, left: int, obs: Any) -> int:
    """Write the foods in sight of player p; return the index after them."""
    at = 0
    for row in range(top, min(s.place[p, 0] + rules.sight + 1, s.food.shape[0])):
        for column in range(left, min(s.place[p, 1] + rules.sight + 1, s.food.shape[1])):
            if s.food[row, column] > 0:
                at = write_object(obs, at, row - top, column - left, s.food[row, column], True)
    return at


@inner
def write_object(obs: Any, at: int, row: int, column: int, level: int, named: bool) -> int:
    """Write a place, and a level if `named`, from entry `at` on; return the index after them."""
    obs[at], obs[at + 1] = row, column
    if named:
        obs[at + 2] = level
        return at + 3
    return at + 2


@inner
def see_pictures(s: Any, rules: Any, p: int, obs: Any) -> None:
    """Write the grids around player p: players' levels (or 1), foods' levels, and free places."""
    width = 2 * rules.sight + 1
    top, left = s.place[p, 0] - rules.sight, s.place[p, 1] - rules.sight
    obs[:] = 0.0
    for row in range(max(top, 0), min(top + width, s.food.shape[0])):
        for column in range(max(left, 0), min(left + width, s.food.shape[1])):
            at = (row - top) * width + column - left
            obs[width * width + at] = s.food[row, column]
            obs[2 * width * width + at] = s.food[row, column] == 0
    for q in range(len(s.place)):
        row, column = s.place[q, 0] - top, s.place[q, 1] - left
        if 0 <= row < width and 0 <= column < width:
            at = row * width + column
            obs[at] = s.level[q] if rules.levels else 1
            obs[2 * width * width + at] = 0.0
