"""Draws by priorities: a sum tree for each agent and player over the rows of the shared ring."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from marltrain.core.errors import AgentError, SaveError
from marltrain.core.layout import Array
from marltrain.jit.views import address_of
from marltrain.policies.memory.choice import Chosen, UniformChoice
from marltrain.policies.memory.compiled.priority_kernel import FAN, PRIORITIES
from marltrain.policies.memory.compiled.priority_programs import (
    draw_program,
    follow_program,
    keep_effective_program,
    learn_program,
    rebuild_program,
    share_program,
    withdraw_program,
)
from marltrain.policies.memory.config import Prioritized
from marltrain.policies.memory.memory_numbers import MemoryNumbers
from marltrain.policies.memory.needs import Needs
from marltrain.policies.memory.ring import Ring
from marltrain.policies.memory.windows import Windows
from marltrain.storage.checks import finite, within
from marltrain.storage.state import State

MOST = float(np.finfo(np.float32).max)
"""Largest priority of a row."""
DOUBLINGS = 16
"""Half-lives after which all leaves are computed anew, relative to a later batch step."""


class PrioritizedChoice(UniformChoice):
    """Choice of rows in proportion to priority ** alpha, see `Prioritized`, and by age, see `Replay`.

    Priorities belong to rows: a row that overwrites another gets the initial priority once it is closed. On-policy
    (`Needs.on_policy`) there is no initial priority, and a row can be drawn once its errors are known; off-policy with
    `Prioritized(initial="error")`, too, where `admit` gives the first error. The trees follow the ring when rows are
    counted, drawn or saved, not when they are written.

    weighted: whether rows have priorities and importance weights, or are drawn by age alone.
    """

    def __init__(self, ring: Ring, seats: Sequence[Array], needs: Needs, numbers: MemoryNumbers | None = None) -> None:
        """Allocate the trees; rows that are already in the ring get the initial priority."""
        super().__init__(ring, seats)
        replay = needs.replay
        if replay is None:
            raise TypeError("PrioritizedChoice needs Needs(replay=...)")
        self.numbers = MemoryNumbers(replay, "memory", len(seats)) if numbers is None else numbers
        own = replay.prioritized
        agents, self.weighted = len(seats), own is not None
        own = Prioritized() if own is None else own
        self.replay, self.largest = replay, np.ones(agents)
        self._alpha, self._beta, self._decay = np.zeros(agents), np.zeros(agents), np.zeros(agents)
        self._first, self._reference = np.zeros(agents, np.int64), np.zeros(agents, np.int64)
        self.windows = Windows(replay, self.numbers, ring.num_envs, agents)
        self._withdrawn: list[Array] = []  # numbers of rows
        kept: dict[str, Array] = {
            "player": self._players, "agent": np.repeat(np.arange(agents), [len(row) for row in seats]),
            "planes_from": np.append(self._firsts, len(self._players)), "largest": self.largest,
            "alpha": self._alpha, "beta": self._beta,
            "initial": np.full(agents, own.initial if isinstance(own.initial, float | int) else np.nan),
            "epsilon": np.full(agents, own.epsilon), "first": self._first, "window": self.windows.newest,
            "decay": self._decay, "reference": self._reference,
            "waiting": np.full(ring.open.shape, -1, np.int64),
        }  # fmt: skip
        self._kept = {name: np.ascontiguousarray(array) for name, array in kept.items()}
        self.record = np.zeros(1, PRIORITIES)
        self.address = address_of(self.record)
        t = self.record[0]
        t["planes"], t["players"], t["agents"] = len(self._players), len(ring.open), agents
        t["envs"], t["synced"] = ring.num_envs, -1
        t["by_errors"], t["clear"] = needs.on_policy or own.by_errors, self.windows.clear_every
        self._on_policy = needs.on_policy
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
        effective = np.ones(len(rngs))
        draw_program()(self.address, drawing, random, cells, weight, rows, effective)
        return Chosen(cells, weight, rows, effective) if self.weighted else Chosen(cells, effective=effective)

    def learned(self, rows: Array, errors: Array, weight: Array, *, admits: bool = False) -> None:
        """Set the priorities of rows that were drawn, see `Chosen`, to their errors + epsilon.

        errors: [K, B] float32.  weight: [K, B]; rows of weight 0 are padding.
        admits: whether rows without a priority get one, as on-policy.
        Raises AgentError for an error that is not finite.
        """
        there, admits = np.count_nonzero(weight, 1) > 0, admits or self._on_policy
        wrong = learn_program()(self.address, there, rows, np.ascontiguousarray(errors, np.float32), admits)
        if wrong >= 0:
            bad = errors[wrong][~(np.isfinite(errors[wrong]) & (errors[wrong] >= 0))]
            raise AgentError(
                f"priorities must be finite and at least 0, got the error {bad[0]} of a row of agent {wrong}. The loss "
                "says them (Phase(row_error=...), or the second result of a loss of your own): look for very large "
                "rewards or values"
            )

    def admit(self, agent: Array, numbers: Array, errors: Array) -> None:
        """See `UniformChoice`; raises AgentError for an error that is not finite."""
        counts = np.bincount(agent, minlength=len(self.seats))
        valid = np.arange(counts.max(initial=0)) < counts[:, None]
        rows, sizes = np.full(valid.shape, -1, np.int64), np.zeros(valid.shape, np.float32)
        rows[valid], sizes[valid] = numbers, errors
        self.learned(rows, sizes, valid, admits=True)

    def lacking(self) -> Array:
        """See `UniformChoice`; rows before the window of an agent count as those that have a priority."""
        ring, slots = self.ring, self.ring.held()
        lacks = np.zeros((ring.group.size, len(slots), ring.num_envs), bool)
        times = np.arange(ring.oldest, ring.now + 1)[:, None]
        for plane, (player, agent) in enumerate(zip(self._players, self._kept["agent"], strict=True)):
            lacks[player] |= (self._slots()[plane, slots] == 0) & (times >= self._first[agent])
        return lacks

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
        largest = state.array("largest", np.float64, self.largest.shape)
        self.largest[...] = within(state.place("largest"), largest, 1.0, MOST)  # it begins with 1, and only grows
        first = state.array("first", np.int64, self._first.shape)
        self._first[...] = within(state.place("first"), first, 0, ring.coming)
        finite(state.place("priority"), saved)
        times = np.arange(ring.oldest, ring.now + 1)[:, None]
        cells = (self._players[:, None, None] * ring.capacity + times % ring.capacity) * ring.num_envs
        may = ring.drawable(cells + np.arange(ring.num_envs))
        may &= times >= self._first[self._kept["agent"]][:, None, None]
        lacking = 0 if self.record[0]["by_errors"] else np.count_nonzero(may & (saved == 0))
        if lacking or ((saved > 0) & ~may).any() or (saved < 0).any():
            raise SaveError(
                f"{state.place('priority')} must be positive for the rows that can be drawn, and for no others"
            )
        self._slots()[:, slots] = saved
        self.record["synced"] = ring.now
        self.windows.restore(ring.now)
        self._wait()
        self.set_numbers()
        rebuild_program()(self.address)

    # rows of rollouts

    def rated(self, k: int, cells: Array) -> Array:
        """Return whether the rows of agent k at cells [n] have a priority."""
        size, planes = self.ring.capacity * self.ring.num_envs, int(self._firsts[k])
        plane = planes + np.argmax(self.seats[k][:, None] == cells // size, 0)
        there: Array = self._trees["priority"][plane, cells % size] > 0
        return there

    def numbers_of(self, cells: Array) -> Array:
        """Return the numbers of the rows at cells [n], see `Chosen`."""
        ring = self.ring
        env, slot = cells % ring.num_envs, cells // ring.num_envs % ring.capacity
        time, player = ring.now - (ring.now - slot) % ring.capacity, cells // (ring.capacity * ring.num_envs)
        numbers: Array = (time * len(ring.open) + player) * ring.num_envs + env
        return numbers

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
        if self.replay.window is not None:
            self.windows.set(ring.now, np.maximum(self._first, ring.oldest))
        outdated = self.set_numbers()
        record["open"] = address_of(ring.open)
        if record["synced"] != ring.now:
            follow_program()(self.address, ring.now)
        if outdated:
            rebuild_program()(self.address)
        if self._withdrawn:
            rows, self._withdrawn = np.concatenate(self._withdrawn), []
            withdraw_program()(self.address, rows)
        if self.replay.effective_share is not None and (due := self.windows.check(ring.now)) is not None:
            keep_effective_program()(self.address, self.numbers.values("effective_share"), *due)

    def _wait(self) -> None:
        """Note the rows that are still open: they get a priority once they are closed."""
        self._kept["waiting"][...] = np.where(self.ring.open < self.ring.now, self.ring.open, -1)

    def set_numbers(self) -> bool:
        """Copy the agents' current numbers; return whether all leaves must be computed anew.

        Instead of the leaves of old rows, those of new rows change with time: they grow, for `DOUBLINGS` half-lives.
        """
        changed: list[tuple[Array, Array]] = []
        if self.weighted:
            self._beta[...] = self.numbers.values("beta")
            changed.append((self._alpha, self.numbers.values("alpha")))
        if self.replay.half_life is not None:
            decay = self.ring.num_envs / self.numbers.values("half_life")
            span = np.maximum(DOUBLINGS // decay, 1).astype(np.int64)
            changed += [(self._decay, decay), (self._reference, max(self.ring.now, 0) // span * span)]
        outdated = any((old != new).any() for old, new in changed)
        for old, new in changed if outdated else ():
            old[...] = new
        return outdated

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
        leaves, starts, sums = _levels(ring.capacity * ring.num_envs)
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
        rebuild_program()(self.address)


def importance(weight: Array) -> tuple[Array, Array]:
    """Return importance weights [K, B] float32 scaled to a sum of 1, and their means [K] float32.

    A loss with the former, times the latter, is the sum of w_i l_i / B. Rows of weight 0 are padding and not counted.
    """
    shares, scale = np.zeros_like(weight), np.zeros(len(weight), np.float32)
    share_program()(weight, shares, scale)
    return shares, scale


def tree_size(cells: int) -> int:
    """Return the bytes of the tree over the cells of one player; see `PrioritizedChoice.nbytes`."""
    leaves, _, sums = _levels(cells)
    return 8 * leaves + 8 * sums + 16  # priority and leaf, sums, total and held


def _levels(cells: int) -> tuple[int, list[int], int]:
    """Return the leaves of a tree over `cells`, the first node of each level above them, and the number of nodes."""
    leaves = nodes = _padded(cells)
    starts: list[int] = []
    sums = 0
    while not starts or nodes > FAN:
        nodes = _padded(nodes // FAN)
        starts.append(sums)
        sums += nodes
    return leaves, starts, sums


def _padded(count: int) -> int:
    return -(-count // FAN) * FAN
