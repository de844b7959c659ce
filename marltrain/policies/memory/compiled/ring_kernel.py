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
def record_actions(r: Any, time: int) -> None:
    """Write the decisions of batch step `time` to its row."""
    slot = time % r.capacity
    for column in range(r.chosen):
        size = r.chosen_size[column]
        for p in range(r.players):
            place = (p * r.capacity + slot) * size
            copy(r.chosen_from[column] + p * size, r.chosen_to[column] + place, size)
    learning, learnable = bools(r.learning, r.players), bools(r.learnable, r.players * r.capacity)
    for p in range(r.players):
        bools(r.acted + (p * r.capacity + slot) * r.envs, r.envs)[:] = True
        learnable[p * r.capacity + slot] = learning[p]


@compiled
def is_free(r: Any, time: int) -> bool:
    """Return whether the row of batch step `time` overwrites no row, or a row in which no player's part ended."""
    if time >= r.capacity:
        for p in range(r.players):
            for pointed in i64(r.next + 8 * (p * r.capacity + time % r.capacity) * r.envs, r.envs):
                if pointed < 0:
                    return False
    return True


@compiled
def record_step(r: Any, time: int, rewards: int) -> None:
    """Complete the row before batch step `time` by rewards [P_all, E]; begin the row of `time` with observations."""
    slot, last = time % r.capacity, (time - 1) % r.capacity
    learnable = bools(r.learnable, r.players * r.capacity)
    drawable_count = i64(r.drawable_count, r.players)
    for p in range(r.players):
        drawable_count[p] += r.envs * learnable[p * r.capacity + last]
        if time >= r.capacity:
            drawable_count[p] -= r.envs * learnable[p * r.capacity + slot]
        before, now = (p * r.capacity + last) * r.envs, (p * r.capacity + slot) * r.envs
        reward = f32(r.reward + 4 * before, r.envs)
        new_reward = f32(rewards + 4 * (r.first + p) * r.envs, r.envs)
        for e in range(r.envs):
            reward[e] = new_reward[e]
        i64(r.next + 8 * before, r.envs)[:] = time
        f32(r.reward + 4 * now, r.envs)[:] = float32(0.0)
        bools(r.acted + now, r.envs)[:] = False
        i64(r.next + 8 * now, r.envs)[:] = -1
    for column in range(r.shown):
        size = r.shown_size[column]
        for p in range(r.players):
            place = (p * r.capacity + slot) * size
            copy(r.shown_from[column] + p * size, r.shown_to[column] + place, size)
