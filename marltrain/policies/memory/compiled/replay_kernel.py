"""Draws and reads transitions from a ring buffer in compiled code."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import float32, float64

from marltrain.core.layout import VECTOR, Array
from marltrain.jit.compiling import compiled, program
from marltrain.jit.views import address_of, bools, copy, f32, f64, function_of, i64, next_bits, next_double, record_at
from marltrain.policies.batches.batch import Transitions
from marltrain.policies.memory.choice import SCAN_BELOW
from marltrain.policies.memory.compiled.priority_kernel import PRIORITIES, draw_rows, trees_at
from marltrain.policies.memory.memory_numbers import MemoryNumbers
from marltrain.policies.memory.needs import Needs
from marltrain.policies.memory.priorities import PrioritizedChoice
from marltrain.policies.memory.readers import Reader, UniformReader
from marltrain.policies.memory.ring import Ring
from marltrain.policies.memory.sequences import transition_reader

_RING = ("capacity", "envs", "obs", "legal", "action", "next", "reward", "terminated", "last_obs", "last_legal",
         "drawable_count", "learnable")  # fmt: skip
_SIZES = ("obs_size", "legal_size", "action_size")
_MADE = ("agents", "rows", "cells", "gamma", "to_obs", "to_legal", "to_action", "to_reward", "to_discount",
         "to_next_obs", "to_next_legal")  # fmt: skip
_PLACES = slice(len(_RING) + len(_SIZES), len(_RING) + len(_SIZES) + len(_MADE))
"""Position of `_MADE` among the fields."""
_READ = ("n_step", "hots", "hot")
_DRAWN = ("seats", "first_seat", "generator", "draw", "draw_double")
READING = np.dtype([(name, np.int64) for name in (*_RING, *_SIZES, *_MADE, *_READ, *_DRAWN)])
"""Arguments of `read` and `draw`: numbers and addresses.

They are the addresses of a ring's columns and of its final observations, the bytes of a row in them, and the addresses
of the results. Fields for `read`:
n_step: most rewards that are summed.  hots: values of the players' one-hots, 0 without them.
hot: [P] int64, the place of the 1 in the one-hot of each player, or -1.
Fields for `draw`:
seats: each player's first cell; those of agent k begin at index `first_seat[k]`.
generator, draw, draw_double: [K] int64, the addresses of a generator's state and of its functions for the next 32 bits
and for the next float64; 0 for an agent that draws no rows.
"""
MOST_CELLS = 2**31
"""Upper bound of the number of cells to draw from: its product with a 32-bit integer fits into 64 bits."""
_LOW = 2**32 - 1


def reads(ring: Ring, needs: Needs) -> bool:
    """Return whether compiled code supports these transitions: one observation array, nothing else."""
    plain = not needs.columns and needs.state is None and (not needs.identity or VECTOR in ring.obs)
    return ring.deepest == 1 and len(ring.obs) == 1 and plain


class Reading:
    """Arguments of compiled code that reads a reader's transitions from a ring; `reads` checks the ring.

    record: [1] READING, the arguments of `read` and `draw`.
    """

    def __init__(self, reader: Reader) -> None:
        """Allocate the record; `refresh` writes the ring's addresses."""
        self.ring = ring = reader.ring
        (self._name,) = ring.obs
        self.record = np.zeros(1, READING)
        self._hot = np.ascontiguousarray(reader.identities, np.int64)
        self._hots = len(reader.needs.identity)
        self.record["n_step"], self.record["hots"] = reader.needs.n_step, self._hots
        self.record["hot"] = address_of(self._hot)
        self._fields = self.record.view(np.int64)  # the same memory; a slice of it is written at once
        self.address = address_of(self.record)
        self._written: tuple[Array, Array] | None = None

    def new_transitions(self, agents: int, rows: int) -> Transitions:
        """Return uninitialized transitions [agents, rows], with weights of 1."""
        ring, shape = self.ring, (agents, rows)
        obs, legal = ring.obs[self._name], ring.legal
        row = (*shape, obs.shape[3] + self._hots) if self._hots else (*shape, *obs.shape[3:])
        masks = [None, None] if legal is None else [np.empty((*shape, legal.shape[3]), bool) for _ in range(2)]
        return Transitions(
            obs=np.empty(row, obs.dtype), legal=masks[0],
            action=np.empty((*shape, *ring.action.shape[3:]), ring.action.dtype),
            reward=np.empty(shape, np.float32), discount=np.empty(shape, np.float32),
            weight=np.ones(shape, np.float32), extras={}, next_obs=np.empty(row, obs.dtype), next_legal=masks[1],
            cells=np.empty(shape, np.int64),
        )  # fmt: skip

    def set_outputs(self, made: Any, gamma: Array) -> None:
        """Write the addresses of the transitions `made`, see `new_transitions`, and of the discounts [K] float64."""
        self.refresh()
        written = (made.cells, gamma, made.obs, made.legal, made.action, made.reward, made.discount, made.next_obs,
                   made.next_legal)  # fmt: skip
        places = [0 if array is None else address_of(array) for array in written]
        self._fields[_PLACES] = (*made.cells.shape, *places)

    def refresh(self) -> None:
        """Write the addresses of the ring's arrays; a ring that grows allocates new arrays."""
        ring = self.ring
        if self._written is not None and self._written[0] is ring.next and self._written[1] is ring.ends.time:
            return
        record = self.record[0]
        self._written = ring.next, ring.ends.time
        obs, last = ring.obs[self._name], ring.ends.obs[self._name]
        record["capacity"], record["envs"] = ring.capacity, ring.num_envs
        found = {"obs": obs, "action": ring.action, "next": ring.next, "reward": ring.reward, "last_obs": last}
        found |= {"terminated": ring.terminated, "drawable_count": ring.drawable_count, "learnable": ring.learnable}
        if ring.legal is not None and ring.ends.legal is not None:
            found |= {"legal": ring.legal, "last_legal": ring.ends.legal}
            record["legal_size"] = ring.legal[0, 0, 0].nbytes
        for name, array in found.items():
            record[name] = address_of(array)
        record["obs_size"], record["action_size"] = obs[0, 0, 0].nbytes, ring.action[0, 0, 0].nbytes


class CompiledReader(UniformReader):
    """A `UniformReader` in compiled code; it draws the same transitions, in one call unless a window alone chooses."""

    def __init__(
        self, ring: Ring, seats: Sequence[Sequence[int]], needs: Needs, numbers: MemoryNumbers | None = None
    ) -> None:
        """Take a ring for which `reads` is true."""
        super().__init__(ring, seats, needs, numbers)
        self._reading = Reading(self)
        self._draws = Draws(self, self._reading)

    def sample(self, rngs: Sequence[np.random.Generator | None], gamma: Array, batch_size: int) -> Transitions:
        """See UniformReader; batches with padding are drawn there."""
        trees = self.choice.address if isinstance(self.choice, PrioritizedChoice) and self.choice.weighted else 0
        able = self._draws.are_compiled or trees
        if self.mirrored is not None or None in rngs or not able or np.count_nonzero(self.size()) < len(rngs):
            return super().sample(rngs, gamma, batch_size)
        result, discounts = self._reading.new_transitions(len(rngs), batch_size), np.asarray(gamma, float)
        self._reading.set_outputs(result, discounts)
        self._draws.set_generators(rngs)
        if trees:
            result.rows, result.effective = np.empty(result.cells.shape, np.int64), np.empty(len(rngs))
            random = np.empty(result.cells.shape)
            _prioritized()(
                self._reading.address, trees, random, result.cells, result.weight, result.rows, result.effective
            )
        else:
            self._draws.refresh()
            _sampling()(self._reading.address, self.ring.now)
        return result

    def transitions(self, cells: Array, weight: Array, gamma: Array) -> Transitions:
        """See UniformReader."""
        if self.mirrored is not None:
            return super().transitions(cells, weight, gamma)
        result = self._reading.new_transitions(*cells.shape)
        result.cells, result.weight = cells, weight
        self._reading.set_outputs(result, gamma)
        _program()(self._reading.address)
        return result


class Draws:
    """Arguments, in addition to a Reading, of compiled code that draws cells as `UniformReader.sample` does."""

    def __init__(self, reader: UniformReader, reading: Reading) -> None:
        """Write each agent's players and the addresses of the arrays."""
        self.reader = reader
        self._first = np.cumsum([0, *map(len, reader.seats)])
        self._players, self._most_seats = np.concatenate(reader.seats), max(map(len, reader.seats))
        self._seats = np.zeros(len(self._players), np.int64)
        self._generators, self._bits, self._doubles = (np.zeros(len(reader.seats), np.int64) for _ in range(3))
        self._rngs: list[np.random.Generator | None] = []
        self._cells = -1
        arrays = self._seats, self._first, self._generators, self._bits, self._doubles
        reading.record[list(_DRAWN)] = tuple(map(address_of, arrays))

    def can_draw(self, drawing: Array) -> bool:
        """Return whether compiled code can draw rows for the agents that are `drawing`, [K] bool: each has some."""
        able = self.are_compiled or isinstance(self.reader.choice, PrioritizedChoice)
        return able and bool((self.reader.size()[drawing] > 0).all())

    @property
    def are_compiled(self) -> bool:
        """Whether `draw` makes the reader's draws: the choice is uniform, among fewer than `MOST_CELLS` cells."""
        ring = self.reader.ring
        uniform = not isinstance(self.reader.choice, PrioritizedChoice)
        return uniform and ring.capacity * ring.num_envs * self._most_seats < MOST_CELLS

    def set_generators(self, rngs: Sequence[np.random.Generator | None]) -> None:
        """Write the generators' addresses; an agent without generator draws no rows and reads an arbitrary row."""
        if len(rngs) == len(self._rngs) and all(map(operator.is_, rngs, self._rngs)):
            return
        self._rngs = list(rngs)  # keeps them alive: compiled code has only addresses
        for k, rng in enumerate(rngs):
            self._generators[k] = 0 if rng is None else rng.bit_generator.ctypes.state_address
            for functions, name in ((self._bits, "next_uint32"), (self._doubles, "next_double")):
                functions[k] = 0 if rng is None else function_of(rng, name)

    def refresh(self) -> None:
        """Write the players' first cells, which change when the ring grows."""
        ring = self.reader.ring
        if (cells := ring.capacity * ring.num_envs) != self._cells:
            self._cells = cells
            self._seats[...] = self._players * cells


def reader_of(
    ring: Ring, seats: Sequence[Sequence[int]], needs: Needs, numbers: MemoryNumbers | None = None
) -> UniformReader:
    """Return the fastest reader of transitions that supports the ring; for `numbers` see `UniformReader`."""
    usual = CompiledReader if reads(ring, needs) else UniformReader
    return transition_reader(needs, usual)(ring, seats, needs, numbers)


@compiled
def draw(r: Any, now: int) -> None:
    """Draw cells as `UniformChoice.draw` does; now: the batch step of the newest row."""
    filled = min(now + 1, r.capacity) * r.envs
    firsts = i64(r.first_seat, r.agents + 1)
    generators, bits = i64(r.generator, r.agents), i64(r.draw, r.agents)
    following, learnable, result = (
        i64(r.next, MOST_CELLS),
        bools(r.learnable, MOST_CELLS),
        i64(r.cells, MOST_CELLS),
    )
    for k in range(r.agents):
        starts, mine = i64(r.seats + 8 * firsts[k], firsts[k + 1] - firsts[k]), result[k * r.rows : (k + 1) * r.rows]
        if generators[k] == 0:
            mine[:] = starts[0]
            continue
        available = drawable(r, starts)
        if available < SCAN_BELOW * r.rows:
            listed = every(following, learnable, starts, filled, r.envs, available)
            for i in range(r.rows):
                mine[i] = listed[below(bits[k], generators[k], available) if available > 1 else 0]
            continue
        cells, found = filled * len(starts), 0
        while found < r.rows:
            for _ in range(int(1.1 * (r.rows - found) * cells / available) + 8):
                place = below(bits[k], generators[k], cells)
                cell = starts[place // filled] + place % filled
                if found < r.rows and following[cell] != -1 and learnable[cell // r.envs]:
                    mine[found] = cell
                    found += 1


@compiled
def every(following: Any, learnable: Any, starts: Any, filled: int, envs: int, count: int) -> Any:
    """Return the `count` drawable cells of the players whose cells begin at `starts`, in order."""
    listed, found = np.empty(count, np.int64), 0
    for start in starts:
        for cell in range(start, start + filled):
            if following[cell] != -1 and learnable[cell // envs]:
                listed[found] = cell
                found += 1
    return listed


@compiled
def drawable(r: Any, starts: Any) -> int:
    """Return the number of drawable rows of the players whose cells begin at `starts`."""
    player, found = r.capacity * r.envs, 0
    for start in starts:
        found += i64(r.drawable_count, start // player + 1)[start // player]
    return found


@compiled
def below(bits: int, generator: int, limit: int) -> int:
    """Return a random integer in [0, limit), limit < 2**31, equal to that of `numpy.random.Generator.integers`.

    Method: Lemire 2019 (arXiv:1805.10941), with 32 bits.
    """
    product = next_bits(bits, generator) * limit
    if product & _LOW < limit:
        threshold = (_LOW + 1 - limit) % limit
        while product & _LOW < threshold:
            product = next_bits(bits, generator) * limit
    return product >> 32


@compiled
def read(r: Any) -> None:
    """Write the transitions at all cells of a READING."""
    size = r.agents * r.rows
    cells, gamma = i64(r.cells, size), f64(r.gamma, r.agents)
    rewards, discounts = f32(r.to_reward, size), f32(r.to_discount, size)
    for i in range(size):
        last, rewards[i], discounts[i] = walk(r, cells[i], gamma[i // r.rows])
        read_row(r, i, cells[i], last)


@compiled
def read_row(r: Any, i: int, cell: int, last: int) -> None:
    """Write transition i: the decision at a cell, and the observation after the one at the cell `last`."""
    copy(r.action + cell * r.action_size, r.to_action + i * r.action_size, r.action_size)
    copy_obs(r, r.obs, cell, cell, r.to_obs, i)
    if r.legal:
        copy(r.legal + cell * r.legal_size, r.to_legal + i * r.legal_size, r.legal_size)
    followed = i64(r.next, last + 1)[last]
    if followed < -1:
        from_obs, from_legal, there = r.last_obs, r.last_legal, -2 - followed
    else:
        slot = last // r.envs % r.capacity
        from_obs, from_legal, there = r.obs, r.legal, last + (followed % r.capacity - slot) * r.envs
    copy_obs(r, from_obs, there, last, r.to_next_obs, i)
    if r.legal:
        copy(from_legal + there * r.legal_size, r.to_next_legal + i * r.legal_size, r.legal_size)


@compiled
def walk(r: Any, cell: int, gamma: float) -> tuple[int, Any, Any]:
    """Follow up to n decisions from a cell; return the last cell, the discounted sum of rewards, and the discount."""
    following, learnable = i64(r.next, MOST_CELLS), bools(r.learnable, MOST_CELLS)
    rewards = f32(r.reward, MOST_CELLS)
    total, factor = float64(rewards[cell]), gamma
    for _ in range(1, r.n_step):
        pointer = following[cell]
        onward = cell + (pointer % r.capacity - cell // r.envs % r.capacity) * r.envs
        if pointer < 0 or following[onward] == -1 or not learnable[onward // r.envs]:
            break
        cell = onward
        total, factor = total + factor * rewards[cell], factor * gamma
    ended = following[cell] < -1 and bools(r.terminated, cell + 1)[cell]
    return cell, float32(total), float32(0.0) if ended else float32(factor)


@compiled
def copy_obs(r: Any, source: int, place: int, cell: int, target: int, row: int) -> None:
    """Copy the observation at a place of `source` to a row of `target`, and add the one-hot of the player of `cell`."""
    start = target + row * (r.obs_size + 4 * r.hots)
    copy(source + place * r.obs_size, start, r.obs_size)
    if r.hots:
        hot, number = f32(start + r.obs_size, r.hots), cell // (r.capacity * r.envs)
        hot[:] = float32(0.0)
        one = i64(r.hot, number + 1)[number]
        if one >= 0:
            hot[one] = float32(1.0)


@compiled
def reading_at(address: int) -> Any:
    """Return the READING record at an address."""
    return record_at(address, READING)


@compiled
def read_once(address: int) -> None:
    """Write the transitions at all cells of the READING at an address."""
    read(reading_at(address))


@compiled
def sample_once(address: int, now: int) -> None:
    """Draw the cells of the READING at an address, and write the transitions at them."""
    draw(reading_at(address), now)
    read(reading_at(address))


@compiled
def sample_prioritized(
    address: int, trees: int, random: Any, cells: Any, weights: Any, rows: Any, effective: Any
) -> None:  # fmt: skip
    """Draw by the priorities of the trees at an address, as `PrioritizedChoice.draw`, and write the transitions.

    The arrays are those of `draw_rows` for K agents, [K, B]; `random` is a work array.  effective: [K].
    """
    r, t = reading_at(address), trees_at(trees)
    generators, doubles = i64(r.generator, r.agents), i64(r.draw_double, r.agents)
    for k in range(r.agents):
        for i in range(r.rows):
            random[k, i] = next_double(doubles[k], generators[k])
        effective[k] = draw_rows(t, k, random[k], cells[k], weights[k], rows[k])
    read(r)


@functools.cache
def _program() -> Any:
    return program(read_once, READING)


@functools.cache
def _prioritized() -> Any:
    return program(sample_prioritized, READING, PRIORITIES)


@functools.cache
def _sampling() -> Any:
    return program(sample_once, READING)
