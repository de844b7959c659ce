"""Seats: assign agents to players and group them into learners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from typing import Any

import numpy as np

from marltrain.core.errors import AgentError, shown
from marltrain.core.layout import Array
from marltrain.core.seeds import child_seed
from marltrain.core.spec import EnvSpec
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.agent_learner import AgentLearner
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.agents.fixed import FrozenAgent
from marltrain.policies.agents.mistaken import remedy_for
from marltrain.policies.agents.mixed import MixedAgent
from marltrain.policies.batches.batch import AgentState
from marltrain.policies.interface.joint import JointAlgorithm
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.policies.learner.joint_learner import JointLearner
from marltrain.policies.learner.learner import Learner
from marltrain.storage.state import State
from marltrain.trainer.seats.devices import join_devices


@dataclass(frozen=True)
class Reading:
    """The agents of a learner that learn, and the players from whose rows they learn.

    learn: [K] bool.  players: for each agent, indices in spec order.
    silent: (agent, place in its players) of the players whose new rows are not read.
    """

    learn: Array
    players: list[list[int]]
    silent: list[tuple[int, int]]


class Seats:
    """A learner that is updated, and its agents.

    learner: the learner.  group: index of the group of players; of the first players of a team.  agents: the K agents.
    """

    learner: Learner
    group: int
    agents: list[Agent]

    @property
    def labels(self) -> list[str]:
        """Names of the agents in tables and plots: their players' names joined by "+"."""
        raise TypeError(f"{type(self).__name__} must define labels")

    @property
    def who(self) -> str:
        """Names of the agents in messages."""
        return " and ".join(self.labels)

    @property
    def acting(self) -> list[LearnerSeats]:
        """The seats of the learners that act."""
        raise TypeError(f"{type(self).__name__} must define acting")

    @property
    def all_frozen(self) -> bool:
        """Whether no agent ever learns."""
        raise TypeError(f"{type(self).__name__} must define all_frozen")

    def reading(self, mask: Array) -> Reading:
        """Return which agents learn, and from whose rows, for a mask of learning players [P] bool."""
        raise TypeError(f"{type(self).__name__} must define reading")


@dataclass(eq=False)
class LearnerSeats(Seats):
    """One learner and the seats of its agents.

    group: index of the group of players.  agents: the K agents.
    players: [K, S] indices in spec order.  rows: [K, S] indices within the group.  names: all players' names.
    frozen: [K] bool: agents that neither learn nor explore, regardless of the masks.
    """

    learner: Learner
    group: int
    agents: list[Agent]
    players: Array
    rows: Array
    names: tuple[str, ...]
    frozen: Array = field(default_factory=lambda: np.zeros(1, bool))

    @cached_property
    def labels(self) -> list[str]:
        """See `Seats`."""
        return ["+".join(self.names[p] for p in seats) for seats in self.players]

    @property
    def acting(self) -> list[LearnerSeats]:
        """See `Seats`."""
        return [self]

    @property
    def all_frozen(self) -> bool:
        """See `Seats`."""
        return bool(self.frozen.all())

    def reading(self, mask: Array) -> Reading:
        """See `Seats`.

        An on-policy agent reads all its seats; its reader drops those that do not learn. Where agents share their rows,
        the seats of the others follow (`Needs.shared`).
        """
        learns = mask[self.players] & ~self.frozen[:, None]
        needs, learn = self.learner.needs, np.asarray(learns.any(1))
        if needs is not None and needs.shared:
            return Reading(learn, self._with_others(self.players).tolist(), _silent(self._with_others(learns)))
        every = needs is not None and needs.on_policy
        players = [
            (held[own] if own.any() and not every else held).tolist()
            for held, own in zip(self.players, learns, strict=True)
        ]
        return Reading(learn, players, _silent(learns))

    def _with_others(self, values: Array) -> Array:
        """Return values of seats [K, S]: of each agent its own, then those of the other agents, [K, K * S]."""
        return np.stack([np.concatenate([own, np.delete(values, k, 0).ravel()]) for k, own in enumerate(values)])


def _players(members: Sequence[LearnerSeats]) -> Array:
    return np.concatenate([member.players.ravel() for member in members])


def _places(members: Sequence[LearnerSeats]) -> tuple[list[int], list[int]]:
    return [member.players.shape[1] for member in members], np.argsort(_players(members)).tolist()


def _silent(learns: Array) -> list[tuple[int, int]]:
    return [(int(k), int(seat)) for k, seat in np.argwhere(~learns)]


@dataclass(eq=False)
class TeamSeats(Seats):
    """A `JointLearner` and the seats of its members."""

    learner: JointLearner
    members: list[LearnerSeats]

    @classmethod
    def of(cls, members: list[LearnerSeats]) -> TeamSeats:
        """Join the learners of a team; raises AgentError if they do not fit, or for another number of players."""
        players = _players(members)
        learners = [member.learner for member in members if isinstance(member.learner, AlgorithmLearner)]
        settings = learners[0].algorithm.settings
        if settings.team_size != len(players):
            raise AgentError(
                f"{learners[0].algorithm.name}: the agents of team {settings.team!r} were made for "
                f"{settings.team_size} players, and they play {len(players)} "
                f"({', '.join(members[0].names[p] for p in np.sort(players))}). Make them in one call of make_agents "
                "for this environment, and name each player's algorithm if not all players are in the team: "
                'make_agents({"player": "algorithm", ...}, env)'
            )
        return cls(JointLearner(learners, *_places(members)), members)

    @property
    def places(self) -> tuple[list[int], list[int]]:
        """The seats of each member's agents, and the order of the players; see `JointLearner`."""
        return _places(self.members)

    @property
    def group(self) -> int:  # type: ignore[override]
        """See `Seats`."""
        return self.members[0].group

    @cached_property
    def agents(self) -> list[Agent]:  # type: ignore[override]
        """The agents of all members."""
        return [agent for member in self.members for agent in member.agents]

    @cached_property
    def labels(self) -> list[str]:
        """See `Seats`."""
        return [label for member in self.members for label in member.labels]

    @property
    def acting(self) -> list[LearnerSeats]:
        """See `Seats`."""
        return self.members

    @property
    def all_frozen(self) -> bool:
        """See `Seats`."""
        return all(member.all_frozen for member in self.members)

    def reading(self, mask: Array) -> Reading:
        """See `Seats`; the rows of all players of the team are read."""
        learns = [seats for member in self.members for seats in mask[member.players] & ~member.frozen[:, None]]
        players = [held for member in self.members for held in member.players.tolist()]
        silent = [(k, int(seat)) for k, seats in enumerate(learns) for seat in np.flatnonzero(~seats)]
        return Reading(np.array([seats.any() for seats in learns]), players, silent)


class Seating:
    """The line-up of a run.

    learners: the learners that act, in the order of their first seats.
    updated: the learners that are updated: the same, but a `TeamSeats` in place of those of a team. Empty for tests.
    """

    def __init__(self, spec: EnvSpec, agents: Sequence[Agent], seed: int, *, stack: bool, what: str = "agents") -> None:
        """Assign the agents to the players; raises AgentError if their number or spaces do not fit.

        stack: move agents of equal kind into one learner. With False, each agent keeps its own learner.
        what: name of the argument, for messages.
        """
        if isinstance(agents, Agent | str) or not isinstance(agents, Sequence):
            raise AgentError(
                f"{what} must be a list with one agent per player, got {type(agents).__name__}: give a list, or a "
                "mapping by player"
            )
        self.spec, self.agents = spec, list(agents)
        self._check_count(what)
        for i, (agent, player) in enumerate(zip(agents, spec.players, strict=True)):
            if not isinstance(agent, Agent):
                raise AgentError(
                    f"{what}, player {player.name!r}: expected an Agent, got {type(agent).__name__} ({shown(agent)})"
                    f"{remedy_for(agent)}"
                )
            agent.sit(player, child_seed(seed, "agent", i))
        join_devices(self.agents)
        self.learners = [self._learner_seats(members, stack) for members in self._grouped(stack)]
        self.updated: list[Seats] = _with_teams(self.learners) if stack else []

    @property
    def recorded(self) -> list[LearnerSeats]:
        """The learners whose rows are stored: those with an agent that may learn, and all of its team."""
        learning = [seats for seats in self.updated if not seats.all_frozen]
        members = [member for seats in learning for member in seats.acting]
        return [seated for seated in self.learners if seated in members]

    def state(self, but: Sequence[Agent] = ()) -> State:
        """Return the states of the agents, without those in `but`, and the loop states of the learners."""
        agents = {str(i): agent.state() for i, agent in self._distinct(but)}
        learners = {str(i): seated.learner.loop_state() for i, seated in enumerate(self.learners)}
        return State.joined(agents=State.joined(**agents), learners=State.joined(**learners))

    def restore(self, state: State, but: Sequence[Agent] = ()) -> None:
        """Restore the agents, without those in `but`, and the learners from what `state` returned."""
        agents, learners = state.part("agents"), state.part("learners")
        for i, agent in self._distinct(but):
            saved = agents.part(str(i))
            agent.restore(AgentState(saved.info, saved.arrays, saved.name))
        for i, seated in enumerate(self.learners):
            seated.learner.restore_loop(learners.part(str(i)))

    def _distinct(self, but: Sequence[Agent]) -> list[tuple[int, Agent]]:
        """Return every agent once, with its first seat, without the agents in `but`."""
        seen = {id(agent) for agent in but}
        first = {id(agent): (seat, agent) for seat, agent in reversed(list(enumerate(self.agents)))}
        return sorted((place for key, place in first.items() if key not in seen), key=itemgetter(0))

    def _check_count(self, what: str) -> None:
        names = self.spec.names
        if len(self.agents) != len(names):
            raise AgentError(
                f"{what}: {self.spec.name} has {len(names)} players ({', '.join(names)}), got {len(self.agents)} "
                "agents. Give one per player; the same object may occupy several seats"
            )

    def _grouped(self, stack: bool) -> list[list[tuple[Agent, list[int]]]]:
        """Return, for each future learner, its agents with their seats."""
        seats: dict[tuple[int, int | None], list[int]] = {}
        for player, agent in enumerate(self.agents):
            group = self.spec.place[player][0] if agent.any_seat else None
            seats.setdefault((id(agent), group), []).append(player)
        kinds: dict[Any, list[tuple[Agent, list[int]]]] = {}
        for one, held in seats.items():
            agent = self.agents[held[0]]
            groups = {self.spec.place[p][0] for p in held}
            if len(groups) > 1:
                players = ", ".join(self.spec.names[p] for p in held)
                raise AgentError(f"one agent occupies seats of different kinds ({players}): only some mask actions")
            inner = agent.inner if isinstance(agent, FrozenAgent) else agent
            key: Any = one
            if stack and isinstance(inner, LearningAgent) and inner.stackable:
                # frozen agents get a learner of their own: as rows of another they would cost as much as learning ones
                key = (inner.kind, groups.pop(), len(held), isinstance(agent, FrozenAgent))
            kinds.setdefault(key, []).append((agent, held))
        return list(kinds.values())

    def _learner_seats(self, members: list[tuple[Agent, list[int]]], stack: bool) -> LearnerSeats:
        agents = [agent for agent, _ in members]
        players = np.array([held for _, held in members])
        rows = np.array([[self.spec.place[p][1] for p in held] for _, held in members])
        frozen = np.array([isinstance(agent, FrozenAgent) for agent in agents])
        inner = [agent.inner if isinstance(agent, FrozenAgent) else agent for agent in agents]
        agents[0].turn_to(self.spec.players[players[0, 0]])
        one_by_one = not stack and not isinstance(agents[0], MixedAgent)
        learner = AgentLearner(agents[0]) if one_by_one else _stacked(inner)
        return LearnerSeats(learner, self.spec.place[players[0, 0]][0], agents, players, rows, self.spec.names, frozen)


def _with_teams(learners: Sequence[LearnerSeats]) -> list[Seats]:
    """Return the learners that are updated; those of a team are joined, at the place of the first."""
    joined: dict[Any, list[LearnerSeats]] = {}
    for seated in learners:
        learner = seated.learner
        algorithm = learner.algorithm if isinstance(learner, AlgorithmLearner) else None
        joint = isinstance(algorithm, JointAlgorithm)
        key = (algorithm.name, algorithm.settings.team) if algorithm is not None and joint else id(seated)
        joined.setdefault(key, []).append(seated)
    return [TeamSeats.of(members) if isinstance(key, tuple) else members[0] for key, members in joined.items()]


def _stacked(agents: Sequence[Agent]) -> Learner:
    """Return the learner whose rows are these agents; they are moved into a new one if necessary."""
    first = agents[0]
    if not isinstance(first, LearningAgent):
        return first.learner()
    handles = [agent for agent in agents if isinstance(agent, LearningAgent)]
    learner = first.learner_
    at_home = learner.num_agents == len(handles) and all(
        agent.learner_ is learner and agent.row == row for row, agent in enumerate(handles)
    )
    if at_home:
        return learner
    seeds = [agent.learner_.seeds[agent.row] for agent in handles]
    result = AlgorithmLearner(first.algorithm, first.backend, seeds, draw=False)
    for row, agent in enumerate(handles):
        result.load(row, agent.learner_.export(agent.row))
    for row, agent in enumerate(handles):
        agent.attach(result, row)
    return result
