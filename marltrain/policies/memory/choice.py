"""Uniform choice of the rows with which transitions and sequences begin; see `priorities` for other choices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from marltrain.core.layout import Array
from marltrain.policies.memory.ring import Ring
from marltrain.storage.state import State

SCAN_BELOW = 32  # times the batch size; with fewer drawable rows, a list of them is cheaper than rejection sampling


class Chosen(NamedTuple):
    """Rows chosen for K agents.

    cells: [K, B] int64.  weight: [K, B] float32, importance weights; None: all 1.
    rows: [K, B] int64, row numbers that stay valid when rows are overwritten; None if the memory needs no errors.
    effective: [K] float64, the effective sample size 1 / sum of P(i)^2 of the law P (Kish 1965) as a share of its N
    rows. With draws from P, the mean of N P(i) over the drawn rows estimates its inverse. None: uniform draws.
    """

    cells: Array
    weight: Array | None = None
    rows: Array | None = None
    effective: Array | None = None


class UniformChoice:
    """Uniform choice, with replacement, among the drawable rows of each agent's players."""

    def __init__(self, ring: Ring, seats: Sequence[Array]) -> None:
        """Store the ring and the players that each agent reads."""
        self.ring, self.seats = ring, seats
        self._players = np.concatenate(seats)
        self._firsts = np.cumsum([0, *(len(row) for row in seats[:-1])])
        self._single = all(len(row) == 1 for row in seats)

    def size(self) -> Array:
        """Return the number of available rows, [K] int64."""
        counts: Array = self.ring.drawable_count[self._players]
        return counts if self._single else np.add.reduceat(counts, self._firsts)

    def draw(self, rngs: Sequence[np.random.Generator | None], available: Sequence[int], count: int) -> Chosen:
        """Draw `count` rows for each agent; candidates are checked together.

        available: [K] numbers of available rows; the cells of an agent without rows or generator are arbitrary.
        """
        cells = np.zeros((len(rngs), count), np.int64)
        drawing = [(k, rng, n) for k, (rng, n) in enumerate(zip(rngs, available, strict=True)) if rng and n]
        tried = {k: self._tries(k, rng, n, count) for k, rng, n in drawing if n >= SCAN_BELOW * count}
        known = self.ring.drawable(np.concatenate(list(tried.values()))) if tried else cells
        start = 0
        for k, rng, n in drawing:
            if k not in tried:
                cells[k] = self._every(k)[rng.integers(n, size=count)]
                continue
            places = tried[k]
            found = places[known[start : start + len(places)]]
            start += len(places)
            while len(found) < count:
                more = self._tries(k, rng, n, count - len(found))
                found = np.concatenate([found, more[self.ring.drawable(more)]])
            cells[k] = found[:count]
        return Chosen(cells)

    def follow(self) -> None:
        """Follow the ring; a uniform choice needs not."""

    def admit(self, agent: Array, numbers: Array, errors: Array) -> None:
        """Give rows their first priorities from their errors; a uniform choice has none.

        agent, numbers: [n] int64, of each error the agent, ascending, and the number of the row, see `Chosen`.
        """

    def lacking(self) -> Array:
        """Return whether rows in the ring lack a priority, [P, H, E] bool, oldest first; here none do."""
        ring = self.ring
        return np.zeros((ring.group.size, len(ring.held()), ring.num_envs), bool)

    def learned(self, rows: Array, errors: Array, weight: Array) -> None:
        """Receive the sizes of the rows' errors; a uniform choice ignores them."""

    def state(self) -> State:
        """Return the state of the choice; empty for a uniform one."""
        return State()

    def restore(self, state: State) -> None:
        """Restore the state that `state` returned; the ring must be restored first."""

    def _every(self, k: int) -> Array:
        """Return all drawable cells of agent k."""
        ring = self.ring
        rows = [p * ring.capacity + np.flatnonzero(ring.learnable[p, : ring.now + 1]) for p in self.seats[k]]
        cells: Array = (np.concatenate(rows)[:, None] * ring.num_envs + np.arange(ring.num_envs)).reshape(-1)
        return cells[ring.drawable(cells)]

    @property
    def _filled(self) -> int:
        """Number of cells in use per player; they are contiguous."""
        return min(self.ring.now + 1, self.ring.capacity) * self.ring.num_envs

    def _tries(self, k: int, rng: np.random.Generator, available: int, count: int) -> Array:
        """Return random candidate cells of agent k; about `count` of them are expected to be drawable."""
        cells = self._filled * len(self.seats[k])
        return self._cells_of(k, rng.integers(cells, size=int(1.1 * count * cells / available) + 8))

    def _cells_of(self, k: int, places: Array) -> Array:
        """Return the cells at indices [n] into the cells in use of agent k's players, player by player."""
        starts = self.seats[k] * (self.ring.capacity * self.ring.num_envs)
        if len(starts) == 1:
            return places + int(starts[0])
        cells: Array = starts[places // self._filled] + places % self._filled
        return cells
