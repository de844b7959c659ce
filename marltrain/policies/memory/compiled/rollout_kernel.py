"""Finds the rows of rollouts in a ring buffer, and makes their columns, in compiled code."""

from __future__ import annotations

from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.jit.compiling import compiled, program


def count_fresh(counts: Array, agent: Array, asked: tuple[Any, ...]) -> None:
    """Add the rows of each seat that `fresh_rows` returns to those of its agent.

    counts: [K] int64.  agent: [S] int64, the agent of each seat.  asked: the arguments of `fresh_rows`.
    """
    _count(counts, agent, *asked)


@program
def _count(
    counts: Array, agent: Array, following: Array, ended: Array, complete: Any, players: Array, since: Array,
    first: int, now: int, taken: int,
) -> None:  # fmt: skip
    """Do what `count_fresh` does."""
    _, capacity, envs = following.shape
    for seat in range(len(players)):
        for time in range(max(first, since[seat]), now):
            for env in range(envs):
                counts[agent[seat]] += is_fresh(following, ended, complete, players[seat], time % capacity, env, taken)


@compiled
def is_fresh(following: Any, ended: Any, complete: Any, player: int, slot: int, env: int, taken: int) -> bool:
    """Return whether a row was closed after batch step `taken`, and all its frames are in the ring."""
    pointer = following[player, slot, env]
    closed = ended[-2 - pointer] if pointer < -1 else pointer
    if pointer == -1 or closed <= taken:
        return False
    return complete is None or complete[player, slot, env]


def fresh_rows(
    following: Array, ended: Array, complete: Any, players: Array, since: Array, first: int, now: int, taken: int
) -> tuple[Array, Array]:
    """Return (seat, cell) of the rows that were closed after batch step `taken`, by seat, environment and time.

    following: [P, C, E] int64, `Rows.next`.  ended: [N] int64, `EndTable.time`.  complete: `Rows.complete`.
    players, since: [S] int64, the player of each seat, and the time of its first row.
    first, now: the rows have a time in [first, now).
    """
    found = np.empty((2, len(players) * following.shape[2] * max(now - first, 0)), np.int64)
    count = _find(following, ended, complete, players, since, first, now, taken, found)
    return found[0, :count], found[1, :count]


@program
def _find(
    following: Array, ended: Array, complete: Any, players: Array, since: Array, first: int, now: int, taken: int,
    found: Array,
) -> int:  # fmt: skip
    """Write the seats and the cells of `fresh_rows`, [2, n]; return their number."""
    _, capacity, envs = following.shape
    count = 0
    for seat in range(len(players)):
        player = players[seat]
        for env in range(envs):
            for time in range(max(first, since[seat]), now):
                slot = time % capacity
                if is_fresh(following, ended, complete, player, slot, env, taken):
                    found[0, count], found[1, count] = seat, (player * capacity + slot) * envs + env
                    count += 1
    return count


def linked_rows(following: Array, found: Array, counts: Array, rows: int) -> tuple[Array, Array, Array]:
    """Return rows one after another, [K, rows] each: cells, whether there is a row, whether the next one follows it.

    following: see `fresh_rows`.  found: [n] int64, the cells of the agents' rows.  counts: [K] int64, of each agent.
    The cells of padding are that of the first row.
    """
    cells = np.empty((len(counts), rows), np.int64)
    valid, linked = np.zeros(cells.shape, np.bool_), np.zeros(cells.shape, np.bool_)
    _link(following, found, counts, cells, valid, linked)
    return cells, valid, linked


@program
def _link(following: Array, found: Array, counts: Array, cells: Array, valid: Array, linked: Array) -> None:
    """Write what `linked_rows` returns."""
    _, capacity, envs = following.shape
    after, start = following.reshape(-1), 0
    cells[...] = found[0]
    for k in range(len(counts)):
        slot, time = -1, -2  # slot and time of row i if it follows row i - 1
        for i in range(counts[k]):
            cell = found[start + i]
            cells[k, i], valid[k, i] = cell, True
            pointer = after[cell]
            if i + 1 < counts[k] and pointer >= 0:
                if slot == -1:
                    slot = cell // envs % capacity
                next_slot = slot + 1 if slot + 1 < capacity else 0
                then = next_slot if pointer == time + 1 else pointer % capacity  # a division takes longer
                linked[k, i] = cell + (then - slot) * envs == found[start + i + 1]
                slot, time = (then, pointer) if linked[k, i] else (-1, -2)
            else:
                slot, time = -1, -2
        start += counts[k]


def outcomes(
    following: Array, terminated: Array, reward: Array, cells: Array, valid: Array, linked: Array, gamma: Array
) -> tuple[Array, Array, Array, Array, Array, Array]:
    """Return reward, discount, truncated and boot [K, B] of the rows at cells, and from where to bootstrap.

    following, terminated, reward: columns of the ring, [P, C, E].  cells, valid, linked: see `linked_rows`.
    gamma: [K] float64.  The last two are cells and pointers [K, M] of the rows without a next row, padded with copies.
    """
    given, discount = np.zeros((2, *cells.shape), np.float32)
    truncated, boot = np.zeros(cells.shape, np.bool_), np.empty(cells.shape, np.int64)
    places = np.empty((2, cells.size), np.int64)
    columns = following, terminated, reward, cells, valid, linked, gamma
    size = len(cells) * _write_outcomes(*columns, given, discount, truncated, boot, places)
    from_cells, pointers = places[:, :size].reshape(2, len(cells), -1)
    return given, discount, truncated, boot, from_cells, pointers


@program
def _write_outcomes(
    following: Array, terminated: Array, reward: Array, cells: Array, valid: Array, linked: Array, gamma: Array,
    given: Array, discount: Array, truncated: Array, boot: Array, places: Array,
) -> int:  # fmt: skip
    """Write what `outcomes` returns; return M.  places: [2, n], the last two, one row after another."""
    after, ends, rewards = following.reshape(-1), terminated.reshape(-1), reward.reshape(-1)
    agents, rows = cells.shape
    boot[...] = -1
    most, first = 0, -1
    for k in range(agents):
        count = 0
        for i in range(rows):
            if valid[k, i]:
                cell = cells[k, i]
                given[k, i] = rewards[cell]
                if not ends[cell]:
                    discount[k, i] = gamma[k]
                    truncated[k, i] = after[cell] < -1
            if not linked[k, i]:
                boot[k, i] = count if valid[k, i] else 0
                if valid[k, i]:
                    first = cells[k, i] if first == -1 else first
                    count += 1
        most = max(most, count)
    places[0, : agents * most], places[1, : agents * most] = first, after[first]
    for k in range(agents):
        for i in range(rows):
            if valid[k, i] and not linked[k, i]:
                place = k * most + boot[k, i]
                places[0, place], places[1, place] = cells[k, i], after[cells[k, i]]
    return most
