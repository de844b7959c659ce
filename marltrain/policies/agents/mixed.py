"""MixedAgent: a seat in which several policies play, one of them in each environment and episode."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from marltrain.core.encoding import described_spaces, spaces_from
from marltrain.core.errors import AgentError, ConfigError, SaveError, shown
from marltrain.core.layout import Array, Obs
from marltrain.core.seeds import chosen_seed, generator, restored, state_of
from marltrain.core.settings import checked_arguments
from marltrain.core.spaces import describe_space
from marltrain.core.spec import PlayerSpec
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.fixed import FrozenAgent
from marltrain.policies.agents.members import MakeAgent, Member, Members
from marltrain.policies.agents.parts import Rngs
from marltrain.policies.batches.batch import Acted, ActInputs, AgentState
from marltrain.policies.learner.learner import Learner
from marltrain.storage.checks import of_type
from marltrain.storage.state import State

if TYPE_CHECKING:
    import pandas as pd


class Record(Protocol):
    """Numbers and results of a set, or of a learner against a set, for the tables of a run."""

    def metrics(self) -> dict[str, float]:
        """Return numbers by name, which are recorded with each update."""

    def results(self) -> pd.DataFrame | None:
        """Return a table of the members' results, which the run writes into a file at its end; None: there is none."""


class MixedAgent(Agent):
    """A set of policies in one seat: each environment and episode draws its own member, by given probabilities.

    The members do not learn. Agents that learn are copied, so later updates do not change a member. Members of one kind
    are computed together. With exploration, members explore as their agents do: stochastic policies sample; those that
    are given as `FrozenAgent` do not. In tests the members play in turn: member j mod M plays episode j.

    members: the policies.  shares: probability of each member, [M] float64; it may be set between episodes.
    """

    saved_as = "mixed"

    @checked_arguments
    def __init__(
        self, agents: Sequence[Agent] | Mapping[str, Agent], shares: Any = None, *, seed: int | None = None
    ) -> None:
        """Add the agents.

        agents: a list, or agents by name.  shares: numbers in the ratio of the probabilities, one for each agent; None:
            equal probabilities.  seed: of the draws; None: from the run.
        Raises AgentError for objects that are no agents, and ConfigError without agents and for wrong shares.
        """
        self.seed = None if seed is None else chosen_seed(seed, type(self).__name__)
        named = agents if isinstance(agents, Mapping) else {f"{place}": agent for place, agent in enumerate(agents)}
        self._begin(named)
        if not named:
            raise ConfigError(f"{type(self).__name__} needs at least one agent, got {shown(agents)}")
        self.set_shares(np.ones(len(named)) if shares is None else shares)

    def _begin(self, given: Mapping[str, Agent]) -> None:
        """Set up the members that are given, and the generators."""
        who = type(self).__name__
        self.pool = Members(who)
        for name, agent in given.items():
            if not isinstance(agent, Agent) or isinstance(agent, MixedAgent):
                raise AgentError(f"{who}: its members are agents, got {shown(agent)}")
            self._adopt(agent)
            self.pool.add(agent, str(name))
        self._draws: np.random.Generator | None = None
        self._learner: MixedLearner | None = None

    def _adopt(self, agent: Agent) -> None:
        """Take over the spaces of an agent, or check that they are equal; agents without spaces fit."""
        who = type(self).__name__
        inner = agent.inner if isinstance(agent, FrozenAgent) else agent
        if inner.identity:
            raise AgentError(
                f"{who}: an agent that tells its players apart (identify=True) cannot be a member: it would not know "
                "which of them it plays. Make it without identify"
            )
        if inner.any_seat or inner.action_space is None or inner.observation_space is None:
            return
        if self.action_space is None or self.observation_space is None:
            self.observation_space, self.action_space, self.layout = (
                inner.observation_space, inner.action_space, inner.layout
            )  # fmt: skip
            return
        for what in ("observation_space", "action_space"):
            own, other = getattr(self, what), getattr(inner, what)
            if describe_space(own) != describe_space(other):
                raise AgentError(
                    f"{who}: all members have equal spaces: the {what.replace('_', ' ')} of one is {own}, of another "
                    f"(a {type(inner).__name__}) {other}. Make a set for each kind of seat"
                )

    def set_shares(self, shares: Any) -> None:
        """Set numbers in the ratio of the members' probabilities, [M], in the order of `members`."""
        given = np.asarray(shares, np.float64)
        valid = given.shape == (len(self.pool),) and np.isfinite(given).all() and (given >= 0).all() and given.any()
        if not valid:
            raise ConfigError(
                f"{type(self).__name__}: shares must be {len(self.pool)} numbers of at least 0, not all 0, got "
                f"{shown(shares)}"
            )
        self._shares: Array = given / given.sum()

    @property
    def members(self) -> list[Member]:
        """The members, in the order of their arrival."""
        return list(self.pool.members.values())

    @property
    def leader(self) -> MixedAgent:
        """The set whose draws this one follows: members of equal numbers play together. Usually the set itself."""
        return self

    @property
    def sides(self) -> Sequence[Sequence[Agent]]:
        """Teams whose seats belong together: the seats of the set, and agents whose versions play there; else ()."""
        return ()

    @property
    def shares(self) -> Array:
        """Probability of each member in the next draw, [M] float64."""
        return self._shares

    def member(self, number: int) -> Agent:
        """Return an independent copy of a member by its number, as an agent."""
        return self.pool.agent(number)

    # draws, which the trainer asks for

    def draw(self, matches: Array) -> Array:
        """Return the numbers of the members that play the next training episodes, [n] int64.

        matches: [n] int64, the match of each episode; 0 in runs without `Matches`.
        """
        limits = self.shares.cumsum()
        limits[-1] = np.inf  # the sum may be rounded to less than 1
        return self.pool.numbers[limits.searchsorted(self._generator().random(len(matches)), side="right")]

    def in_turn(self, episodes: Array) -> Array:
        """Return the members that play the test episodes with these numbers, [n] int64: each in its turn."""
        numbers = self.pool.numbers
        if not len(numbers):
            raise AgentError(f"this {type(self).__name__} has no member yet: the first ones enter when it trains")
        return numbers[episodes % len(numbers)]

    def check_run(self, line_up: Sequence[Agent], steps: int | None, episodes: int | None) -> None:
        """Raise an error if the set does not fit a run, before it starts.

        line_up: the agents that train.  steps, episodes: the budgets in env steps and episodes; None: no limit.
        """

    def start(self, env_steps: int, episodes: int) -> None:
        """Called when a run starts that is not resumed, with its counts so far."""

    def finished(self, members: Array, own: Array, others: Array, matches: Array) -> None:
        """Receive the results of training episodes: members [n], their mean returns and those of other seats, [n].

        matches: see `draw`.
        """

    def steps_left(self, env_steps: int) -> int:
        """Return the number of env steps until members may enter or leave by env steps."""
        return sys.maxsize

    def collected(self, env_steps: int, episodes: int, playing: Array) -> Sequence[int]:
        """Called after each batch step and its updates; `playing`: numbers of the members that play now.

        Between ends of episodes the steps before `steps_left` may be left out.
        Returns the matches whose learners have got other weights by this call.
        """
        return ()

    def metrics(self) -> dict[str, float]:
        """See `Record`."""
        return {}

    def results(self) -> pd.DataFrame | None:
        """See `Record`."""
        return None

    def records(self, label: str) -> Mapping[str, Record]:
        """Return the records of the set by their names in tables; label: the names of its players."""
        return {label: self}

    # the seat

    def act(self, observation: Any, legal: Any = None, explore: bool | Array = False) -> Any:
        """Raise AgentError: a member is drawn for an episode, which `act` does not know."""
        raise AgentError(
            f"a {type(self).__name__} plays in training and tests, where a member is drawn for each episode. Take one "
            "of its members with member(number)"
        )

    def decide(
        self, obs: Obs, legal: Array | None, carry: Any, *, turn: Array, explore: Array, rng: np.random.Generator
    ) -> Acted:
        """Raise AgentError, see `act`."""
        return Acted(self.act(obs, legal, explore))

    def sit(self, player: PlayerSpec, seed: int) -> None:
        """Seat the set and its members; raises AgentError for members of other spaces."""
        super().sit(player, seed)
        self.pool.sit(player, int(self.seed or 0))

    def turn_to(self, player: PlayerSpec) -> None:
        """Make this player's seat the current seat."""
        super().turn_to(player)
        self.pool.turn_to(player)

    def learner(self) -> MixedLearner:
        """Return the learner, which acts with the members."""
        if self._learner is None:
            self._learner = MixedLearner(self.pool, int(self.seed or 0))
        return self._learner

    def frozen_copy(self) -> Agent:
        """Raise AgentError: the set never learns, so it needs no frozen copy."""
        raise AgentError(f"FrozenAgent: a {type(self).__name__} never learns: put it into the seat itself")

    def _generator(self) -> np.random.Generator:
        if self._draws is None:
            self._draws = generator(int(self.seed or 0), "draw")
        return self._draws

    # saving

    def state(self) -> AgentState:
        """Return the members, their probabilities and the generator of the draws."""
        result = State({
            "type": self.saved_as, **described_spaces(self.observation_space, self.action_space), "seed": self.seed,
            "shares": self.shares.tolist(), "draws": state_of(self._generator()),
        })  # fmt: skip
        result.add("pool", self.pool.state())
        return AgentState(result.info, result.arrays)

    def restore(self, state: AgentState) -> None:
        """Restore what `state` returned; raises SaveError for members of other kinds than those of this set."""
        self.seed = state.count("seed")
        self._draws = restored(state.value("draws", dict))
        known = self._templates()  # the members here are replaced part by part
        self.pool.restore(state.part("pool"), lambda saved: self._template(saved, known), int(self.seed))
        self._restore_shares(state)

    def _restore_shares(self, state: State) -> None:
        shares = [of_type(state.place("shares"), share, float) for share in state.values("shares", float, int)]
        if len(shares) != len(self.pool):
            raise SaveError(f"{state.place('shares')} has {len(shares)} numbers for {len(self.pool)} members")
        self._shares = np.array(shares, np.float64)

    def _template(self, saved: AgentState, known: Sequence[Agent]) -> Agent:
        """Return a copy of an agent of the kind of a saved one, in the saved state; known: agents of all kinds."""
        for agent in known:
            if _kind(agent.state().info) == _kind(saved.info):
                copy = agent.frozen_copy()
                copy.restore(saved)
                return copy
        return self._unknown(saved)

    def _unknown(self, saved: AgentState) -> Agent:
        """Return an agent of a kind that no member has; raises SaveError if that is impossible."""
        raise SaveError(f"{saved.place('type')}: no member of this {type(self).__name__} is of the saved kind")

    def _templates(self) -> list[Agent]:
        """Return an agent of each kind of which members may be saved."""
        return self.pool.kinds

    @classmethod
    def from_state(cls, state: AgentState, make: MakeAgent) -> MixedAgent:
        """Build the set from its state; make: makes an agent from a saved state."""
        agent = cls.__new__(cls)
        agent._begin({})
        if "observation_space" in state.info:
            agent._set_spaces(*spaces_from(state.info))
        agent.seed, agent._draws = state.count("seed"), restored(state.value("draws", dict))
        agent.pool.restore(state.part("pool"), make, int(agent.seed))
        agent._restore_shares(state)
        return agent


def named_members(given: Any, who: str) -> dict[str, Any]:
    """Return members by name: those of a mapping, or "given 0", ... of a list; raises AgentError for anything else."""
    if isinstance(given, Mapping):
        return dict(given)
    if not isinstance(given, Iterable):
        raise AgentError(f"{who}: members= is a list of agents, or agents by name, got {shown(given)}: give [agent]")
    return {f"given {i}": each for i, each in enumerate(given)}


def _kind(info: Mapping[str, Any]) -> str:
    """Return what the states of agents of one kind have in common."""
    inner = info.get("inner") if info.get("type") == "frozen" else None
    of = inner if isinstance(inner, Mapping) else info
    return json.dumps([info.get("type"), of.get("type"), of.get("settings")], sort_keys=True)


class MixedLearner(Learner):
    """Acts with the members of a set (K = 1); it never learns. `ActInputs.member` tells who plays."""

    def __init__(self, pool: Members, seed: int) -> None:
        """Take the members.  seed: of the acts."""
        self.pool = pool
        self.gradient_steps = np.zeros(1, np.int64)
        self._act = Rngs(seed, "act")

    def rngs(self, purpose: str) -> Any:
        """Return the generators of acts; for "test", new ones at every call."""
        return Rngs(self._act.seed, "test") if purpose == "test" else self._act

    def act(self, inputs: ActInputs, *, turn: Array, rngs: Any) -> Acted:
        """See `Learner`."""
        return self.pool.act(inputs, turn[0], rngs)

    def loop_state(self) -> State:
        """Return the generators of acts."""
        self.pool.settle()
        return State(self._act.state())

    def restore_loop(self, state: State) -> None:
        """See `Learner`."""
        self._act.restore(state)
