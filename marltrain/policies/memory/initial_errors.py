"""First priorities of rows by their own errors, see `Prioritized.initial`: which rows get one, and when.

A row gets its first priority when its outcome is known, that is, when its transition of up to n steps can have no more
steps: after n decisions of the player, at an end, before a decision made while the seat did not learn, and before a row
that was abandoned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from marltrain.core.layout import Array
from marltrain.policies.batches.batch import Transitions
from marltrain.policies.memory.needs import Needs
from marltrain.policies.memory.ring import Ring

BLOCK = 64
"""Rows whose errors are computed at once. It is constant, so that the error of a row does not depend on other rows."""


class TransitionReader(Protocol):
    """Reads transitions; see `UniformReader`."""

    ring: Ring
    needs: Needs
    seats: list[Array]

    def transitions(self, cells: Array, weight: Array, gamma: Array) -> Transitions:
        """Return the transitions that begin at cells [K, B]."""


class Rate(Protocol):
    """Computes the errors of transitions; see `RowErrors`."""

    def gammas(self) -> Array:
        """Return each agent's discount, [K]."""

    def __call__(self, batch: Transitions) -> Array:
        """Return the sizes of the errors, [K, B] float32."""


class NewRows:
    """The rows of some players that `take` has not returned yet; it returns each once, when its outcome is known.

    earliest: batch step of the oldest row that is needed for them, as of the last `take`; see `Holder`.
    """

    def __init__(self, ring: Ring, players: Sequence[int], n_step: int) -> None:
        """Begin with all rows in the ring."""
        self.ring, self._n_step = ring, n_step
        self._players = np.unique(players)
        self._waiting = np.zeros((0, 3), np.int64)  # (time, player, environment)
        self._seen = self.earliest = ring.oldest  # earlier decisions are among those that wait, or were returned

    def take(self) -> Array:
        """Return the rows whose outcome has become known, (time, player, environment) [n, 3] int64."""
        ring = self.ring
        rows = np.concatenate([self._waiting, self._decided(self._seen)])
        self._seen = ring.coming
        time, player, env = rows.T
        cells = self.cells(rows)
        closed = ring.read(ring.next, cells) != -1
        there = (time >= ring.oldest) & (closed | (ring.open[player, env] == time))
        known = self._known(rows, cells)
        self._waiting = rows[there & ~known]
        self.earliest = self._earliest()
        taken: Array = rows[there & known & ring.drawable(cells)]
        return taken

    def begin_with(self, lacking: Array) -> None:
        """Wait for those rows in the ring that lack a priority, [P, H, E] bool, oldest first; forget all others."""
        rows = self._decided(self.ring.oldest)
        self._waiting = rows[lacking[rows[:, 1], rows[:, 0] - self.ring.oldest, rows[:, 2]]]
        self._seen = self.ring.coming

    def holds(self, time: int) -> bool:
        """See `Holder`."""
        return time >= self.earliest

    def cells(self, rows: Array) -> Array:
        """Return the cells of rows (time, player, environment) [n, 3]."""
        ring, (time, player, env) = self.ring, rows.T
        cells: Array = (player * ring.capacity + time % ring.capacity) * ring.num_envs + env
        return cells

    def numbers(self, rows: Array) -> Array:
        """Return the numbers of rows (time, player, environment) [n, 3]; see `Chosen`."""
        ring, (time, player, env) = self.ring, rows.T
        numbers: Array = (time * ring.group.size + player) * ring.num_envs + env
        return numbers

    def _decided(self, since: int) -> Array:
        """Return the rows of decisions from batch step `since` on that may be learned from."""
        ring = self.ring
        times = np.arange(max(since, ring.oldest), ring.coming)
        places = self._players[:, None], times % ring.capacity
        player, at, env = np.nonzero(ring.acted[places] & ring.learnable[places][..., None])
        return np.stack([times[at], self._players[player], env], 1)

    def _known(self, rows: Array, cells: Array) -> Array:
        """Return whether the outcomes of rows [n, 3] at cells [n] are known, [n] bool."""
        ring, (_, player, env) = self.ring, rows.T
        pointers = ring.read(ring.next, cells)
        known, going = pointers < -1, pointers >= 0
        for _ in range(1, self._n_step):
            onward = ring.shifted(cells, pointers)
            following, decided = ring.read(ring.next, onward), pointers < ring.coming
            abandoned = (following == -1) & (ring.open[player, env] != pointers)
            learnable = ring.may_learn(onward)
            known |= going & decided & (~learnable | abandoned)
            going &= decided & learnable & (following != -1)
            cells, pointers = np.where(going, onward, cells), np.where(going, following, pointers)
            known |= going & (pointers < -1)
            going &= pointers >= 0
        return known | going

    def _earliest(self) -> int:
        """Return the batch step of the oldest row that is needed for later calls, also for stacks of frames."""
        ring = self.ring
        earliest = int(self._waiting[:, 0].min(initial=ring.coming))
        if ring.deepest == 1:
            return earliest
        open_now = np.where(ring.open >= 0, ring.open, ring.now)
        cells = np.concatenate([self.cells(self._waiting), ring.cells(open_now).ravel()])
        for _ in range(ring.deepest - 1):
            before = ring.read(ring.columns["previous"], cells)
            reached = before >= ring.oldest
            earliest = int(before.min(initial=earliest, where=reached))
            cells = ring.shifted(cells, before)[reached]
        return min(earliest, int(open_now.min()))


class InitialErrors:
    """The errors of a reader's new rows, each for all agents that read it.

    rows: the rows that wait for their outcomes.
    """

    def __init__(self, reader: TransitionReader, rate: Rate) -> None:
        """Begin with all rows in the ring.  rate: computes the errors of transitions."""
        self._reader, self._rate = reader, rate
        self.rows = NewRows(reader.ring, np.concatenate(reader.seats).tolist(), reader.needs.n_step)
        self._sent = np.zeros(0, np.int64), np.zeros(0, np.float32)

    def send(self, agent: Array, numbers: Array, errors: Array) -> None:
        """Take errors that were computed elsewhere in place of earlier ones; rows without one are rated here.

        agent, numbers: [n] int64, of each error the agent and the number of the row, see `Chosen`.
        """
        keys = self._keys(agent, numbers)
        order = np.argsort(keys)
        self._sent = keys[order], errors[order]

    def take(self) -> tuple[Array, Array]:
        """Return the rows whose outcome has become known once for each agent that reads them.

        Returns the agents [n], ascending, and the rows (time, player, environment) [n, 3].
        """
        rows = self.rows.take()
        own = [rows[np.isin(rows[:, 1], seats)] for seats in self._reader.seats]
        return np.repeat(np.arange(len(own)), list(map(len, own))), np.concatenate(own)

    def known(self, set_priorities: Callable[[Array, Array, Array], None]) -> None:
        """Call `set_priorities` with agents [n], numbers and errors of the rows whose outcome has become known."""
        agent, rows = self.take()
        if not len(rows):
            return
        numbers, (keys, sent) = self.rows.numbers(rows), self._sent
        wanted, errors = self._keys(agent, numbers), np.zeros(len(rows), np.float32)
        places = np.searchsorted(keys, wanted)
        there = np.zeros(len(rows), bool)
        if len(keys):
            there = keys[np.minimum(places, len(keys) - 1)] == wanted
            errors[there] = sent[places[there]]
        errors[~there] = self.rated(agent[~there], rows[~there])
        set_priorities(agent, numbers, errors)

    def rated(self, agent: Array, rows: Array) -> Array:
        """Return the errors of rows (time, player, environment) [n, 3] for agents [n], [n] float32."""
        agents, errors, gammas = len(self._reader.seats), np.zeros(len(rows), np.float32), self._rate.gammas()
        cells = self.rows.cells(rows)
        places = [np.flatnonzero(agent == k) for k in range(agents)]
        for start in range(0, max(map(len, places)), BLOCK):
            parts = [own[start : start + BLOCK] for own in places]
            block = np.full((agents, BLOCK), cells[0])
            for k, part in enumerate(parts):
                block[k, : len(part)] = cells[part]
            result = self._rate(self._reader.transitions(block, np.ones(block.shape, np.float32), gammas))
            for k, part in enumerate(parts):
                errors[part] = result[k, : len(part)]
        return errors

    def _keys(self, agent: Array, numbers: Array) -> Array:
        keys: Array = numbers * len(self._reader.seats) + agent
        return keys
