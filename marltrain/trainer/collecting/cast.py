"""Cast: the members that play the running episodes, where a set of policies holds a seat."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

from marltrain.core.errors import AgentError
from marltrain.core.layout import Array
from marltrain.core.remedies import written
from marltrain.core.spec import EnvSpec
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.mixed import MixedAgent, Record
from marltrain.storage.state import State
from marltrain.trainer.seats.seats import LearnerSeats


class Cast:
    """The member of each set of policies in each environment: drawn when an episode begins, for all seats of the set.

    sets: those in the line-up that draw, each once; without any, the other methods need not be called.
    numbers: of each set, [M * E] int64, the members that play now; environments of M matches of E environments each.
    following: [sets, M * E] int64, planned members of the episodes that begin next; None: they are drawn then.
    """

    def __init__(self, spec: EnvSpec, learners: Sequence[LearnerSeats], num_envs: int, matches: int = 1) -> None:
        """Start without members.

        spec: of a game.  num_envs: E.  matches: M; seat p * M + m is that of player p in match m, and a set has the
            same players' seats in all matches.
        """
        seats: dict[MixedAgent, list[int]] = {}
        led: dict[MixedAgent, MixedAgent] = {}  # set -> the one that draws for it
        for seated in learners:
            if isinstance(agent := seated.agents[0], MixedAgent):
                led[agent] = agent.leader
                seats.setdefault(agent.leader, []).extend((seated.players.ravel() // matches).tolist())
        self.sets, self._names, self._matches, self._num_envs = list(seats), spec.names, matches, num_envs
        self._players = [sorted(set(players)) for players in seats.values()]
        self.numbers = [np.zeros(matches * num_envs, np.int64) for _ in self.sets]
        self._outdated = np.zeros(matches * num_envs, bool)
        self.following: Array | None = None
        self._reserved: Sequence[Array] = [np.empty(0, np.int64) for _ in self.sets]
        of = dict(zip(self.sets, self.numbers, strict=True))
        self._of = {id(agent): of[leader] for agent, leader in led.items()}
        self._chosen = False
        everyone = set(range(len(spec.players)))
        self._others = [sorted(everyone.difference(players)) for players in self._players]

    @property
    def columns(self) -> dict[str, type]:
        """The columns of the table of episodes: "member/<player>", the number of the member."""
        return {f"member/{self._names[player]}": np.int64 for players in self._players for player in players}

    def of(self, agent: Agent, seats: int) -> Array | None:
        """Return the members that play for an agent in its seats, [1, seats * E] int64; None if it is no set.

        Raises AgentError in uses that choose no members, as in `play`.
        """
        numbers = self._of.get(id(agent))
        if numbers is None:
            return None
        self.check_chosen()
        return numbers[None] if seats == self._matches else np.tile(numbers, seats // self._matches)[None]

    def check_chosen(self) -> None:
        """Raise AgentError if a set holds a seat and its members were not chosen, as in `play`, which chooses none."""
        if self._chosen:
            return
        for each, players in zip(self.sets, self._players, strict=True):
            numbers = each.pool.numbers.tolist()
            newest = numbers[-1] if numbers else 0
            raise AgentError(
                f"player {self._names[players[0]]!r}: a {type(each).__name__} plays in training and in tests, where "
                "each episode has its member. Give one of its members here, such as the newest: "
                f"{written(f'pool.member({newest})', f'--member {newest}')}. Their numbers are "
                f"{', '.join(map(str, numbers))}"
            )

    def start(self, env_steps: int, episodes: int) -> None:
        """Tell the sets that a run starts, with its counts so far."""
        for each in self.sets:
            each.start(env_steps, episodes)

    def draw(self, envs: Array) -> None:
        """Choose the members of the episodes that begin in environments `envs` [n] int64: those planned, if any are."""
        self._chosen, self._outdated[envs] = True, False
        for i, (each, numbers) in enumerate(zip(self.sets, self.numbers, strict=True)):
            planned = self.following
            numbers[envs] = each.draw(envs // self._num_envs) if planned is None else planned[i][envs]

    def plan(self, steps: int) -> Array:
        """Draw members for episodes that begin after each of `steps` batch steps, [steps, sets, M * E] int64.

        The caller shows them by `following` at their time, and keeps them from leaving by `reserve`.
        """
        count = self._matches * self._num_envs
        matches = np.tile(np.arange(count) // self._num_envs, steps)
        drawn = [each.draw(matches).reshape(steps, count) for each in self.sets]
        return np.stack(drawn, 1) if drawn else np.zeros((steps, 0, count), np.int64)

    def reserve(self, planned: Sequence[Array]) -> None:
        """Keep the memory of planned members, arrays [n, sets, M * E], in place of those planned before."""
        self._reserved = [
            np.unique(np.concatenate([np.empty(0, np.int64), *(rows[:, i].ravel() for rows in planned)]))
            for i in range(len(self.sets))
        ]

    @property
    def playing(self) -> Array:
        """A copy of the members that play now, [sets, M * E] int64."""
        return np.array(self.numbers, np.int64).reshape(len(self.sets), self._matches * self._num_envs)

    @property
    def follows(self) -> dict[int, int]:
        """Number of the set in `sets` whose draws an agent follows, by the agent's id."""
        return {agent: i for agent, own in self._of.items() for i, each in enumerate(self.numbers) if own is each}

    def take_turns(self, episodes: Array) -> None:
        """Set the members of the test episodes [E] int64, by their numbers."""
        self._chosen = True
        for each, numbers in zip(self.sets, self.numbers, strict=True):
            numbers[...] = each.in_turn(episodes)

    def finished(self, envs: Array, returns: Array) -> list[Array]:
        """Tell the sets the returns [P, n] of finished episodes; return the columns of the table of episodes, [n].

        Episodes that a learner began with other weights than those that have replaced them are no results.
        """
        columns, outdated = [], self._outdated[envs]
        told = ~outdated if outdated.any() else slice(None)
        for i, each in enumerate(self.sets):
            members = self.numbers[i][envs]
            own, others = (_mean_of(returns, players)[told] for players in (self._players[i], self._others[i]))
            each.finished(members[told], own, others, envs[told] // self._num_envs)
            columns += [members] * len(self._players[i])
        return columns

    def steps_left(self, env_steps: int) -> int:
        """Return the number of env steps until members may enter or leave by env steps."""
        return min((each.steps_left(env_steps) for each in self.sets), default=sys.maxsize)

    def collected(self, env_steps: int, episodes: int) -> list[int]:
        """Tell the sets the counts of the run; they may add and remove members.

        Returns the matches whose learners have got other weights.
        """
        anew: list[int] = []
        for each, *playing in zip(self.sets, self.numbers, self._reserved, strict=True):
            anew += each.collected(env_steps, episodes, np.concatenate(playing))
        for match in anew:
            self._outdated[match * self._num_envs : (match + 1) * self._num_envs] = True
        return anew

    @property
    def records(self) -> dict[str, Record]:
        """Records of the sets by name in tables: their players' names joined by "+", or learners they play against."""
        labels = ("+".join(self._names[player] for player in players) for players in self._players)
        return {name: own for label, each in zip(labels, self.sets, strict=True)
                for name, own in each.records(label).items()}  # fmt: skip

    def metrics(self) -> dict[str, dict[str, float]]:
        """Return the sets' numbers for tables, {name: {metric: value}}."""
        return {name: found for name, record in self.records.items() if (found := record.metrics())}

    def state(self) -> State:
        """Return the members that play now."""
        arrays = {str(i): numbers.copy() for i, numbers in enumerate(self.numbers)}
        return State({}, arrays | ({"outdated": self._outdated.copy()} if self._matches > 1 else {}))

    def restore(self, state: State) -> None:
        """Restore what `state` returned; raises SaveError if it does not fit."""
        self._chosen = True
        for i, numbers in enumerate(self.numbers):
            numbers[...] = state.array(str(i), np.int64, numbers.shape)
        if self._matches > 1:
            self._outdated[...] = state.array("outdated", bool, self._outdated.shape)


def _mean_of(returns: Array, players: Sequence[int]) -> Array:
    """Return the mean of the returns [P, n] of some players, [n]; 0 of none."""
    if len(players) == 1:
        return returns[players[0]]
    return returns[list(players)].mean(0) if players else np.zeros(returns.shape[1])
