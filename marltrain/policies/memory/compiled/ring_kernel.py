"""Writes rows of a ring buffer in compiled code, for steps in which all players act and no player's part ends.

`memory.ring` handles all other steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float32

from marltrain.core.layout import Array
from marltrain.core.spec import Step
from marltrain.jit.compiling import compiled
from marltrain.jit.views import address_of, bools, copy, f32, i64, record_at
from marltrain.policies.memory.ring import Ring

MOST_COLUMNS = 8
_ONE = ("capacity", "players", "envs", "first", "next", "reward", "acted", "learning", "learnable", "drawable_count",
        "shown", "chosen")  # fmt: skip
_LISTS = ("shown_from", "shown_to", "shown_size", "chosen_from", "chosen_to", "chosen_size")
ROWS = np.dtype([(name, np.int64) for name in _ONE] + [(name, np.int64, (MOST_COLUMNS,)) for name in _LISTS])
"""Arguments of the ring kernel: addresses of a ring's columns and of the arrays that are written there.

first: the group's first player.  shown: the number of columns filled from a Step.  chosen: the number of columns filled
from a decision.  Of each column: the address of its source [P, E, ...] (`_from`), its own address [P, C, E, ...]
(`_to`), and the bytes of one player's batch step (`_size`).
"""


def takes(ring: Ring) -> bool:
    """Return whether compiled code can write the rows of a ring."""
    columns = len(ring.obs) + (ring.legal is not None), 1 + len(ring.extras)
    return ring.deepest == 1 and isinstance(ring.players, slice) and max(columns) <= MOST_COLUMNS


def ring_record(ring: Ring, step: Step, action: Array, extras: dict[str, Array]) -> Array:
    """Return [1] ROWS for a ring whose rows come from these arrays; it is valid until the ring grows."""
    record = np.zeros(1, ROWS)
    t, group = record[0], ring.index
    t["players"], t["capacity"], t["envs"] = ring.axes
    t["first"] = ring.group.players[0]
    for name in ("next", "reward", "acted", "learning", "learnable", "drawable_count"):
        t[name] = address_of(getattr(ring, name))
    shown = [(array, ring.obs[name]) for name, array in ring.stored(step.obs[group]).items()]
    legal = step.legal[group]
    shown += [] if legal is None or ring.legal is None else [(legal, ring.legal)]
    chosen = [(action, ring.action), *((extras[name], column) for name, column in ring.extras.items())]
    for kind, pairs in (("shown", shown), ("chosen", chosen)):
        t[kind] = len(pairs)
        for i, (source, column) in enumerate(pairs):
            t[f"{kind}_from"][i], t[f"{kind}_to"][i] = address_of(source), address_of(column)
            t[f"{kind}_size"][i] = column[0, 0].nbytes
    return record


@compiled
def rows_at(address: int) -> Any:
    """Return the ROWS record at an address."""
    return record_at(address, ROWS)


@compiled
def record_actions(r: Any, time: int, low: int, high: int) -> None:
    """Write the decisions of batch step `time` in the environments `low` to `high` to its row."""
    slot = time % r.capacity
    for column in range(r.chosen):
        copy_envs(r, r.chosen_from[column], r.chosen_to[column], r.chosen_size[column], slot, low, high)
    learning, learnable = bools(r.learning, r.players), bools(r.learnable, r.players * r.capacity)
    for p in range(r.players):
        bools(r.acted + (p * r.capacity + slot) * r.envs, r.envs)[low:high] = True
        if low == 0:
            learnable[p * r.capacity + slot] = learning[p]


@compiled
def copy_envs(r: Any, source: int, target: int, size: int, slot: int, low: int, high: int) -> None:
    """Copy the numbers [P, E, ...] of environments `low` to `high` to row `slot` of a column, `size` bytes a player."""
    first, length = low * (size // r.envs), (high - low) * (size // r.envs)
    for p in range(r.players):
        copy(source + p * size + first, target + (p * r.capacity + slot) * size + first, length)


@compiled
def is_free(r: Any, time: int, low: int, high: int) -> bool:
    """Return whether the row of batch step `time` overwrites no row, or a row in which no player's part ended.

    Only the environments `low` to `high` count.
    """
    if time >= r.capacity:
        for p in range(r.players):
            for pointed in i64(r.next + 8 * (p * r.capacity + time % r.capacity) * r.envs, r.envs)[low:high]:
                if pointed < 0:
                    return False
    return True


@compiled
def record_step(r: Any, time: int, rewards: int, low: int, high: int) -> None:
    """Complete the row before batch step `time` by rewards [P_all, E]; begin the row of `time` with observations.

    Only columns of the environments `low` to `high` are written; environment 0 brings the counts of all.
    """
    slot, last = time % r.capacity, (time - 1) % r.capacity
    if low == 0:
        count_drawable(r, time, last, slot)
    for p in range(r.players):
        before, now = (p * r.capacity + last) * r.envs, (p * r.capacity + slot) * r.envs
        reward = f32(r.reward + 4 * before, r.envs)
        new_reward = f32(rewards + 4 * (r.first + p) * r.envs, r.envs)
        for e in range(low, high):
            reward[e] = new_reward[e]
        i64(r.next + 8 * before, r.envs)[low:high] = time
        f32(r.reward + 4 * now, r.envs)[low:high] = float32(0.0)
        bools(r.acted + now, r.envs)[low:high] = False
        i64(r.next + 8 * now, r.envs)[low:high] = -1
    for column in range(r.shown):
        copy_envs(r, r.shown_from[column], r.shown_to[column], r.shown_size[column], slot, low, high)


@compiled
def count_drawable(r: Any, time: int, last: int, slot: int) -> None:
    """Count the rows of the step before `time`, and no longer those that the row of `time` overwrites."""
    learnable = bools(r.learnable, r.players * r.capacity)
    drawable_count = i64(r.drawable_count, r.players)
    for p in range(r.players):
        drawable_count[p] += r.envs * learnable[p * r.capacity + last]
        if time >= r.capacity:
            drawable_count[p] -= r.envs * learnable[p * r.capacity + slot]
