"""The ring buffer of one group: each batch step is stored once and overwrites a row that is no longer needed.

See `rows` for the terms.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol
from weakref import ref

import numpy as np

from marltrain.core.errors import AgentError, MarlTrainError
from marltrain.core.layout import Array
from marltrain.core.spec import EnvSpec, Step
from marltrain.policies.memory.joint_actions import JointActions
from marltrain.policies.memory.mirror import Mirror
from marltrain.policies.memory.needs import Column
from marltrain.policies.memory.reservoir import Reservoir
from marltrain.policies.memory.rows import Rows
from marltrain.policies.memory.states import GlobalStates


class Holder(Protocol):
    """A reader that needs certain rows to stay in the ring, although they are not open.

    earliest: rows of earlier batch steps are not needed.
    """

    earliest: int

    def holds(self, time: int) -> bool:
        """Return whether the row of batch step `time` must stay in the ring."""


class Watcher(Protocol):
    """A choice of rows that must know which rows can no longer be drawn."""

    def withdrawn(self, rows: Array) -> None:
        """Note the numbers of rows, [n] int64; see `Ring.watch`."""


class Ring(Rows):
    """The rows of one group in the order of batch steps; see `frames.FrameRing` for stacked images.

    A row's reward is the sum of what `record_step` adds while the row is open. Its next observation is not copied: the
    pointer `next` names the row, or the entry of `ends`, that holds it, and `Rows.after` reads it there.

    coming: time of the next decisions; equal to `now` until `record_actions` is called.
    open: [P, E] int64, time of each player's open row; -1 for none.
    turn: [P, E] bool, the players that must act in the newest row.
    learning: [P] bool, whether transitions may be drawn from the next decisions.
    drawable_count: [P] int64, number of rows of each player that `drawable` accepts.
    goal_reward: the environment's function (achieved goals, desired goals, info) -> rewards, for hindsight; or None.
    states: the global states by the kind that learners ask for; the streams store them.
    joint, every: the reader of the actions of all players, and the rings of all groups, if a learner asks for these
        actions; the streams set them.
    mirrors: copies of the rows in the memories of GPUs, by the names of the devices.
    reservoir: takes over decisions that acts offer, if a learner has one; the streams set it.
    players: the group's indices among all players; a slice if they are consecutive.
    """

    def __init__(self, spec: EnvSpec, index: int, num_envs: int, rows: int, extras: Mapping[str, Column]) -> None:
        """Allocate `rows` closed rows of a simultaneous game, the newest row, and rows for earlier frames of stacks."""
        super().__init__(spec, index, num_envs, rows + self.deepest, extras)
        self.goal_reward: Callable[..., Any] | None = None
        self.states: Mapping[str, GlobalStates] = {}
        self.joint: JointActions | None = None
        self.every: Sequence[Ring] = ()
        self.reservoir: Reservoir | None = None
        self.mirrors: dict[str, Mirror] = {}
        group, self.coming = self.group, 0
        self._nothing_open = np.full((group.size, num_envs), -1, np.int64)
        self.open = self._nothing_open.copy()
        self.learning = np.ones(group.size, bool)
        self.drawable_count = np.zeros(group.size, np.int64)
        self._holders: list[ref[Holder]] = []
        self._watchers: list[ref[Watcher]] = []
        self.turn = np.zeros((group.size, num_envs), bool)
        self._everyone_turn = self._everyone_open = False
        low, high = group.players[0], group.players[-1] + 1
        self.players = slice(low, high) if high - low == group.size else np.array(group.players)

    def record_step(self, step: Step, reward: Array, part_ended: Array | None) -> None:
        """Add rewards to the open rows, close those of players that act now or whose part ended; begin the next row.

        reward, part_ended: [P_all, E] of all players; part_ended is None if no player's part of an episode ended.

        Example: players A and B act in turn until the episode ends at batch step 3.
        time 0, turn A:                 row 0 begins; A's decision opens it
        time 1, turn B, rewards 1, 0:   A's row 0 has reward 1 and stays open; B's decision opens row 1
        time 2, turn A, rewards 2, 5:   A's row 0 has reward 3 and next 2: closed; B's row 1 has reward 5, still open
        time 3, end, rewards 4, 6:      A's row 2 has reward 4, B's row 1 has reward 11; next of both is -2-k: closed
        """
        time, turn = self.now + 1, step.turn[self.index]
        everyone = np.count_nonzero(turn) == turn.size
        reward = reward[self.players]
        part_ended = None if part_ended is None else part_ended[self.players]
        was_open = self.open  # both cases below assign a new array to `open`; this one does not change
        if everyone and self._everyone_open:  # simultaneous game: the open rows are those of the last batch step
            last = self.now % self.capacity
            self.reward[:, last] = reward
            self.next[:, last] = time
            self.drawable_count += self._drawable_in(last) * self.learnable[:, last]
            self.open = self._nothing_open.copy()
        else:
            closes = turn if part_ended is None else turn | part_ended
            self._credit_and_link(time, closes, reward)
            self.open = np.where(closes, -1, was_open)
        if part_ended is not None:
            self._link_to_ends(time, step, part_ended, was_open)
        self._begin(time, step)
        self.turn[...] = turn
        self._everyone_turn = everyone
        self._everyone_open = False

    def record_actions(self, action: Array, extras: Mapping[str, Array]) -> None:
        """Store the actions and extras of the newest row; they count for players with `turn` True."""
        if self.coming != self.now:
            raise MarlTrainError(
                f"decisions of group {self.index} came twice for batch step {self.now}, or before any Step arrived; "
                "call record_step, then record_actions once for each recorded group, then step the environments"
            )
        slot = self.now % self.capacity
        self.action[:, slot] = action
        for name, column in self.extras.items():
            if name not in extras:
                raise AgentError(f"group {self.index}: the decision lacks the column {name!r}, which a learner needs")
            column[:, slot] = extras[name]
        self.acted[:, slot] = self.turn
        self.learnable[:, slot] = self.learning
        if self._everyone_turn:
            self.open.fill(self.now)
        else:
            np.copyto(self.open, self.now, where=self.turn)
        self._everyone_open = self._everyone_turn
        self.coming = self.now + 1
        if self.reservoir is not None:
            self.reservoir.offer(self, self.turn & self.learning[:, None])

    def register(self, holder: Holder) -> None:
        """Register a holder, by weak reference; the ring calls `holds` before it overwrites a row."""
        self._holders.append(ref(holder, self._holders.remove))

    def watch(self, watcher: Watcher) -> None:
        """Register a watcher, by weak reference, of rows that can no longer be drawn although they are not overwritten.

        The number of a row is (time * P + player) * E + environment.
        """
        self._watchers.append(ref(watcher, self._watchers.remove))

    def release(self) -> None:
        """Forget holders, watchers and mirrors: those of a run that has ended may live on in cycles of references."""
        self._holders, self._watchers, self.mirrors = [], [], {}

    def _withdraw(self, times: Array, player: Array, env: Array) -> None:
        """Tell the watchers of rows [n] that were drawable and are no longer."""
        for reference in self._watchers:
            if (watcher := reference()) is not None:
                watcher.withdrawn((times * self.group.size + player) * self.num_envs + env)

    @property
    def room(self) -> int:
        """Number of rows that can begin before one overwrites a row that a reader may still need.

        The value is 0 if images are stacked: compiled code does not write such rows.
        """
        if self.deepest > 1:
            return 0
        held = [holder.earliest for reference in self._holders if (holder := reference()) is not None]
        return max(0, min([sys.maxsize, *(self.capacity + earliest - self.now - 1 for earliest in held)]))

    def advanced(self, decided: int, begun: int) -> None:
        """Update the counters after compiled code wrote rows; see `room`.

        decided: number of rows with decisions, from the newest row on.  begun: number of rows begun after it.
        `memory.compiled.ring_kernel` writes the rows, `open`, `turn` and `drawable_count`.
        """
        self.now += begun
        self.coming = self.now + (decided > begun)
        self.oldest = max(self.oldest, self.now - self.capacity + 1)
        self._everyone_turn = bool(self.turn.all())
        self._everyone_open = decided > begun and self._everyone_turn

    def abandon(self, envs: Array | None = None) -> None:
        """Abandon the open rows of all or some environments: they are never closed. Earlier rows remain drawable."""
        self.open[:, slice(None) if envs is None else envs] = -1
        self._everyone_open = False

    def restart(self, step: Step, envs: Array) -> None:
        """Abandon the running episodes of some environments; the first Step of new episodes replaces the newest row.

        Rows that point to the replaced row get `next` -1 and are never closed: their next observation is gone.
        """
        slot = self.now % self.capacity
        player, row, env = np.nonzero(self.next[:, :, envs] == self.now)
        cut = player, row, envs[env]
        self.drawable_count -= self._drawable_at(player, (player * self.capacity + row) * self.num_envs + envs[env])
        self.next[cut] = -1
        self._withdraw(self.now - (self.now - row) % self.capacity, player, envs[env])
        self.open[:, envs] = -1
        for name, array in self.stored(step.obs[self.index]).items():
            self.obs[name][:, slot, envs] = array[:, envs]
        legal = step.legal[self.index]
        if self.legal is not None and legal is not None:
            self.legal[:, slot, envs] = legal[:, envs]
        self.turn[:, envs] = step.turn[self.index][:, envs]
        self._everyone_turn, self._everyone_open = bool(self.turn.all()), False

    def load(
        self, capacity: int, now: int, oldest: int, rows: Mapping[str, Array], others: Mapping[str, Array]
    ) -> None:
        """Load saved contents into this empty ring.

        rows: columns [P, H, ...] of the H batch steps from `oldest` to `now`.  others: `open`, `turn`, and
        `whole`, the saved name of `drawable_count`.
        """
        while self.capacity < capacity:
            self._grow()
        self.now, self.coming, self.oldest = now, now, oldest
        slots = self.held()
        for name, column in self.columns.items():
            column[:, slots] = rows[name]
        self.open[...], self.drawable_count[...], self.turn[...] = others["open"], others["whole"], others["turn"]
        self._everyone_turn = bool(self.turn.all())

    def _credit_and_link(self, time: int, closes: Array, reward: Array) -> None:
        """Add `reward` [P, E] to all open rows; link those that close now, where `closes` [P, E], to batch step `time`.

        The general case of `record_step`. `_link_to_ends` then overwrites the pointers where a part ended.
        """
        player, env = np.nonzero(self.open >= 0)
        cells = self.cells(self.open)[player, env]
        self.reward.reshape(-1)[cells] += reward[player, env]
        closed = closes[player, env]
        player, cells = player[closed], cells[closed]
        self.next.reshape(-1)[cells] = time
        self.drawable_count += self._drawable_at(player, cells)

    def _link_to_ends(self, time: int, step: Step, part_ended: Array, was_open: Array) -> None:
        """Link the rows of players whose part ended to their final observations; was_open: [P, E], times of rows."""
        player, env = np.nonzero(part_ended & (was_open >= 0))
        if len(player) == 0:
            return
        obs, legal = step.final_obs[self.index], step.final_legal[self.index]
        entries = self.ends.add(self.stored(obs), legal, player, env, time)
        cells = self.cells(was_open)[player, env]
        self.next.reshape(-1)[cells] = -2 - entries
        self.terminated.reshape(-1)[cells] = step.terminated[self.players][player, env]

    def _begin(self, time: int, step: Step) -> None:
        """Begin the row of batch step `time` with the observations and legal actions of `step`."""
        if time >= self.capacity:
            if self._must_stay(time - self.capacity):
                self._grow()
            else:
                self._forget(time % self.capacity)
        slot = time % self.capacity
        self.now = self.coming = time
        self.oldest = max(self.oldest, time - self.capacity + 1)
        obs, legal = step.obs[self.index], step.legal[self.index]
        for name, array in self.stored(obs).items():
            self.obs[name][:, slot] = array
        if self.legal is not None:
            self.legal[:, slot] = legal

    def _must_stay(self, time: int) -> bool:
        if np.count_nonzero(self.open == time):
            return True
        holders = (reference() for reference in self._holders)
        return any(holder is not None and holder.holds(time) for holder in holders)

    def _forget(self, slot: int) -> None:
        """Clear the slot for a new row; uncount its drawable rows and free the entries of `ends` that they point to."""
        pointers = self.next[:, slot]
        if pointers.min() >= 0:  # every row is closed and has a next decision
            self.drawable_count -= self._drawable_in(slot) * self.learnable[:, slot]
        else:
            closed = pointers != -1
            drawable = closed if self.complete is None else closed & self.complete[:, slot]
            self.drawable_count -= drawable.sum(1) * self.learnable[:, slot]
            self.ends.free(-2 - pointers[pointers < -1])
            self.terminated[:, slot] = False
        self.reward[:, slot] = 0.0
        self.acted[:, slot] = False
        self.next[:, slot] = -1

    def _drawable_in(self, slot: int) -> int | Array:
        """Return how many rows of a slot each player can draw from if all are closed and learnable."""
        return self.num_envs if self.complete is None else self.complete[:, slot].sum(1)

    def _drawable_at(self, player: Array, cells: Array) -> Array:
        """Return how many of the rows at cells [n] of players [n] are drawable, for each player, [P]."""
        return np.bincount(player[self.drawable(cells)], minlength=len(self.drawable_count))
