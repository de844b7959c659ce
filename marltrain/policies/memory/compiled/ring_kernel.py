"""Writes rows of a ring buffer in compiled code, as `memory.ring` does.

The order is `record_actions` and `note_learning`, `settle_ends`, `record_step`. A step for which `fits` is false needs
more memory; `memory.ring` records it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float32

from marltrain.core.layout import Array
from marltrain.core.spec import Step
from marltrain.jit.compiling import compiled
from marltrain.jit.views import add_at, address_of, bools, copy, f32, i64, record_at
from marltrain.policies.memory.ring import Ring

MOST_COLUMNS = 8
_ONE = ("capacity", "players", "envs", "first", "next", "reward", "acted", "terminated", "learning", "learnable",
        "drawable_count", "open", "seen", "entries", "entry_time", "unused", "num_unused",
        "turn", "over", "cut", "shown", "chosen")  # fmt: skip
_LISTS = ("shown_from", "shown_to", "shown_size", "final_from", "final_to", "chosen_from", "chosen_to", "chosen_size")
ROWS = np.dtype([(name, np.int64) for name in _ONE] + [(name, np.int64, (MOST_COLUMNS,)) for name in _LISTS])
"""Arguments of the ring kernel: numbers, and addresses of a ring's arrays and of those of a Step.

first: the group's first player.  open, seen: the ring's open rows, and its turns of the newest row.
entries, entry_time, unused, num_unused: the number of entries of the end table, and its arrays.
turn: turns of the Step.  over, cut: its players that are terminated and truncated, from the group's first one on.
shown: the number of columns filled from a Step.  chosen: the number of columns filled from a decision.  Of each column:
the address of its source [P, E, ...] (`_from`), its own address [P, C, E, ...] (`_to`), and the bytes of one player's
batch step (`_size`).  final_from, final_to: the final values [P, E, ...] of a shown column, and their column [N, ...]
in the end table.
"""


def takes(ring: Ring) -> bool:
    """Return whether compiled code can write the rows of a ring."""
    columns = len(ring.obs) + (ring.legal is not None), 1 + len(ring.extras)
    return ring.deepest == 1 and isinstance(ring.players, slice) and max(columns) <= MOST_COLUMNS


def ring_record(ring: Ring, step: Step, action: Array, extras: dict[str, Array]) -> Array:
    """Return [1] ROWS for a ring whose rows come from these arrays.

    It is valid until the ring or its end table grows; but `Ring` may have another array `open` after each step.
    """
    record = np.zeros(1, ROWS)
    t, group, ends = record[0], ring.index, ring.ends
    t["players"], t["capacity"], t["envs"] = ring.axes
    t["first"], t["seen"], t["turn"] = ring.group.players[0], address_of(ring.turn), address_of(step.turn[group])
    for name in ("next", "reward", "acted", "terminated", "learning", "learnable", "drawable_count", "open"):
        t[name] = address_of(getattr(ring, name))
    t["over"], t["cut"] = address_of(step.terminated[t["first"] :]), address_of(step.truncated[t["first"] :])
    t["entries"], t["entry_time"] = len(ends.time), address_of(ends.time)
    t["unused"], t["num_unused"] = address_of(ends.unused), address_of(ends.num_unused)
    final = ring.stored(step.final_obs[group])
    shown = [
        (array, ring.obs[name], final[name], ends.obs[name]) for name, array in ring.stored(step.obs[group]).items()
    ]
    legal, final_legal = step.legal[group], step.final_legal[group]
    if ring.legal is not None and legal is not None and final_legal is not None and ends.legal is not None:
        shown.append((legal, ring.legal, final_legal, ends.legal))
    for i, arrays in enumerate(shown):
        for name, array in zip(("shown_from", "shown_to", "final_from", "final_to"), arrays, strict=True):
            t[name][i] = address_of(array)
        t["shown_size"][i] = arrays[1][0, 0].nbytes
    chosen = [(action, ring.action), *((extras[name], column) for name, column in ring.extras.items())]
    for i, (source, column) in enumerate(chosen):
        t["chosen_from"][i], t["chosen_to"][i] = address_of(source), address_of(column)
        t["chosen_size"][i] = column[0, 0].nbytes
    t["shown"], t["chosen"] = len(shown), len(chosen)
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
    for p in range(r.players):
        acted, turn = bools(r.acted + (p * r.capacity + slot) * r.envs, r.envs), bools(r.turn + p * r.envs, r.envs)
        opened = i64(r.open + 8 * p * r.envs, r.envs)
        for e in range(low, high):
            acted[e] = turn[e]
            opened[e] = time if turn[e] else opened[e]


@compiled
def note_learning(r: Any, time: int) -> None:
    """Write to the row of batch step `time` which players' seats learn, after `record_actions` in all environments."""
    learning, learnable = bools(r.learning, r.players), bools(r.learnable, r.players * r.capacity)
    for p in range(r.players):
        learnable[p * r.capacity + time % r.capacity] = learning[p]


@compiled
def copy_envs(r: Any, source: int, target: int, size: int, slot: int, low: int, high: int) -> None:
    """Copy the numbers [P, E, ...] of environments `low` to `high` to row `slot` of a column, `size` bytes a player."""
    first, length = low * (size // r.envs), (high - low) * (size // r.envs)
    for p in range(r.players):
        copy(source + p * size + first, target + (p * r.capacity + slot) * size + first, length)


@compiled
def fits(r: Any, time: int) -> bool:
    """Return whether the row of batch step `time` overwrites no open row, and the end table has enough entries."""
    size, oldest = r.players * r.envs, time - r.capacity
    opened, turn = i64(r.open, size), bools(r.turn, size)
    over, cut = bools(r.over, size), bools(r.cut, size)
    ends, kept = 0, 0
    for i in range(size):
        ended = over[i] | cut[i]
        ends += ended & (opened[i] >= 0)
        kept += (opened[i] == oldest) & (not (turn[i] | ended))
    return ends <= i64(r.num_unused, 1)[0] and (kept == 0 or oldest < 0)


@compiled
def settle_ends(r: Any, time: int) -> None:
    """Link the open rows of players whose part ended in the Step of `time` to entries of the end table.

    Then free the entries of the rows that the row of `time` overwrites. Entries are those of `EndTable.add`.
    """
    size = r.players * r.envs
    opened, following = i64(r.open, size), i64(r.next, size * r.capacity)
    over, cut = bools(r.over, size), bools(r.cut, size)
    unused, number = i64(r.unused, r.entries), i64(r.num_unused, 1)
    ends = 0
    for i in range(size):
        ends += (over[i] | cut[i]) & (opened[i] >= 0)
    if ends:
        number[0] -= ends
        place = number[0]
        for i in range(size):
            if (over[i] or cut[i]) and opened[i] >= 0:
                cell = (i // r.envs * r.capacity + opened[i] % r.capacity) * r.envs + i % r.envs
                following[cell] = -2 - unused[place]
                bools(r.terminated, cell + 1)[cell] = over[i]
                keep_final(r, i, unused[place], time)
                place += 1
    if time >= r.capacity:
        for p in range(r.players):
            for pointed in i64(r.next + 8 * (p * r.capacity + time % r.capacity) * r.envs, r.envs):
                if pointed < -1:
                    unused[number[0]] = -2 - pointed
                    number[0] += 1


@compiled
def keep_final(r: Any, i: int, entry: int, time: int) -> None:
    """Copy the final values of player and environment number `i` to an entry of the end table."""
    i64(r.entry_time, r.entries)[entry] = time
    for column in range(r.shown):
        width = r.shown_size[column] // r.envs
        copy(r.final_from[column] + i * width, r.final_to[column] + entry * width, width)


@compiled
def record_step(r: Any, time: int, rewards: int, low: int, high: int) -> None:
    """Add rewards [P_all, E] to the open rows, close those of players that act now; begin the row of `time`.

    `settle_ends` has closed the rows of players whose part ended. Only the environments `low` to `high` are written.
    """
    slot, last = time % r.capacity, (time - 1) % r.capacity
    learnable = bools(r.learnable, r.players * r.capacity)
    for p in range(r.players):
        row, begun, drawable = p * r.envs, (p * r.capacity + slot) * r.envs, 0
        opened, turn, seen = i64(r.open + 8 * row, r.envs), bools(r.turn + row, r.envs), bools(r.seen + row, r.envs)
        over, cut = bools(r.over + row, r.envs), bools(r.cut + row, r.envs)
        new_reward = f32(rewards + 4 * (r.first * r.envs + row), r.envs)
        reward = f32(r.reward + 4 * row * r.capacity, r.capacity * r.envs)
        following = i64(r.next + 8 * row * r.capacity, r.capacity * r.envs)
        for e in range(low, high):
            if opened[e] >= 0:
                place = last if opened[e] == time - 1 else opened[e] % r.capacity
                reward[place * r.envs + e] += new_reward[e]
                ended = over[e] or cut[e]
                if ended or turn[e]:
                    if not ended:
                        following[place * r.envs + e] = time
                    drawable += learnable[p * r.capacity + place]
                    opened[e] = -1
            seen[e] = turn[e]
        if time >= r.capacity:
            drawable -= learnable[p * r.capacity + slot] * closed_rows(r, begun, low, high)
        f32(r.reward + 4 * begun, r.envs)[low:high] = float32(0.0)
        bools(r.acted + begun, r.envs)[low:high] = False
        bools(r.terminated + begun, r.envs)[low:high] = False
        i64(r.next + 8 * begun, r.envs)[low:high] = -1
        add_at(r.drawable_count + 8 * p, drawable)
    for column in range(r.shown):
        copy_envs(r, r.shown_from[column], r.shown_to[column], r.shown_size[column], slot, low, high)


@compiled
def closed_rows(r: Any, first: int, low: int, high: int) -> int:
    """Return how many of a player's rows in a slot are closed; first: cell of environment 0."""
    closed = 0
    for pointed in i64(r.next + 8 * first, r.envs)[low:high]:
        closed += pointed != -1
    return closed
