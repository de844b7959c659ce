"""Choice of goals in compiled code: rows of the same episode, found along the decisions of a player."""

from __future__ import annotations

import functools
from typing import Any

from marltrain.jit.compiling import compiled, program

FUTURE, FINAL, EPISODE = range(3)
"""Strategies; see `Hindsight`."""


@compiled
def onward(following: Any, cell: int, capacity: int, envs: int) -> int:
    """Return the cell of a player's next closed row in the episode, or -1.  following: the ring's `next`, flattened."""
    pointer = following[cell]
    if pointer < 0:
        return -1
    there = cell + (pointer % capacity - cell // envs % capacity) * envs
    return there if following[there] != -1 else -1


@compiled
def first_of(following: Any, acted: Any, cell: int, capacity: int, envs: int, oldest: int, now: int) -> int:
    """Return the cell of the first row of the episode that is still in the ring."""
    slot = cell // envs % capacity
    time, first = now - (now - slot) % capacity, cell
    before = time - 1
    while before >= oldest:
        there = cell + (before % capacity - slot) * envs
        if acted[there]:
            if following[there] != time:
                break
            first, time = there, before
        before -= 1
    return first


@compiled
def choose_goals(
    following: Any, acted: Any, cells: Any, random: Any, strategy: int, capacity: int, envs: int, oldest: int, now: int,
    chosen: Any,
) -> None:  # fmt: skip
    """Write for each closed row a row of the same episode, whose next observation holds the goal.

    cells, chosen: [n] int64.  random: [n] float64 in [0, 1).
    """
    for i in range(len(cells)):
        start = first_of(following, acted, cells[i], capacity, envs, oldest, now) if strategy == EPISODE else cells[i]
        count, cell = 1, onward(following, start, capacity, envs)
        while cell >= 0:
            count, cell = count + 1, onward(following, cell, capacity, envs)
        steps = count - 1 if strategy == FINAL else int(random[i] * count)
        cell = start
        for _ in range(steps):
            cell = onward(following, cell, capacity, envs)
        chosen[i] = cell


@functools.cache
def goals_program() -> Any:
    """Return the compiled `choose_goals`, from the disk cache if it is there."""
    return program(choose_goals)
