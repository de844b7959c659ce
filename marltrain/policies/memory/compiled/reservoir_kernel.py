"""Takes decisions over into reservoirs in compiled code, and draws from them; see `memory.reservoir`."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import float32

from marltrain.core.layout import Array
from marltrain.jit.compiling import compiled, program
from marltrain.jit.views import address_of, bools, copy, f32, f64, i64, next_double, record_at
from marltrain.policies.memory.compiled import ring_kernel
from marltrain.policies.memory.compiled.replay_kernel import READING, below, copy_obs, reading_at
from marltrain.policies.memory.compiled.reservoir_places import place_for
from marltrain.policies.memory.reservoir import KEY, KEYS, LEGAL, Reservoir
from marltrain.policies.memory.ring import Ring

MOST_COLUMNS = ring_kernel.MOST_COLUMNS + 1
"""Those of a ring's Steps, and the actions."""
_ONE = ("players", "rows", "envs", "acted", "learning", "offers", "capacity", "held", "offered", "heap", "keys",
        "columns")  # fmt: skip
_LISTS = ("source", "target", "size")
RESERVOIR = np.dtype([(name, np.int64) for name in _ONE] + [(name, np.int64, (MOST_COLUMNS,)) for name in _LISTS])
"""Arguments of `offer`: numbers, and addresses of arrays of a ring and of its reservoir.

rows: the ring's capacity in batch steps.  acted, learning: of the ring.  offers: its column `KEY`.
capacity, held, offered, heap, keys: of the reservoir.
columns: number of further columns.  source, target: of each, its addresses in the ring [P, rows, E, ...] and in the
reservoir [P, capacity, ...].  size: bytes of a decision in them.
"""
KEPT = np.dtype([(name, np.int64) for name in (
    "capacity", "held", "offered", "player", "obs", "legal", "action", "to_obs", "to_legal", "to_action", "to_weight",
    "sizes",
)])  # fmt: skip
"""Arguments of `draw_kept`: addresses of arrays of a reservoir, and of the columns [K, B, ...] that are written.

capacity: of the reservoir.  player: work array [K, B] int64.  sizes: float64 [R, K], written for each round of updates:
the decisions that the agents' players hold.
"""


def offers(ring: Ring, held: Reservoir) -> Array:
    """Return [1] RESERVOIR for the decisions of a ring; it is valid until the ring grows."""
    record = np.zeros(1, RESERVOIR)
    q = record[0]
    q["players"], q["rows"], q["envs"] = ring.axes
    q["acted"], q["learning"], q["offers"] = map(address_of, (ring.acted, ring.learning, ring.extras[KEY]))
    q["capacity"] = held.capacity
    for name, array in {"held": held.held, "offered": held.offered, "heap": held.heap}.items():
        q[name] = address_of(array)
    q["keys"] = address_of(held.columns[KEYS])
    found = {f"obs/{name}": array for name, array in ring.obs.items()} | {"action": ring.action}
    if ring.legal is not None:
        found[LEGAL] = ring.legal
    columns = [(found[name], column) for name, column in held.columns.items() if name != KEYS]
    q["columns"] = len(columns)
    for i, (source, target) in enumerate(columns):
        q["source"][i], q["target"][i], q["size"][i] = address_of(source), address_of(target), target[0, 0].nbytes
    return record


@compiled
def offer(address: int, time: int) -> int:
    """Offer the decisions of batch step `time` to the reservoir of the RESERVOIR at an address; return 0."""
    q = record_at(address, RESERVOIR)
    learning, held, offered = bools(q.learning, q.players), i64(q.held, q.players), i64(q.offered, q.players)
    for p in range(q.players):
        first = (p * q.rows + time % q.rows) * q.envs
        acted, new = bools(q.acted + first, q.envs), f32(q.offers + 4 * first, q.envs)
        keys, heap = f32(q.keys + 4 * p * q.capacity, q.capacity), i64(q.heap + 8 * p * q.capacity, q.capacity)
        for e in range(q.envs):
            if learning[p] and acted[e] and new[e] > 0:
                place = place_for(new[e], keys, heap, held, offered, p)
                if place >= 0:
                    keep(q, first + e, p * q.capacity + place)
    return 0


@compiled
def keep(q: Any, cell: int, place: int) -> None:
    """Copy the decision at a cell of the ring to a place of the reservoir."""
    for i in range(q.columns):
        copy(q.source[i] + cell * q.size[i], q.target[i] + place * q.size[i], q.size[i])


@compiled
def draw_kept(address: int, reading: int, number: int) -> int:
    """Draw and read decisions for the KEPT and the READING at addresses, as `ReservoirReader.sample` does; return 0.

    number: of the round of updates.
    """
    q, r = record_at(address, KEPT), reading_at(reading)
    firsts, generators, bits = i64(r.first_seat, r.agents + 1), i64(r.generator, r.agents), i64(r.draw, r.agents)
    sizes = f64(q.sizes + 8 * number * r.agents, r.agents)
    for k in range(r.agents):
        seats = i64(r.seats + 8 * firsts[k], firsts[k + 1] - firsts[k])
        players, size, offered = i64(q.player + 8 * k * r.rows, r.rows), 0, 0
        for seat in seats:
            player = seat // (r.capacity * r.envs)
            size += i64(q.held, player + 1)[player]
            offered += i64(q.offered, player + 1)[player]
        sizes[k] = size
        f32(q.to_weight + 4 * k * r.rows, r.rows)[:] = float32(1.0 / r.rows if size else 0.0)
        players[:] = seats[0] // (r.capacity * r.envs)
        drawn = generators[k] != 0 and offered > 0
        if drawn and len(seats) > 1:
            choose_players(q, r, k, seats, offered)
        for i in range(r.rows):
            count = i64(q.held, players[i] + 1)[players[i]]
            place = below(bits[k], generators[k], count) if drawn and count > 1 else 0
            read_kept(q, r, k * r.rows + i, players[i], place)
    return 0


@compiled
def choose_players(q: Any, r: Any, k: int, seats: Any, offered: int) -> None:
    """Write the players of the decisions that agent k draws, as `numpy.random.Generator.choice`; seats: first cells."""
    players, total = i64(q.player + 8 * k * r.rows, r.rows), 0.0
    shares = np.empty(len(seats))
    for s in range(len(seats)):
        player = seats[s] // (r.capacity * r.envs)
        total += i64(q.offered, player + 1)[player] / offered
        shares[s] = total
    shares /= total
    for i in range(r.rows):
        random, s = next_double(i64(r.draw_double, r.agents)[k], i64(r.generator, r.agents)[k]), 0
        while shares[s] <= random:
            s += 1
        players[i] = seats[s] // (r.capacity * r.envs)


@compiled
def read_kept(q: Any, r: Any, row: int, player: int, place: int) -> None:
    """Write the decision at a place of a player's reservoir to a row."""
    place += player * q.capacity
    copy_obs(r, q.obs, place, player * r.capacity * r.envs, q.to_obs, row)
    copy(q.action + place * r.action_size, q.to_action + row * r.action_size, r.action_size)
    if r.legal:
        copy(q.legal + place * r.legal_size, q.to_legal + row * r.legal_size, r.legal_size)


@functools.cache
def offer_program() -> Any:
    """Return the compiled `offer`, from the disk cache if it is there."""
    return program(offer, RESERVOIR)


@functools.cache
def kept_program() -> Any:
    """Return the compiled `draw_kept`, from the disk cache if it is there."""
    return program(draw_kept, KEPT, READING)
