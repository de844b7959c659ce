"""Rollouts of a team: every batch step at which the team acted, once, in the order of time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from marltrain.core.errors import AgentError
from marltrain.core.layout import Array
from marltrain.policies.batches.batch import TeamRollout
from marltrain.policies.memory.needs import Needs
from marltrain.policies.memory.streams import Streams
from marltrain.policies.memory.team_players import goes_on
from marltrain.policies.memory.team_reader import TeamReader
from marltrain.storage.checks import within
from marltrain.storage.state import State


class TeamRolloutReader(TeamReader):
    """Reader that returns each batch step of a team exactly once, in the first rollout after it ended.

    A rollout holds all batch steps of all environments since the last one, so that its size does not change from one to
    the next. Those from which no agent may learn, or whose outcome is not known, have weight 0. A player's row also has
    weight 0 if its seat did not learn: the decision may be one without exploration. Once a seat stops learning, its
    rows up to then are dropped.

    earliest: no later rollout holds a batch step before this one.
    """

    rollouts = True

    def __init__(
        self, streams: Streams, members: Sequence[Sequence[Sequence[int]]], needs: Sequence[Needs], *, one_reward: bool
    ) -> None:
        """Start with the next decisions; see `TeamReader`."""
        super().__init__(streams, members, needs, one_reward=one_reward)
        self.earliest = self.ring.coming
        rings = self.ring.every if self.others else [member.ring for member in self.members]
        self._depth = max(ring.deepest for ring in rings)
        for ring in {id(ring): ring for ring in rings}.values():
            ring.register(self)

    def size(self) -> Array:
        """Return the number of batch steps that `take` would return now, for each agent, [K] int64."""
        return np.full(self._agents, np.count_nonzero(self._drawable(*self._places())))

    def take(self, gamma: Array, rngs: Sequence[np.random.Generator | None] = ()) -> TeamRollout:
        """Return the rollout and mark its batch steps as taken.  gamma: [K], of all agents.  rngs: not read.

        Raises AgentError if there are no batch steps, or if the players' rewards must be equal, and they or the
        discounts are not.
        """
        times, envs = self._places()
        valid = self._drawable(times, envs)
        if not np.count_nonzero(valid):
            raise AgentError("no batch step of the team ended since the last rollout; ask `size()` first")
        found = [member.found(times, envs, valid) for member in self.members]
        batch = self._batch(times, envs, found, gamma)
        self.earliest = self.ring.now
        cut = np.ones(batch.weight.shape, bool)
        cut[:, :-1] = ~goes_on(found)[:-1] | (batch.weight[:, 1:] == 0) | (envs[1:] != envs[:-1])
        return TeamRollout(**vars(batch), cut=cut)

    def drop(self, k: int, seat: int | None = None) -> None:
        """Exclude past decisions of agent k's players, or of the player in its seat `seat`, from all rollouts."""
        member, own = next((p, own) for p, own in zip(self.members, self._own, strict=True) if k < own.stop)
        since = member.since.reshape(len(member.seats), -1)[k - own.start]
        since[slice(None) if seat is None else seat] = self.ring.coming

    def holds(self, time: int) -> bool:
        """Return whether batch step `time` is not taken yet, or holds a frame of one that is not."""
        return time > self.earliest - self._depth

    def state(self) -> State:
        """Return which batch steps have been taken, and from which on each player's decisions are learned from."""
        return State({"since": self.earliest}, {"dropped": np.concatenate([member.since for member in self.members])})

    def restore(self, state: State) -> None:
        """See `TeamReader`; raises SaveError for a batch step later than those of the ring."""
        super().restore(state)
        self.earliest = state.count("since", 0, self.ring.coming)
        players = [len(member.since) for member in self.members]
        dropped = state.array("dropped", np.int64, (sum(players),))
        within(state.place("dropped"), dropped, 0, self.ring.coming)
        for member, since in zip(self.members, np.split(dropped, np.cumsum(players)[:-1]), strict=True):
            member.since[...] = since

    def _places(self) -> tuple[Array, Array]:
        """Return the batch steps that have not been taken, and their environments, each [B]."""
        times = np.arange(max([self.earliest, *(member.ring.oldest for member in self.members)]), self.ring.now)
        envs = self.ring.num_envs
        return np.tile(times, envs), np.repeat(np.arange(envs), len(times))
