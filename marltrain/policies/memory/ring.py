"""The ring buffer of one group: observations, actions and rewards, each batch step stored once.

A row holds one decision and the reward until the player's next decision. The time of a row is the number of its batch
step, counted from the first recorded one. The row is in slot `time % C`. Pointers between rows are times, so they stay
valid when the ring grows. A cell is the flat index of one row of one player in one environment: the index into a
column's first three axes [P, C, E] flattened.

A row is open until the player's next decision or the end of its part in the episode. After that, the row is whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol
from weakref import ref

import numpy as np
from gymnasium import spaces

from marltrain.errors import AgentError, MarlTrainError
from marltrain.layout import Array, Obs
from marltrain.policies.batch import Column
from marltrain.policies.memory.ends import EndTable
from marltrain.policies.memory.frames import FrameHistory, Frames
from marltrain.spec import EnvSpec, Step


class Holder(Protocol):
    """A reader that needs certain rows to stay in the ring, although they are not open.

    earliest: rows of earlier batch steps are not needed.
    """

    earliest: int

    def holds(self, time: int) -> bool:
        """Return whether the row of batch step `time` must stay in the ring."""


class Ring:
    """The rows of one group, in columns [P, C, E, ...]: obs, legal, action, extras, reward, acted, next, terminated.

    now: time of the newest row, -1 before the first.
    coming: time of the next decisions; equal to `now` until `decided` is called.
    oldest: time of the oldest row in the ring.
    next: int64, time of the player's next decision; -1 while open; -2-k if its part ended, see entry k of `ends`.
    open: [P, E] int64, time of each player's open row; -1 for none.
    turn: [P, E] bool, the players that must act in the newest row.
    learning: [P] bool, whether transitions may be drawn from the next decisions.
    learnable: [P, C] bool, whether transitions may be drawn from the decisions of the batch step.
    whole: [P] int64, number of rows of each player that can be drawn.
    players: the group's indices among all players; a slice if they are consecutive.
    """

    def __init__(self, spec: EnvSpec, index: int, num_envs: int, rows: int, columns: Mapping[str, Column]) -> None:
        """Allocate `rows` whole rows of a simultaneous game, the newest row, and rows for earlier frames of stacks."""
        self.index, self.group, self.num_envs = index, spec.groups[index], num_envs
        group = self.group
        self.names = [spec.names[player] for player in group.players]
        self.frames = Frames(group.layout)
        self.capacity = rows + self.frames.deepest
        self.now, self.coming, self.oldest = -1, 0, 0
        self.obs = {name: self._column(shape, dtype) for name, (shape, dtype) in self.frames.shapes.items()}
        space = group.action_space
        masked = group.masked and isinstance(space, spaces.Discrete)
        self.legal = self._column((int(space.n),), bool) if masked else None  # type: ignore[attr-defined]
        self.action = self._column(group.action_shape, group.action_dtype)
        self.extras = {name: self._column(column.shape, column.dtype) for name, column in columns.items()}
        self.reward = self._column((), np.float32)
        self.acted = self._column((), bool)
        self.terminated = self._column((), bool)
        self.next = np.full(self.axes, -1, np.int64)
        self.history = FrameHistory(self) if self.frames.depths else None
        self.ends = EndTable(self.obs, self.legal)
        self._nothing_open = np.full((group.size, num_envs), -1, np.int64)
        self.open = self._nothing_open.copy()
        self.learning = np.ones(group.size, bool)
        self.learnable = np.ones((group.size, self.capacity), bool)
        self.whole = np.zeros(group.size, np.int64)
        self._holders: list[ref[Holder]] = []
        self.turn = np.zeros((group.size, num_envs), bool)
        self._everyone_turn = self._everyone_open = False
        low, high = group.players[0], group.players[-1] + 1
        self.players = slice(low, high) if high - low == group.size else np.array(group.players)

    @property
    def axes(self) -> tuple[int, int, int]:
        """(P, C, E), the leading axes of every column."""
        return self.group.size, self.capacity, self.num_envs

    @property
    def step_size(self) -> int:
        """Bytes per batch step."""
        return sum(column.nbytes for column in self.columns().values()) // self.capacity

    # Writing, in the order of a batch step.

    def arrived(self, step: Step, reward: Array, event: Array | None) -> None:
        """Add rewards and ends to the open rows, link them to the players' next decisions, and begin the next row.

        reward, event: [P_all, E] of all players; event is None if no player's part of an episode ended.
        """
        time, turn = self.now + 1, step.turn[self.index]
        everyone = np.count_nonzero(turn) == turn.size
        ended = None if event is None else event[self.players]
        before = self.open
        if everyone and self._everyone_open:  # simultaneous game: the open rows are those of the last batch step
            last = self.now % self.capacity
            self.reward[:, last] = reward[self.players]
            self.next[:, last] = time
            rows = self.num_envs if self.history is None else self.history.complete[:, last].sum(1)
            self.whole += rows * self.learnable[:, last]
            self.open = self._nothing_open.copy()
        else:
            self._settle(time, turn if ended is None else turn | ended, reward[self.players])
        if ended is not None:
            before = self._end(time, step, ended, before)
        self._begin(time, step, before)
        self.turn[...] = turn
        self._everyone_turn = everyone
        self._everyone_open = False

    def decided(self, action: Array, extras: Mapping[str, Array]) -> None:
        """Store the actions and extras of the newest row; they count for players with `turn` True."""
        if self.coming != self.now:
            raise MarlTrainError(
                f"decisions of group {self.index} came twice for batch step {self.now}, or before any Step arrived; "
                "call arrived, then decided once for each recorded group, then step the environments"
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

    def ask(self, holder: Holder) -> None:
        """Register a holder, by weak reference; the ring calls `holds` before it overwrites a row."""
        self._holders.append(ref(holder, self._holders.remove))

    @property
    def room(self) -> int:
        """Number of rows that can begin before one overwrites a row that is still needed, if all players act in each.

        The value is 0 if some players do not act in the newest row, or if images are stacked.
        """
        if self.history is not None or not self._everyone_turn:
            return 0
        held = [holder.earliest for known in self._holders if (holder := known()) is not None]
        return min([self.capacity - 1, *(self.capacity + earliest - self.now - 1 for earliest in held)])

    def advanced(self, decided: int, begun: int) -> None:
        """Update the counters after compiled code wrote rows in which all players act; see `room`.

        decided: number of rows with decisions, from the newest row on.  begun: number of rows begun after it.
        `policies.compiled.ring_kernel` writes the rows.
        """
        self.now += begun
        self._everyone_open = decided > begun
        self.coming = self.now + self._everyone_open
        self.oldest = max(self.oldest, self.now - self.capacity + 1)
        self.open.fill(self.now if self._everyone_open else -1)

    def abandon(self, envs: Array | None = None) -> None:
        """Abandon the running episodes of all or some environments; their open rows never become whole."""
        self.open[:, slice(None) if envs is None else envs] = -1
        self._everyone_open = False

    def restart(self, step: Step, envs: Array) -> None:
        """Abandon the running episodes of some environments; the first Step of new episodes replaces the newest row.

        Rows that point to the replaced row get `next` -1 and never become whole: their next observation is gone.
        """
        slot = self.now % self.capacity
        player, row, env = np.nonzero(self.next[:, :, envs] == self.now)
        cut = player, row, envs[env]
        self.whole -= self._counted(player, (player * self.capacity + row) * self.num_envs + envs[env])
        self.next[cut] = -1
        self.open[:, envs] = -1
        for name, array in self.frames.newest(step.obs[self.index]).items():
            self.obs[name][:, slot, envs] = array[:, envs]
        legal = step.legal[self.index]
        if self.legal is not None and legal is not None:
            self.legal[:, slot, envs] = legal[:, envs]
        if self.history is not None:
            self.history.previous[:, slot, envs] = -1
            self.history.complete[:, slot, envs] = True
        self.turn[:, envs] = step.turn[self.index][:, envs]
        self._everyone_turn, self._everyone_open = bool(self.turn.all()), False

    # Saving: see `snapshot`.

    def held(self) -> Array:
        """Return the slots of the rows in the ring, oldest first, [H] int64."""
        return np.arange(self.oldest, self.now + 1) % self.capacity

    def load(
        self, capacity: int, now: int, oldest: int, rows: Mapping[str, Array], others: Mapping[str, Array]
    ) -> None:
        """Load saved contents into this empty ring.

        rows: columns [P, H, ...] of the H batch steps from `oldest` to `now`.  others: `open`, `whole` and `turn`.
        """
        while self.capacity < capacity:
            self._grow()
        self.now = self.coming = now
        self.oldest, slots = oldest, np.arange(oldest, now + 1) % self.capacity
        for name, column in self.columns().items():
            column[:, slots] = rows[name]
        self.open[...], self.whole[...], self.turn[...] = others["open"], others["whole"], others["turn"]
        self._everyone_turn = bool(self.turn.all())

    def columns(self) -> dict[str, Array]:
        """Return the columns by name."""
        named = {"action": self.action, "reward": self.reward, "acted": self.acted, "terminated": self.terminated}
        named |= {"next": self.next, "learnable": self.learnable}
        named |= {} if self.legal is None else {"legal": self.legal}
        if self.history is not None:
            named |= {"previous": self.history.previous, "complete": self.history.complete}
        named |= {f"obs/{name}": column for name, column in self.obs.items()}
        return named | {f"extras/{name}": column for name, column in self.extras.items()}

    def _settle(self, time: int, settled: Array, reward: Array) -> None:
        """Add rewards in the general case of `arrived`; open rows where `settled` [P, E] is True become whole."""
        player, env = np.nonzero(self.open >= 0)
        cells = self.cells(self.open)[player, env]
        self.reward.reshape(-1)[cells] += reward[player, env]
        done = settled[player, env]
        player, env, cells = player[done], env[done], cells[done]
        self.next.reshape(-1)[cells] = time  # `_end` overwrites this pointer where a part ended
        self.whole += self._counted(player, cells)
        self.open = np.where(settled, -1, self.open)

    def _end(self, time: int, step: Step, ended: Array, before: Array) -> Array:
        """Link the rows of players whose part ended to their final observations.

        Returns `before` [P, E] with -1 for these players.
        """
        player, env = np.nonzero(ended & (before >= 0))
        if len(player) == 0:
            return before
        obs, legal = step.final_obs[self.index], step.final_legal[self.index]
        entries = self.ends.add(self.frames.newest(obs), legal, player, env, time)
        cells = self.cells(before)
        closed = cells[player, env]
        self.next.reshape(-1)[closed] = -2 - entries
        self.terminated.reshape(-1)[closed] = step.terminated[self.players][player, env]
        if self.history is not None:
            numbers = np.zeros_like(before)
            numbers[player, env] = entries
            self.history.check(obs, ended & (before >= 0), cells, "at the end", numbers)
        return np.where(ended, -1, before)

    def _begin(self, time: int, step: Step, before: Array) -> None:
        if time >= self.capacity:
            if self._must_stay(time - self.capacity):
                self._grow()
            else:
                self._forget(time % self.capacity)
        slot = time % self.capacity
        self.now = self.coming = time
        self.oldest = max(self.oldest, time - self.capacity + 1)
        obs, legal = step.obs[self.index], step.legal[self.index]
        for name, array in self.frames.newest(obs).items():
            self.obs[name][:, slot] = array
        if self.legal is not None:
            self.legal[:, slot] = legal
        if self.history is not None:
            self.history.begin(before)
            cells = self.cells(np.full_like(before, time))
            self.history.check(obs, step.turn[self.index], cells, "at a decision")

    def _must_stay(self, time: int) -> bool:
        if np.count_nonzero(self.open == time):
            return True
        holders = (known() for known in self._holders)
        return any(holder is not None and holder.holds(time) for holder in holders)

    def _forget(self, slot: int) -> None:
        """Clear the slot for a new row and free the entries of `ends` that its old row points to."""
        pointers = self.next[:, slot]
        if self.history is None and pointers.min() >= 0:  # every row is whole and has a next decision
            self.whole -= self.num_envs * self.learnable[:, slot]
        else:
            self._forget_pointers(slot, pointers)
        self.reward[:, slot] = 0.0
        self.acted[:, slot] = False
        self.next[:, slot] = -1

    def _forget_pointers(self, slot: int, pointers: Array) -> None:
        """Subtract the whole rows of a slot from `whole` and free the entries of `ends` that they point to."""
        known = pointers != -1
        if self.history is not None:
            known &= self.history.complete[:, slot]
            self.whole -= self.history.forget(slot)
        self.whole -= known.sum(1) * self.learnable[:, slot]
        ended = pointers[pointers < -1]
        if len(ended):
            self.ends.free(-2 - ended)
            self.terminated[:, slot] = False

    def _grow(self) -> None:
        """Double the capacity; every row keeps its time."""
        held = np.arange(self.oldest, self.now + 1)
        old, self.capacity = self.capacity, 2 * self.capacity

        def larger(column: Array, fill: int = 0) -> Array:
            made = np.full((len(column), self.capacity, *column.shape[2:]), fill, column.dtype)
            made[:, held % self.capacity] = column[:, held % old]
            return made

        self.obs = {name: larger(column) for name, column in self.obs.items()}
        self.legal = None if self.legal is None else larger(self.legal)
        self.action = larger(self.action)
        self.extras = {name: larger(column) for name, column in self.extras.items()}
        self.reward, self.acted, self.terminated = larger(self.reward), larger(self.acted), larger(self.terminated)
        self.next, self.learnable = larger(self.next, -1), larger(self.learnable)
        if self.history is not None:
            self.history.previous = larger(self.history.previous)
            self.history.complete = larger(self.history.complete)

    def _column(self, shape: tuple[int, ...], dtype: Any) -> Array:
        return np.zeros((*self.axes, *shape), dtype)

    # Reading, by cells.

    def cells(self, times: Array) -> Array:
        """Return the cells of times [P, E]; the cell is arbitrary where the time is -1."""
        players, envs = np.arange(self.group.size)[:, None], np.arange(self.num_envs)
        cells: Array = (players * self.capacity + times % self.capacity) * self.num_envs + envs
        return cells

    def moved(self, cells: Array, times: Array) -> Array:
        """Return the cells of the same players in the same environments at other times."""
        slots = cells // self.num_envs % self.capacity
        there: Array = cells + (times % self.capacity - slots) * self.num_envs
        return there

    def read(self, column: Array, cells: Array) -> Array:
        """Return a column's values at cells, [*cells.shape, ...]."""
        values: Array = column.reshape(-1, *column.shape[3:]).take(cells, axis=0)
        return values

    def drawable(self, cells: Array) -> Array:
        """Return whether transitions may be drawn from rows: whole and learnable rows with all their frames."""
        known: Array = (self.read(self.next, cells) != -1) & self.may_learn(cells)
        return known if self.history is None else known & self.read(self.history.complete, cells)

    def may_learn(self, cells: Array) -> Array:
        """Return whether the seats of rows learned at the time of the decision; see `Streams.learning`."""
        return self.learnable.reshape(-1).take(cells // self.num_envs)

    def _counted(self, player: Array, cells: Array) -> Array:
        """Return the number of rows per player that count in `whole`, [P]; player, cells: [n]."""
        counts = self.may_learn(cells)
        if self.history is not None:
            counts &= self.read(self.history.complete, cells)
        return np.bincount(player[counts], minlength=len(self.whole))

    def whole_since(self, pointers: Array) -> Array:
        """Return the batch step at which rows with these `next` pointers became whole; undefined for open rows."""
        ended = pointers < -1
        if not ended.any():
            return pointers
        return np.where(ended, self.ends.time.take(np.where(ended, -2 - pointers, 0)), pointers)

    def obs_at(self, cells: Array) -> Obs:
        """Return observations [*cells.shape, *O]."""
        return self.frames.joined(self._arrays_at(cells))

    def legal_at(self, cells: Array) -> Array | None:
        """Return legal actions [*cells.shape, A], or None."""
        return None if self.legal is None else self.read(self.legal, cells)

    def after(self, cells: Array, pointers: Array) -> tuple[Obs, Array | None]:
        """Return the next observations and legal actions [*cells.shape, ...] of rows whose `next` is `pointers`."""
        ended = pointers < -1
        there = np.where(ended, cells, self.moved(cells, pointers))
        arrays, legal = self._arrays_at(there), self.legal_at(there)
        if np.count_nonzero(ended):
            entries = -2 - pointers[ended]
            for name, final in self.ends.obs.items():
                newest = final[entries]
                if name in self.frames.depths:  # the ended row holds the earlier frames of the stack
                    newest = np.concatenate([arrays[name][ended][:, 1:], newest[:, None]], 1)
                arrays[name][ended] = newest
            if legal is not None and self.ends.legal is not None:
                legal[ended] = self.ends.legal[entries]
        return self.frames.joined(arrays), legal

    def _arrays_at(self, cells: Array) -> dict[str, Array]:
        chain = None if self.history is None else self.history.chain(cells)
        found: dict[str, Array] = {}
        for name, column in self.obs.items():
            depth = self.frames.depths.get(name)
            found[name] = self.read(column, cells if depth is None or chain is None else chain[..., -depth:])
        return found
