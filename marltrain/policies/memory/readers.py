"""Readers of the streams: uniform samples of the past, or each row once, as a rollout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from marltrain.checks import within
from marltrain.errors import AgentError, ConfigError
from marltrain.files import State
from marltrain.layout import Array, Obs
from marltrain.policies.batch import Needs, Rollout, Transitions
from marltrain.policies.memory.ring import Ring

SCAN_BELOW = 32  # times the batch size: with fewer rows to draw, listing them is cheaper than trying cells


class Reader:
    """A view of one group's ring for K agents; agent k reads the players `seats[k]` (rows within the group)."""

    def __init__(self, ring: Ring, seats: Sequence[Sequence[int]], needs: Needs) -> None:
        """Read `needs.columns` beside what every batch holds."""
        self.ring, self.needs = ring, needs
        self.seats = [np.array(row, np.int64) for row in seats]
        self._players = np.concatenate(self.seats)
        self._firsts = np.cumsum([0, *(len(row) for row in self.seats[:-1])])

    def size(self) -> Array:
        """Return how many rows are to be had now, [K] int64."""
        counts: Array = np.add.reduceat(self.ring.whole[self._players], self._firsts)
        return counts

    def sample(self, rngs: Sequence[np.random.Generator | None], gamma: Array, batch_size: int) -> Any:
        """Draw a batch; see `UniformReader`. A rollout is taken instead."""
        raise TypeError(f"{type(self).__name__} draws no samples")

    def state(self) -> State:
        """Return what it remembers of its reading; nothing, unless a kind of reader does."""
        return State()

    def restore(self, state: State) -> None:
        """Go on reading where `state` was asked, on a ring that did so."""

    def _extras(self, cells: Array) -> dict[str, Array]:
        return {name: self.ring.read(self.ring.extras[name], cells) for name in self.needs.columns}


class UniformReader(Reader):
    """Transitions of up to n steps, drawn with replacement, uniformly over the rows that each agent may learn from.

    These are the whole rows of its players that were decided while the player's seat learned (`Streams.learning`).
    """

    def __init__(self, ring: Ring, seats: Sequence[Sequence[int]], needs: Needs) -> None:
        """Raise ConfigError unless at least one step is asked for."""
        if needs.n_step < 1:
            raise ConfigError(f"n_step must be at least 1, got {needs.n_step}")
        super().__init__(ring, seats, needs)

    def sample(self, rngs: Sequence[np.random.Generator | None], gamma: Array, batch_size: int) -> Transitions:
        """Draw [K, batch_size] transitions, agent k's with `rngs[k]`; gamma is [K].

        A transition sums up to n rewards of its player. It stops early at an end, before a decision whose outcome is
        not known yet, and before a decision made while the seat did not learn.
        An agent without a generator or without a row to draw gets padding; AgentError when all of them do.
        """
        available = np.where([rng is not None for rng in rngs], self.size(), 0)
        if not np.count_nonzero(available):
            raise AgentError("no agent of the learner has a whole row to learn from yet; ask `size()` first")
        cells = self._drawn(rngs, available.tolist(), batch_size)
        have = available > 0
        if np.count_nonzero(have) < len(have):
            cells[~have] = cells[have][0]
        weight = np.empty(cells.shape, np.float32)
        weight[...] = have[:, None]
        return self._transitions(cells, weight, np.asarray(gamma, np.float64))

    def _transitions(self, cells: Array, weight: Array, gamma: Array) -> Transitions:
        """Return the transitions that begin at cells [K, B]."""
        ring = self.ring
        last, pointers, reward, discount = self._walk(cells, gamma[:, None])
        next_obs, next_legal = ring.after(last, pointers)
        return Transitions(
            obs=ring.obs_at(cells), legal=ring.legal_at(cells), action=ring.read(ring.action, cells),
            reward=reward, discount=discount, weight=weight, extras=self._extras(cells),
            next_obs=next_obs, next_legal=next_legal, cells=cells,
        )  # fmt: skip

    def _drawn(self, rngs: Sequence[np.random.Generator | None], available: list[int], count: int) -> Array:
        """Return cells [K, count], uniform over each agent's rows that can be drawn; those of all are tried at once."""
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
        return cells

    def _every(self, k: int) -> Array:
        """Return all cells from which agent k may draw."""
        ring = self.ring
        rows = [p * ring.capacity + np.flatnonzero(ring.learnable[p, : ring.now + 1]) for p in self.seats[k]]
        cells: Array = (np.concatenate(rows)[:, None] * ring.num_envs + np.arange(ring.num_envs)).reshape(-1)
        return cells[ring.drawable(cells)]

    @property
    def _filled(self) -> int:
        """The cells in use of one player, which lie side by side."""
        return min(self.ring.now + 1, self.ring.capacity) * self.ring.num_envs

    def _tries(self, k: int, rng: np.random.Generator, available: int, count: int) -> Array:
        """Return cells of agent k, whole rows or not, among which `count` that can be drawn are to be expected."""
        cells = self._filled * len(self.seats[k])
        return self._cells_of(k, rng.integers(cells, size=int(1.1 * count * cells / available) + 8))

    def _cells_of(self, k: int, places: Array) -> Array:
        """Return the cells at places [n] among those in use of agent k's players, one player after another."""
        starts = self.seats[k] * (self.ring.capacity * self.ring.num_envs)
        if len(starts) == 1:
            return places + int(starts[0])
        cells: Array = starts[places // self._filled] + places % self._filled
        return cells

    def _walk(self, cells: Array, gamma: Array) -> tuple[Array, Array, Array, Array]:
        """Follow n decisions; return the last cells, their `next`, summed rewards and discounts, each [K, B]."""
        ring = self.ring
        pointers, reward = ring.read(ring.next, cells), ring.read(ring.reward, cells)
        steps = np.ones(cells.shape, np.int64)
        for i in range(1, self.needs.n_step):
            onward = ring.moved(cells, pointers)
            following = ring.read(ring.next, onward)
            go = (pointers >= 0) & (following != -1) & ring.may_learn(onward)
            if not go.any():
                break
            cells, pointers = np.where(go, onward, cells), np.where(go, following, pointers)
            reward = np.where(go, reward + gamma**i * ring.read(ring.reward, cells), reward)
            steps += go
        discount = np.where(ring.read(ring.terminated, cells), 0.0, gamma if self.needs.n_step == 1 else gamma**steps)
        return cells, pointers, reward.astype(np.float32), discount.astype(np.float32)


class RolloutReader(Reader):
    """Every row of the agents' players exactly once: those that became whole since the last rollout.

    earliest: no row of an earlier batch step will be taken.
    """

    def __init__(self, ring: Ring, seats: Sequence[Sequence[int]], needs: Needs) -> None:
        """Start with the decisions that come next."""
        super().__init__(ring, seats, needs)
        self._agent = np.repeat(np.arange(len(seats)), [len(row) for row in seats])
        self._since = np.full(len(self._players), ring.coming, np.int64)  # no earlier row of the seat will be taken
        self.earliest = ring.coming
        self._taken = ring.now  # rows that were whole by then have been taken
        ring.ask(self)

    def size(self) -> Array:
        """Return how many rows the next rollout would hold now, [K] int64."""
        seat, _ = self._fresh()
        return np.bincount(self._agent[seat], minlength=len(self.seats))

    def take(self, gamma: Array) -> Rollout:
        """Hand out the rollout and count its rows as taken; gamma is [K].

        Raises AgentError when it would be empty.
        """
        agent, found = self.claim()
        counts = np.bincount(agent, minlength=len(self.seats))
        valid = np.arange(counts.max()) < counts[:, None]
        cells = np.full(valid.shape, found[0])
        cells[valid] = found
        return self._rollout(cells, valid, np.asarray(gamma, np.float64)[:, None])

    def claim(self) -> tuple[Array, Array]:
        """Count the rollout's rows as taken; return (agent, cell) of each, in the rollout's order.

        Raises AgentError when there are none.
        """
        ring = self.ring
        seat, found = self._fresh()
        if len(found) == 0:
            raise AgentError("no row has become whole since the last rollout; ask `size()` first")
        self._taken = ring.now
        waiting = ring.open[self._players]
        self._since = np.maximum(self._since, np.where(waiting >= 0, waiting, ring.coming).min(1))
        self.earliest = int(self._since.min())
        return self._agent[seat], found

    def drop(self, k: int, seat: int | None = None) -> None:
        """Forget what agent k's players (or the one in `seats[k][seat]`) have decided so far: no rollout will hold it.

        While a seat does not learn, call this every batch step (it is cheap): its rows are protected otherwise.
        """
        own = np.flatnonzero(self._agent == k)
        self._since[own if seat is None else own[seat]] = self.ring.coming
        self.earliest = int(self._since.min())

    def state(self) -> State:
        """Return what has been handed out."""
        return State({"taken": self._taken}, {"since": self._since})

    def restore(self, state: State) -> None:
        """See Reader; raises SaveError for batch steps that the ring has not seen."""
        self._taken = state.count("taken", -1, self.ring.now)
        since = state.array("since", np.int64, self._since.shape)
        self._since[...] = within(state.place("since"), since, 0, self.ring.coming)
        self.earliest = int(self._since.min())

    def holds(self, time: int) -> bool:
        """Whether a row of batch step `time` is still to be taken, or holds a frame of one that is."""
        ring = self.ring
        depth = ring.frames.deepest
        if depth == 1 and time < self.earliest:
            return False
        times = np.full((len(self._players), ring.num_envs), time)
        starts = self._players[:, None] * ring.capacity
        for _ in range(depth):
            cells = (starts + times % ring.capacity) * ring.num_envs + np.arange(ring.num_envs)
            pointers = ring.read(ring.next, cells)
            unknown = (ring.open[self._players] == times) | (times > ring.now)
            fresh = (pointers != -1) & (ring.whole_since(pointers) > self._taken)
            if ((times >= self._since[:, None]) & (unknown | fresh)).any():
                return True
            times = np.where((times >= 0) & (pointers >= 0), pointers, -1)
        return False

    def _fresh(self) -> tuple[Array, Array]:
        """Return (seat, cell) of the rows to take: seat by seat, environment by environment, forward in time."""
        ring = self.ring
        times = np.arange(max(self.earliest, ring.oldest), ring.now)
        pointers = ring.next[self._players[:, None], times % ring.capacity]
        fresh = (pointers != -1) & (ring.whole_since(pointers) > self._taken)
        fresh &= (times >= self._since[:, None])[:, :, None]
        if ring.history is not None:  # frames may have gone before this reader began to protect them
            fresh &= ring.history.complete[self._players[:, None], times % ring.capacity]
        seat, env, i = np.nonzero(fresh.transpose(0, 2, 1))
        return seat, (self._players[seat] * ring.capacity + times[i] % ring.capacity) * ring.num_envs + env

    def _rollout(self, cells: Array, valid: Array, gamma: Array) -> Rollout:
        ring = self.ring
        pointers = ring.read(ring.next, cells)
        linked = np.zeros(cells.shape, bool)
        linked[:, :-1] = (pointers[:, :-1] >= 0) & (ring.moved(cells, pointers)[:, :-1] == cells[:, 1:])
        wanted = valid & ~linked
        boot_obs, boot_legal = self._boots(cells, pointers, wanted)
        terminated = ring.read(ring.terminated, cells)
        return Rollout(
            obs=ring.obs_at(cells), legal=ring.legal_at(cells), action=ring.read(ring.action, cells),
            reward=np.where(valid, ring.read(ring.reward, cells), np.float32(0)),
            discount=np.where(valid & ~terminated, gamma, 0.0).astype(np.float32), weight=valid.astype(np.float32),
            extras=self._extras(cells), cut=~linked, truncated=valid & (pointers < -1) & ~terminated,
            boot=np.where(wanted, np.cumsum(wanted, 1) - 1, -linked.astype(np.int64)),
            boot_obs=boot_obs, boot_legal=boot_legal,
        )  # fmt: skip

    def _boots(self, cells: Array, pointers: Array, wanted: Array) -> tuple[Obs, Array | None]:
        """Return what followed the rows that are `wanted`, [K, M, ...]; padded with copies of the first."""
        counts = wanted.sum(1)
        places = np.arange(counts.max()) < counts[:, None]
        asked, links = np.full(places.shape, cells[wanted][0]), np.full(places.shape, pointers[wanted][0])
        asked[places], links[places] = cells[wanted], pointers[wanted]
        return self.ring.after(asked, links)
