"""The rows of the players of one kind in a team, at the same batch steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import NamedTuple

import numpy as np

from marltrain.core.layout import Array, map_tree
from marltrain.policies.batches.batch import TeamRows
from marltrain.policies.memory.needs import Needs
from marltrain.policies.memory.readers import Reader
from marltrain.policies.memory.streams import Streams


class Found(NamedTuple):
    """Rows of N players at B batch steps: cells, `next` and more, each [N, B].

    present: the player acted.  in_time: it acted, and its row was closed by the next batch step.
    learned: the agent may learn from the decision, if there is one; see `TeamRows`.
    """

    cells: Array
    pointers: Array
    present: Array
    in_time: Array
    learned: Array


def goes_on(found: Sequence[Found]) -> Array:
    """Return whether a player of the team that acted acts at the next batch step, too, [B] bool."""
    return np.asarray(np.concatenate([each.in_time & (each.pointers >= 0) for each in found]).any(0))


class Players(Reader):
    """The players of agents with equal spaces: K agents of S seats each, N = K * S players of one group.

    names: the players' names, [N].
    since: [N] int64, no agent learns from a player's decisions before this batch step.
    """

    def __init__(self, streams: Streams, players: Sequence[Sequence[int]], needs: Needs) -> None:
        """Find the rows of the players, indices of the environment [K][S]."""
        spec = streams.spec
        places = [[spec.place[player] for player in held] for held in players]
        super().__init__(streams.rings[places[0][0][0]], [[row for _, row in held] for held in places], needs)
        self.names = [spec.names[player] for held in players for player in held]
        self.since = np.zeros(len(self.names), np.int64)

    def size(self) -> Array:
        """See `TeamReader`; `since` is not considered."""
        ring, players = self.ring, self._players
        most: Array = (ring.drawable_count[players] * ring.learning[players]).reshape(len(self.seats), -1).max(1)
        return most

    def may_learn(self, cells: Array, times: Array) -> Array:
        """Return whether the agents may learn from the decisions at cells [N, B] of batch steps [B], [N, B] bool.

        The players' seats learned when they were made, and learn now.
        """
        learned: Array = self.ring.may_learn(cells) & self.ring.learning[self._players][:, None]
        return learned & (times >= self.since[:, None]) if self.since.any() else learned

    def drawable(self, times: Array, envs: Array) -> Array:
        """Return whether the agents may learn from closed rows at batch steps of environments, [N, B] bool."""
        cells = self.cells(times, envs)
        drawable: Array = self.ring.drawable(cells) & self.may_learn(cells, times)
        return drawable

    def cells(self, times: Array, envs: Array) -> Array:
        """Return the cells of all players at batch steps `times` [B] of environments `envs` [B], [N, B]."""
        ring = self.ring
        slots = self._players[:, None] * ring.capacity + times % ring.capacity
        cells: Array = slots * ring.num_envs + envs
        return cells

    def found(self, times: Array, envs: Array, valid: Array) -> Found:
        """Return the players' rows at batch steps of environments; no player is present where `valid` [B] is False."""
        ring, cells = self.ring, self.cells(times, envs)
        pointers, present = ring.read(ring.next, cells), ring.read(ring.acted, cells) & valid
        in_time = present & (ring.closed_at(pointers) == times + 1)
        return Found(cells, pointers, present, in_time, self.may_learn(cells, times))

    @property
    def num_seats(self) -> int:
        """Seats of an agent, S."""
        return len(self.seats[0])

    def reward(self, found: Found) -> Array:
        """Return the rewards of rows, [N, B] float32; 0 for those that were not closed in time."""
        return np.where(found.in_time, self.ring.read(self.ring.reward, found.cells), np.float32(0))

    def truncated(self, found: Found) -> Array:
        """Return whether the players' parts of an episode are truncated after rows, [N, B] bool."""
        cut: Array = found.in_time & (found.pointers < -1) & ~self.ring.read(self.ring.terminated, found.cells)
        return cut

    def rows(
        self, found: Found, last: Found, times: Array, envs: Array, going_on: Array, unknown: Array, reward: Array,
        discount: Array,
    ) -> TeamRows:  # fmt: skip
        """Return the columns of the rows `found`.

        last: the rows at the last batch steps `times` [B] of their sums of rewards.
        going_on: [B] bool, whether a player of the team acts at the batch step after these, too. A player that joins it
        there has a value, although it was absent before; not in sequences, which know no carry of it.
        unknown: [B] bool, whether next values are unknown: the rows that need one get weight 0.
        reward, discount: see `Walked`; discounts [K, B] of the agents.
        """
        ring, cells, present, learned = self.ring, found.cells, found.present, found.learned
        joins = ~last.present & going_on & (self.needs.block == 0)
        if np.count_nonzero(joins):
            joins &= self._acts(times + 1, envs)
        next_present = joins | (last.in_time & ~ring.read(ring.terminated, last.cells))
        pointers = np.where(last.present, last.pointers, times + 1)
        wide = self._wide(cells, last.cells, pointers, present, next_present)
        columns = TeamRows(
            **wide._asdict(), reward=reward,
            discount=np.where(next_present, np.repeat(discount, self.num_seats, 0), 0.0).astype(np.float32),
            weight=(found.in_time & learned & ~(next_present & unknown)).astype(np.float32),
            cells=cells, present=present, next_present=next_present,
            learned=learned if np.count_nonzero(present & ~learned) else None,
            begins=self._begins(found, times, envs) if self.needs.block else None,
        )  # fmt: skip
        return self._by_agent(columns)

    def _acts(self, times: Array, envs: Array) -> Array:
        """Return whether the players act at batch steps, [N, B] bool; those of the newest have not acted yet."""
        ring = self.ring
        newest = ring.turn[self._players[:, None], envs]
        acts: Array = np.where(times == ring.now, newest, ring.read(ring.acted, self.cells(times, envs)))
        return acts

    def _begins(self, found: Found, times: Array, envs: Array) -> Array:
        """Return whether rows of sequences do not follow the one before them in the batch, [N, B] bool.

        A row that is learned from begins anew after one that is not: the gradient would flow back into that decision.
        No gradient flows from the rows of a burn-in.
        """
        begins, learned = np.ones(found.present.shape, bool), found.learned
        begins[:, 1:] = ~found.in_time[:, :-1] | (found.pointers[:, :-1] != times[1:]) | (envs[1:] != envs[:-1])
        after_burn_in = np.arange(1, len(times)) % self.needs.block > self.needs.burn_in
        begins[:, 1:] |= learned[:, 1:] & ~learned[:, :-1] & after_burn_in
        return begins

    def _by_agent(self, rows: TeamRows) -> TeamRows:
        """Return columns [N, B, ...] as [K, S * B, ...]."""
        agents, seats = len(self.seats), len(self.seats[0])
        if seats == 1:
            return rows

        def joined(array: Array) -> Array:
            return array.reshape(agents, seats * array.shape[1], *array.shape[2:])

        return replace(rows, **{f.name: map_tree(joined, getattr(rows, f.name)) for f in fields(rows)})
