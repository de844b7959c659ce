"""Draws by priorities: a sum tree for each agent and player over the rows of the shared ring."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from marltrain.addresses import address_of
from marltrain.checks import finite
from marltrain.compiling import compiled, program
from marltrain.errors import AgentError, SaveError
from marltrain.layout import Array
from marltrain.policies.batch import Needs
from marltrain.policies.compiled.priority_kernel import (
    FAN,
    PRIORITIES,
    draw_rows,
    follow_ring,
    rebuild,
    set_priorities,
    share_out,
    trees_at,
    withdraw,
)
from marltrain.policies.learner.memory_numbers import MemoryNumbers
from marltrain.policies.memory.choice import Chosen, UniformChoice
from marltrain.policies.memory.config import Prioritised
from marltrain.policies.memory.ring import Ring
from marltrain.state import State

FOREVER = 2**62


class PrioritisedChoice(UniformChoice):
    """Choice of rows in proportion to priority ** alpha, see `Prioritised`.

    Priorities belong to rows: a row that overwrites another gets the initial priority once it is closed. The trees
    follow the ring when rows are counted, drawn or saved, not when they are written.
    """

    def __init__(self, ring: Ring, seats: Sequence[Array], needs: Needs, numbers: MemoryNumbers | None = None) -> None:
        """Allocate the trees; rows that are already in the ring get the initial priority."""
        super().__init__(ring, seats)
        replay = needs.replay
        if replay is None:
            raise TypeError("PrioritisedChoice needs Needs(replay=...)")
        self.numbers = MemoryNumbers(replay, "memory", len(seats)) if numbers is None else numbers
        own = replay.prioritised
        agents, self._weighted = len(seats), own is not None
        own = Prioritised() if own is None else own
        self.replay, self.largest = replay, np.ones(agents)
        self._alpha, self._beta = np.zeros(agents), np.zeros(agents)
        self._first, self._window = np.zeros(agents, np.int64), np.full(agents, FOREVER, np.int64)
        self._withdrawn: list[Array] = []  # numbers of rows
        kept: dict[str, Array] = {
            "player": self._players, "agent": np.repeat(np.arange(agents), [len(row) for row in seats]),
            "planes_from": np.append(self._firsts, len(self._players)), "largest": self.largest,
            "alpha": self._alpha, "beta": self._beta,
            "initial": np.full(agents, np.nan if own.initial is None else own.initial),
            "epsilon": np.full(agents, own.epsilon), "first": self._first, "window": self._window,
            "waiting": np.full(ring.open.shape, -1, np.int64),
        }  # fmt: skip
        self._kept = {name: np.ascontiguousarray(array) for name, array in kept.items()}
        self.record = np.zeros(1, PRIORITIES)
        self.address = address_of(self.record)
        t = self.record[0]
        t["planes"], t["players"], t["agents"] = len(self._players), len(ring.open), agents
        t["envs"], t["synced"] = ring.num_envs, -1
        t["clear"] = 0 if replay.clear_every is None else self._batch_steps(replay.clear_every)
        for name, array in self._kept.items():
            t[name] = address_of(array)
        self._made_for: Array | None = None
        self._trees: dict[str, Array] = {}
        self._allocate()
        self.set_numbers()
        ring.watch(self)

    # the interface of a choice

    def size(self) -> Array:
        """See `UniformChoice`."""
        self.follow()
        counts: Array = np.add.reduceat(self.held, self._firsts)
        return counts

    def draw(self, rngs: Sequence[np.random.Generator | None], available: Sequence[int], count: int) -> Chosen:
        """See `UniformChoice`; agent k takes `count` numbers in [0, 1) from `rngs[k]`."""
        self.follow()
        shape = len(rngs), count
        random, drawing = np.zeros(shape), np.zeros(len(rngs), bool)
        for k, (rng, n) in enumerate(zip(rngs, available, strict=True)):
            if rng and n:
                random[k], drawing[k] = rng.random(count), True
        cells, weight, rows = np.zeros(shape, np.int64), np.ones(shape, np.float32), np.full(shape, -1, np.int64)
        _draw()(self.address, drawing, random, cells, weight, rows)
        return Chosen(cells, weight, rows) if self._weighted else Chosen(cells)

    def learned(self, rows: Array, errors: Array, weight: Array) -> None:
        """Set the priorities of rows that were drawn, see `Chosen`, to their errors + epsilon.

        errors: [K, B] float32.  weight: [K, B]; rows of weight 0 are padding.
        Raises AgentError for an error that is not finite.
        """
        there = np.count_nonzero(weight, 1) > 0
        wrong = _learn()(self.address, there, rows, np.ascontiguousarray(errors, np.float32))
        if wrong >= 0:
            bad = errors[wrong][~(np.isfinite(errors[wrong]) & (errors[wrong] >= 0))]
            raise AgentError(
                f"priorities must be finite and at least 0, got the error {bad[0]} of a row of agent {wrong}. The loss "
                "says them (Phase(row_error=...), or the second result of a loss of your own): look for very large "
                "rewards or values"
            )

    def state(self) -> State:
        """Return the priorities [S, H, E] of the rows in the ring, oldest first, and the largest so far."""
        self.follow()
        return State(
            {}, {"priority": self._slots()[:, self.ring.held()], "largest": self.largest, "first": self._first}
        )

    def restore(self, state: State) -> None:
        """See `UniformChoice`; raises SaveError for priorities that are not those of the drawable rows."""
        ring, slots = self.ring, self.ring.held()
        self._allocate()
        saved = state.array("priority", np.float32, self._slots()[:, slots].shape)
        self.largest[...] = finite(state.place("largest"), state.array("largest", np.float64, self.largest.shape))
        self._first[...] = state.array("first", np.int64, self._first.shape)
        finite(state.place("priority"), saved)
        times = np.arange(ring.oldest, ring.now + 1)[:, None]
        cells = (self._players[:, None, None] * ring.capacity + times % ring.capacity) * ring.num_envs
        may = ring.drawable(cells + np.arange(ring.num_envs))
        may &= times >= self._first[self._kept["agent"]][:, None, None]
        if ((saved > 0) != may).any() or (saved < 0).any():
            raise SaveError(
                f"{state.place('priority')} must be positive for the rows that can be drawn, and for no others"
            )
        self._slots()[:, slots] = saved
        self.record["synced"] = ring.now
        self._wait()
        _rebuild()(self.address)

    # following the ring

    @property
    def held(self) -> Array:
        """Number of rows with a priority of each plane, [S] int64."""
        return self._trees["held"]

    @property
    def nbytes(self) -> int:
        """Bytes of the trees."""
        return sum(array.nbytes for array in self._trees.values())

    def follow(self) -> None:
        """Follow the ring: overwritten and withdrawn rows lose their priorities, new ones get the initial one."""
        ring, record = self.ring, self.record[0]
        if self._made_for is not ring.next:
            self._fit()
        self._set_window()
        if record["synced"] != ring.now:
            _follow()(self.address, ring.now)
            self._wait()
        if self._withdrawn:
            rows, self._withdrawn = np.concatenate(self._withdrawn), []
            _withdraw()(self.address, rows)
        self.set_numbers()

    def _set_window(self) -> None:
        """Compute each agent's window in batch steps; raises AgentError for a function that keeps nothing."""
        replay, decide = self.replay, self.replay.window_function
        if decide is not None:
            for k, first in enumerate(self._first.tolist()):
                held = (self.ring.now - max(first, self.ring.oldest)) * self.ring.num_envs
                kept = decide(held) if held else 1
                if not isinstance(kept, int | float | np.integer | np.floating) or not kept >= 1:
                    raise AgentError(
                        f"memory: window({held}) must return the number of env steps to keep, at least 1, got {kept!r}"
                    )
                self._window[k] = self._batch_steps(float(kept))
        elif replay.window is not None:
            for k, value in enumerate(self.numbers.values("window").tolist()):
                self._window[k] = self._batch_steps(value * (replay.capacity or 1) if value <= 1 else value)

    def _batch_steps(self, env_steps: float) -> int:
        """Return a number of env steps as batch steps, rounded up, at least 1."""
        return max(1, math.ceil(min(env_steps, FOREVER) / self.ring.num_envs))

    def _wait(self) -> None:
        """Note the rows that are still open: they get a priority once they are closed."""
        self._kept["waiting"][...] = np.where(self.ring.open < self.ring.now, self.ring.open, -1)

    def set_numbers(self) -> None:
        """Copy the agents' current numbers; a new alpha changes all leaves."""
        if not self._weighted:
            return
        self._beta[...] = self.numbers.values("beta")
        alpha = self.numbers.values("alpha")
        if (alpha != self._alpha).any():
            self._alpha[...] = alpha
            _rebuild()(self.address)

    def withdrawn(self, rows: Array) -> None:
        """Note rows that can no longer be drawn although they are not overwritten; see `Ring.watch`."""
        self._withdrawn.append(rows)

    def _slots(self) -> Array:
        """Return the priorities as a view [S, C, E]."""
        cells = self.ring.capacity * self.ring.num_envs
        view: Array = self._trees["priority"][:, :cells].reshape(len(self._players), -1, self.ring.num_envs)
        return view

    def _allocate(self) -> None:
        """Allocate empty trees for the capacity of the ring."""
        ring, planes, t = self.ring, len(self._players), self.record[0]
        leaves = nodes = _padded(ring.capacity * ring.num_envs)
        starts: list[int] = []
        sums = 0
        while not starts or nodes > FAN:
            nodes = _padded(nodes // FAN)
            starts.append(sums)
            sums += nodes
        t["capacity"], t["leaves"], t["levels"], t["nodes"] = ring.capacity, leaves, len(starts), sums
        t["start"][: len(starts)] = starts
        self._trees = {
            "priority": np.zeros((planes, leaves), np.float32), "leaf": np.zeros((planes, leaves), np.float32),
            "sums": np.zeros((planes, sums)), "total": np.zeros(planes), "held": np.zeros(planes, np.int64),
        }  # fmt: skip
        for name, array in self._trees.items():
            t[name] = address_of(array)
        self._adopt()

    def _adopt(self) -> None:
        ring, t = self.ring, self.record[0]
        self._made_for = ring.next
        t["next"], t["learnable"] = address_of(ring.next), address_of(ring.learnable)
        t["complete"] = 0 if ring.complete is None else address_of(ring.complete)

    def _fit(self) -> None:
        """Move the priorities to trees of the ring's new capacity; every row keeps its time."""
        before, ring, synced = int(self.record[0]["capacity"]), self.ring, int(self.record[0]["synced"])
        if before == ring.capacity:
            self._adopt()
            return
        old = self._trees["priority"][:, : before * ring.num_envs].reshape(len(self._players), before, ring.num_envs)
        times = np.arange(max(ring.oldest, synced - before + 1), synced + 1)
        self._allocate()
        self._slots()[:, times % ring.capacity] = old[:, times % before]
        _rebuild()(self.address)


def importance(weight: Array) -> tuple[Array, Array]:
    """Return importance weights [K, B] float32 scaled to a sum of 1, and their means [K] float32.

    A loss with the former, times the latter, is the sum of w_i l_i / B. Rows of weight 0 are padding and not counted.
    """
    shares, scale = np.zeros_like(weight), np.zeros(len(weight), np.float32)
    _share()(weight, shares, scale)
    return shares, scale


def _padded(count: int) -> int:
    return -(-count // FAN) * FAN


@compiled
def follow_once(address: int, now: int) -> None:
    """Follow the ring to batch step `now`."""
    follow_ring(trees_at(address), now)


@compiled
def rebuild_once(address: int) -> None:
    """Compute everything from the priorities."""
    rebuild(trees_at(address))


@compiled
def draw_once(address: int, drawing: Any, random: Any, cells: Any, weights: Any, rows: Any) -> None:
    """Draw the rows of the agents that are drawing, [K] bool; see `draw_rows` for the arrays [K, B]."""
    t = trees_at(address)
    for k in range(len(drawing)):
        if drawing[k]:
            draw_rows(t, k, random[k], cells[k], weights[k], rows[k])


@compiled
def learn_once(address: int, there: Any, rows: Any, errors: Any) -> int:
    """Set the priorities of the agents' rows; return the first agent with an error that is not finite, or -1."""
    t = trees_at(address)
    for k in range(len(there)):
        if there[k] and not set_priorities(t, k, rows[k], errors[k]):
            return k
    return -1


@compiled
def withdraw_once(address: int, rows: Any) -> None:
    """Remove the priorities of rows in all trees."""
    t = trees_at(address)
    for row in rows:
        withdraw(t, row)


@functools.cache
def _follow() -> Any:
    return program(follow_once, PRIORITIES)


@functools.cache
def _rebuild() -> Any:
    return program(rebuild_once, PRIORITIES)


@functools.cache
def _draw() -> Any:
    return program(draw_once, PRIORITIES)


@functools.cache
def _learn() -> Any:
    return program(learn_once, PRIORITIES)


@compiled
def share_once(weight: Any, shares: Any, scale: Any) -> None:
    """Call `share_out` for K agents."""
    for k in range(len(weight)):
        scale[k] = share_out(weight[k], shares[k])


@functools.cache
def _share() -> Any:
    return program(share_once)


@functools.cache
def _withdraw() -> Any:
    return program(withdraw_once, PRIORITIES)
