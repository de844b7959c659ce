"""Readers of the streams: uniform samples (off-policy), or rollouts that hold each row once (on-policy)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from marltrain.core.errors import AgentError, ConfigError
from marltrain.core.layout import Array, Obs
from marltrain.policies.backends.row_memory import RowMemory
from marltrain.policies.batches.batch import Rollout, Transitions
from marltrain.policies.batches.player_one_hot import identified, numbers_of
from marltrain.policies.memory.choice import UniformChoice
from marltrain.policies.memory.initial_errors import InitialErrors, Rate
from marltrain.policies.memory.needs import Needs
from marltrain.policies.memory.ring import Ring
from marltrain.policies.memory.wide_columns import MirroredColumns, Wide, legal_where_not, zero_where_not
from marltrain.storage.checks import within
from marltrain.storage.state import State

if TYPE_CHECKING:
    from marltrain.policies.memory.memory_numbers import MemoryNumbers


class Reader:
    """A view of one group's ring for K agents; agent k reads the players `seats[k]` (indices within the group).

    rollouts: whether batches are rollouts, which `take` returns once, in place of samples.
    draws: whether rollouts also hold earlier rows, which `take` draws.
    mirrored: gathers wide columns of batches in the memory of a device, see `mirror`; None: they are arrays.
    """

    rollouts: ClassVar[bool] = False
    draws: ClassVar[bool] = False

    def __init__(self, ring: Ring, seats: Sequence[Sequence[int]], needs: Needs) -> None:
        """Store the ring, the seats and the needs; batches include the extras `needs.columns`."""
        self.ring, self.needs = ring, needs
        self.seats = [np.array(row, np.int64) for row in seats]
        self._players = np.concatenate(self.seats)
        self.identities = numbers_of(needs.identity, ring.names)
        self._joint = ring.joint if needs.joint_actions else None
        self.mirrored: MirroredColumns | None = None

    def size(self) -> Array:
        """Return the number of available rows, [K] int64."""
        raise TypeError(f"{type(self).__name__} must define size")

    def mirror(self, memory: RowMemory) -> None:
        """Gather the wide columns of all batches from now on in the memory of a device, as tensors."""
        self.mirrored = MirroredColumns(self.ring, self.needs, self.identities, memory)

    def admit(self) -> None:
        """Give new rows their first priority, if it is made from their own error; call it before `size`."""

    def check(self) -> None:
        """Raise AgentError if the memory holds a row that no batch may hold; else only the batch with it raises."""

    def sample(self, rngs: Sequence[np.random.Generator | None], gamma: Array, batch_size: int) -> Any:
        """Draw a batch; see `UniformReader.sample`. Readers of `rollouts` define `take` instead."""
        raise TypeError(f"{type(self).__name__} draws no samples")

    def take(self, gamma: Array, rngs: Sequence[np.random.Generator | None] = ()) -> Any:
        """Return a rollout; see `RolloutReader.take`."""
        raise TypeError(f"{type(self).__name__} takes no rollouts")

    def drop(self, k: int, seat: int | None = None) -> None:
        """Exclude past decisions from all rollouts; see `RolloutReader.drop`. Without rollouts there are none."""

    def learned(self, batch: Any) -> None:
        """Receive a batch after the update from it, with the rows' errors if the update has computed them."""

    def metrics(self) -> dict[str, Array]:
        """Return metrics [K] of the rows from which an update was made; none by default."""
        return {}

    def state(self) -> State:
        """Return the state of the reader; empty by default."""
        return State()

    def restore(self, state: State) -> None:
        """Restore the state that `state` returned; the ring must be restored first."""

    def _obs(self, cells: Array) -> Obs:
        """Return the observations at the decisions, [*cells.shape, *O]."""
        return self._identified(self.ring.obs_at(cells), cells)

    def _after(self, cells: Array, pointers: Array) -> tuple[Obs, Array | None]:
        """Return the observations and legal actions after rows whose `next` is `pointers`."""
        obs, legal = self.ring.after(cells, pointers)
        return self._identified(obs, cells), legal

    def _identified(self, obs: Obs, cells: Array) -> Obs:
        """Return observations of the players of rows with the players' one-hots, if the learner reads them."""
        ring, count = self.ring, len(self.needs.identity)
        if not count:
            return obs
        return identified(ring.group.layout, obs, self.identities[cells // (ring.capacity * ring.num_envs)], count)

    def _extras(self, cells: Array) -> dict[str, Array]:
        return {name: self.ring.read(self.ring.extras[name], cells) for name in self.needs.columns}

    def _wide(
        self, cells: Array, last: Array, pointers: Array, present: Array | None = None,
        next_present: Array | None = None,
    ) -> Wide:  # fmt: skip
        """Return the wide columns of rows at cells, and of what follows rows at `last` whose `next` is `pointers`.

        present, next_present: [N, B] bool; where they are False, observations are 0 and all actions legal.
        """
        if self.mirrored is not None:
            return self.mirrored.read(cells, last, pointers, present, next_present)
        ring = self.ring
        (obs, legal), (next_obs, next_legal) = (self._obs(cells), ring.legal_at(cells)), self._after(last, pointers)
        if present is not None:
            obs, legal = zero_where_not(present, obs), legal_where_not(present, legal)
        if next_present is not None:
            next_obs, next_legal = zero_where_not(next_present, next_obs), legal_where_not(next_present, next_legal)
        return Wide(obs, legal, ring.read(ring.action, cells), self._extras(cells), next_obs, next_legal)

    def _states(self, cells: Array, last: Array, pointers: Array) -> tuple[Any, Any]:
        """Return the global states at the decisions, and after rows; None unless the learner reads them."""
        need, ring = self.needs.state, self.ring
        if need is None:
            return None, None
        states = ring.states[need.kind]
        if self.mirrored is None:
            return states.at(ring, cells), states.after(ring, last, pointers)
        return self.mirrored.states(states.places_at(ring, cells), states.places_after(ring, last, pointers))

    def _others(self, cells: Array) -> Array | None:
        """Return the other players' actions at the decisions, [*cells.shape, J], if the learner reads them."""
        return None if self._joint is None else self._joint.of_others(self.ring, cells)

    def _rollout(self, cells: Array, valid: Array, linked: Array, gamma: Array) -> Rollout:
        """Return the rows at cells [K, B]; linked: [K, B] bool, whether the next row is the next decision of a row.

        gamma: [K] float64.
        """
        from marltrain.policies.memory.compiled.rollout_kernel import outcomes  # loads numba

        ring = self.ring
        reward, discount, truncated, boot, *after = outcomes(
            ring.next, ring.terminated, ring.reward, cells, valid, linked, gamma
        )
        wide, (state, boot_state) = self._wide(cells, *after), self._states(cells, *after)
        return Rollout(
            obs=wide.obs, legal=wide.legal, action=wide.action, reward=reward, discount=discount,
            weight=valid.astype(np.float32), extras=wide.extras, cut=~linked, truncated=truncated, boot=boot,
            boot_obs=wide.next_obs, boot_legal=wide.next_legal, state=state, boot_state=boot_state,
            others=self._others(cells),
        )  # fmt: skip


class UniformReader(Reader):
    """Reader of transitions of up to n steps; `choice` draws their first rows from those available to each agent.

    Available rows are closed, belong to the agent's players, and were decided while the player's seat learned
    (`Streams.learning`). By default they are drawn uniformly with replacement; see `Replay` for other choices.

    initial: makes the first priorities of rows from their errors; None without such priorities.
    """

    initial: InitialErrors | None = None

    def __init__(
        self, ring: Ring, seats: Sequence[Sequence[int]], needs: Needs, numbers: MemoryNumbers | None = None
    ) -> None:
        """Raise ConfigError if `needs.n_step` is below 1.

        numbers: the agents' settings of the memory that may change; None: those of `needs.replay`.
        """
        if needs.n_step < 1:
            raise ConfigError(f"n_step must be at least 1, got {needs.n_step}")
        super().__init__(ring, seats, needs)
        self.choice = choice_of(ring, self.seats, needs, numbers)
        self._ages = needs.replay is not None and needs.replay.ages

    def rate_new_rows(self, rate: Rate) -> None:
        """Make the first priorities of rows from their errors; rate: computes the errors."""
        self.initial = InitialErrors(self, rate)

    def admit(self) -> None:
        """See `Reader`."""
        if self.initial is not None:
            self.choice.follow()
            self.initial.known(self.choice.admit)

    def size(self) -> Array:
        """See `Reader`."""
        return self.choice.size()

    def metrics(self) -> dict[str, Array]:
        """Return the number of available rows as "memory_rows", if their age decides about draws."""
        return {"memory_rows": self.size().astype(np.float64)} if self._ages else {}

    def learned(self, batch: Transitions) -> None:
        """See `Reader`; the errors become the rows' priorities, if the choice has any."""
        if batch.rows is not None and batch.errors is not None:
            self.choice.learned(batch.rows, batch.errors, batch.weight)

    def state(self) -> State:
        """Return the state of the choice."""
        self.admit()  # errors that came from elsewhere are not saved
        return self.choice.state()

    def restore(self, state: State) -> None:
        """See `Reader`."""
        self.choice.restore(state)
        if self.initial is not None:
            self.initial.rows.begin_with(self.choice.lacking())

    def sample(self, rngs: Sequence[np.random.Generator | None], gamma: Array, batch_size: int) -> Transitions:
        """Draw transitions [K, batch_size]; agent k uses the generator `rngs[k]`.  gamma: [K].

        A transition sums up to n rewards of its player. It stops early at an end, before an open row, and before a
        decision made while the seat did not learn.
        An agent without a generator or without available rows gets padding. Raises AgentError if all agents do.
        """
        available = np.where([rng is not None for rng in rngs], self.size(), 0)
        if not np.count_nonzero(available):
            raise AgentError("no agent of the learner has a closed row to learn from yet; ask `size()` first")
        chosen = self.choice.draw(rngs, available.tolist(), batch_size)
        cells, importance = chosen.cells, chosen.weight
        have = available > 0
        if np.count_nonzero(have) < len(have):
            cells[~have] = cells[have][0]
        weight = np.empty(cells.shape, np.float32)
        weight[...] = have[:, None]
        result = self.transitions(
            cells, weight if importance is None else weight * importance, np.asarray(gamma, float)
        )
        result.rows, result.effective = chosen.rows, chosen.effective
        return result

    def transitions(self, cells: Array, weight: Array, gamma: Array) -> Transitions:
        """Return the transitions that begin at cells [K, B]."""
        last, pointers, reward, discount = self._walk(cells, gamma[:, None])
        wide, (state, next_state) = self._wide(cells, last, pointers), self._states(cells, last, pointers)
        return Transitions(
            **wide._asdict(), reward=reward, discount=discount, weight=weight, cells=cells, state=state,
            next_state=next_state,
        )  # fmt: skip

    def _walk(self, cells: Array, gamma: Array) -> tuple[Array, Array, Array, Array]:
        """Follow up to n decisions; return the last cells, their `next`, summed rewards and discounts, each [K, B]."""
        ring = self.ring
        pointers, reward = ring.read(ring.next, cells), ring.read(ring.reward, cells)
        steps = np.ones(cells.shape, np.int64)
        for i in range(1, self.needs.n_step):
            onward = ring.shifted(cells, pointers)
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
    """Reader that returns each row of the agents' players exactly once, in the first rollout after it was closed.

    earliest: no later rollout holds a row of a batch step before this one.
    """

    rollouts = True

    def __init__(self, ring: Ring, seats: Sequence[Sequence[int]], needs: Needs) -> None:
        """Start with the next decisions; earlier rows are not read."""
        super().__init__(ring, seats, needs)
        self._agent = np.repeat(np.arange(len(seats)), [len(row) for row in seats])
        own = [np.arange(len(row)) < len(row) // len(seats) for row in seats]  # shared: all seats of all agents
        self._own = np.concatenate(own) if needs.shared else None
        self._since = np.full(len(self._players), ring.coming, np.int64)  # rollouts skip earlier rows of the seat
        self.earliest = ring.coming
        self._taken = ring.now  # rows that were closed by this time have been taken
        for kept in (ring,) if self._joint is None else ring.every:
            kept.register(self)

    def size(self) -> Array:
        """Return the number of rows that `take` would return now, [K] int64."""
        from marltrain.policies.memory.compiled.rollout_kernel import count_fresh  # loads numba

        counts = np.zeros(len(self.seats), np.int64)
        count_fresh(counts, self._agent, self._asked())
        return counts

    def take(self, gamma: Array, rngs: Sequence[np.random.Generator | None] = ()) -> Rollout:
        """Return the rollout and mark its rows as taken.  gamma: [K].  rngs: K generators, if the reader `draws`.

        Raises AgentError if there are no rows.
        """
        seat, found = self.claim()
        result = self._packed(self._agent[seat], found, gamma)
        if self._own is not None:
            result.own = np.zeros(result.weight.shape, bool)
            result.own[result.weight > 0] = self._own[seat]
        return result

    def _packed(self, agent: Array, found: Array, gamma: Array) -> Rollout:
        """Return the rows at cells `found` [n] as a rollout; agent: [n], ascending.  gamma: [K]."""
        from marltrain.policies.memory.compiled.rollout_kernel import linked_rows  # loads numba

        counts, block = np.bincount(agent, minlength=len(self.seats)), self.needs.block or 1
        rows = -(-int(counts.max()) // block) * block
        cells, valid, linked = linked_rows(self.ring.next, found, counts, rows)
        return self._rollout(cells, valid, linked, np.asarray(gamma, np.float64))

    def claim(self) -> tuple[Array, Array]:
        """Mark the rollout's rows as taken; return (seat, cell) of each row, in the rollout's order.

        Raises AgentError if there are no rows.
        """
        ring = self.ring
        seat, found = self._fresh()
        if len(found) == 0:
            raise AgentError("no row was closed since the last rollout; ask `size()` first")
        self._taken = ring.now
        waiting = ring.open[self._players]
        self._since = np.maximum(self._since, np.where(waiting >= 0, waiting, ring.coming).min(1))
        self.earliest = int(self._since.min())
        return seat, found

    def drop(self, k: int, seat: int | None = None) -> None:
        """Exclude past decisions of agent k's players, or of the player `seats[k][seat]`, from all rollouts.

        Call it every batch step while a seat does not learn; otherwise its rows stay protected. The call is cheap.
        """
        own = np.flatnonzero(self._agent == k)
        self._since[own if seat is None else own[seat]] = self.ring.coming
        self.earliest = int(self._since.min())

    def state(self) -> State:
        """Return which rows have been taken."""
        return State({"taken": self._taken}, {"since": self._since})

    def restore(self, state: State) -> None:
        """See `Reader`; raises SaveError for batch steps later than those of the ring."""
        self._taken = state.count("taken", -1, self.ring.now)
        since = state.array("since", np.int64, self._since.shape)
        self._since[...] = within(state.place("since"), since, 0, self.ring.coming)
        self.earliest = int(self._since.min())

    def holds(self, time: int) -> bool:
        """Return whether a row of batch step `time` is not taken yet, or holds a frame of such a row."""
        ring = self.ring
        depth = ring.deepest
        if depth == 1 and time < self.earliest:
            return False
        times = np.full((len(self._players), ring.num_envs), time)
        starts = self._players[:, None] * ring.capacity
        for _ in range(depth):
            cells = (starts + times % ring.capacity) * ring.num_envs + np.arange(ring.num_envs)
            pointers = ring.read(ring.next, cells)
            unknown = (ring.open[self._players] == times) | (times > ring.now)
            fresh = (pointers != -1) & (ring.closed_at(pointers) > self._taken)
            if ((times >= self._since[:, None]) & (unknown | fresh)).any():
                return True
            times = np.where((times >= 0) & (pointers >= 0), pointers, -1)
        return False

    def _fresh(self) -> tuple[Array, Array]:
        """Return (seat, cell) of the rows to take, ordered by seat, then environment, then time."""
        from marltrain.policies.memory.compiled.rollout_kernel import fresh_rows  # loads numba

        found: tuple[Array, Array] = fresh_rows(*self._asked())
        return found

    def _asked(self) -> tuple[Any, ...]:
        """Return the arguments of `fresh_rows`."""
        ring = self.ring
        first = max(self.earliest, ring.oldest)
        return ring.next, ring.ends.time, ring.complete, self._players, self._since, first, ring.now, self._taken


def choice_of(ring: Ring, seats: Sequence[Array], needs: Needs, numbers: MemoryNumbers | None) -> UniformChoice:
    """Return the choice of first rows that `needs` asks for."""
    if needs.replay is None or needs.replay.uniform:
        return UniformChoice(ring, seats)
    from marltrain.policies.memory.priorities import PrioritizedChoice  # loads numba

    return PrioritizedChoice(ring, seats, needs, numbers)
