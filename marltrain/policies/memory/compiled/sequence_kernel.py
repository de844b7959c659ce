"""Sequences of transitions of one player, drawn and read in compiled code as `SequenceTransitionReader` does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import float32

from marltrain.core.layout import Array
from marltrain.jit.compiling import compiled
from marltrain.jit.views import address_of, bools, copy, f32, i64, record_at
from marltrain.policies.memory.compiled.replay_kernel import MOST_CELLS, draw
from marltrain.policies.memory.ring import Ring

_ONE = (
    "count", "length", "burn_in",  # N sequences of L rows of each agent, B = N * L; rows of the burn-in
    "first",  # [K, N] int64, written: the cells that are drawn
    "oldest", "acted",  # oldest batch step of the ring; [P, C, E] bool, its column
    "present", "begins",  # [K, B] bool, written: whether there is a row; whether it does not follow the one before it
    "weight", "share",  # [K, B] float32, written: 1 for rows that are learned from; the same with sums of 1
)  # fmt: skip
SEQUENCES = np.dtype([(name, np.int64) for name in _ONE])
"""Arguments of `draw_sequences`, beside a READING: numbers and addresses."""
EXTRAS = np.dtype([(name, np.int64) for name in ("source", "target", "size")])
"""An extra of rows: its column, where it is written, and the bytes of a row."""
_EXTRAS_BYTES = EXTRAS.itemsize


class Extras:
    """Arguments of compiled code that reads extras of rows, such as the carries of recurrent networks.

    columns: name of an extra -> [K, B, ...], written.  record: EXTRAS of each.
    """

    def __init__(self, ring: Ring, names: Sequence[str], shape: tuple[int, int]) -> None:
        """Allocate the columns; `refresh` writes the addresses of the ring.  shape: (K, B)."""
        self._ring = ring
        self.columns: dict[str, Array] = {}
        for name in names:
            stored = ring.extras[name]
            self.columns[name] = np.zeros((*shape, *stored.shape[3:]), stored.dtype)
        self.record = np.zeros(len(names), EXTRAS)

    def refresh(self) -> None:
        """Write the addresses of the ring's columns, which change when it grows."""
        for extra, (name, target) in zip(self.record, self.columns.items(), strict=True):
            source = self._ring.extras[name]
            extra["source"], extra["target"] = address_of(source), address_of(target)
            extra["size"] = source[0, 0, 0].nbytes


@compiled
def draw_sequences(q: Any, r: Any, now: int) -> None:
    """Draw the cells of sequences into a READING, and write which of them there are; now: the newest batch step."""
    rows, cells = r.rows, r.cells
    r.rows, r.cells = q.count, q.first
    draw(r, now)
    r.rows, r.cells = rows, cells
    generators, first = i64(r.generator, r.agents), i64(q.first, r.agents * q.count)
    for k in range(r.agents):
        for n in range(k * q.count, (k + 1) * q.count):
            lay_out(q, r, now, n * q.length, first[n], generators[k] != 0)
        share_out_rows(q.weight + 4 * k * rows, q.share + 4 * k * rows, rows)


@compiled
def lay_out(q: Any, r: Any, now: int, place: int, first: int, there: bool) -> None:
    """Write the cells of the sequence around cell `first` from place `place` on; there: whether it has any row."""
    cells, present = i64(r.cells + 8 * place, q.length), bools(q.present + place, q.length)
    following, learnable = i64(r.next, MOST_CELLS), bools(r.learnable, MOST_CELLS)
    cells[q.burn_in], present[q.burn_in] = first, there
    for j in range(q.burn_in + 1, q.length):
        cell, pointer = cells[j - 1], following[cells[j - 1]]
        onward = cell + (pointer % r.capacity - cell // r.envs % r.capacity) * r.envs
        goes = pointer >= 0 and following[onward] != -1 and learnable[onward // r.envs]
        present[j] = goes and present[j - 1]
        cells[j] = onward if present[j] else cell
    for j in range(q.burn_in - 1, -1, -1):
        cell = cells[j + 1]
        earlier = before(q, r, now, cell)
        drawable = following[earlier] != -1 and learnable[earlier // r.envs]
        present[j] = earlier != cell and drawable and present[j + 1]
        cells[j] = earlier
    begins, weights = bools(q.begins + place, q.length), f32(q.weight + 4 * place, q.length)
    for j in range(q.length):
        begins[j] = j == 0 or not present[j] or not present[j - 1]
        weights[j] = float32(1.0) if present[j] and j >= q.burn_in else float32(0.0)


@compiled
def before(q: Any, r: Any, now: int, cell: int) -> int:
    """Return the cell of the player's decision before that at `cell` in the same episode; `cell` without any."""
    following, acted = i64(r.next, MOST_CELLS), bools(q.acted, MOST_CELLS)
    slot = cell // r.envs % r.capacity
    time = now - (now - slot) % r.capacity
    for earlier in range(time - 1, max(q.oldest, now - r.capacity + 1) - 1, -1):
        there = cell + (earlier % r.capacity - slot) * r.envs
        if acted[there]:
            return there if following[there] == time else cell
    return cell


@compiled
def share_out_rows(weight: int, share: int, rows: int) -> None:
    """Write weights of 0 and 1 as shares of their sum; addresses of [rows] float32."""
    weights, shares, total = f32(weight, rows), f32(share, rows), float32(0.0)
    for i in range(rows):
        total += weights[i]
    total = max(total, float32(1e-8))
    for i in range(rows):
        shares[i] = weights[i] / total


@compiled
def read_extras(extras: int, count: int, cells: int, rows: int) -> None:
    """Write `count` extras of the rows at cells [rows]; extras: address of EXTRAS."""
    places = i64(cells, rows)
    for n in range(count):
        e = record_at(extras + _EXTRAS_BYTES * n, EXTRAS)
        for i in range(rows):
            copy(e.source + places[i] * e.size, e.target + i * e.size, e.size)
