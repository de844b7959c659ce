"""Agents that never learn: random actions, a function, a frozen copy of another agent."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from types import NoneType
from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.core.encoding import described_spaces, encoded, spaces_from
from marltrain.core.errors import AgentError, SpecError, shown
from marltrain.core.layout import Array, Obs, Space, arrays_of, map_tree
from marltrain.core.legal import Legal
from marltrain.core.seeds import MOST_SEED, chosen_seed
from marltrain.core.settings import check_function, checked_arguments
from marltrain.core.spaces import action_bounds
from marltrain.core.spec import PlayerSpec
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.probabilities import legal_shares, number_of_actions
from marltrain.policies.batches.batch import Acted, AgentState


class RandomAgent(Agent):
    """Agent with uniformly random legal actions, standard normal in unbounded Box dimensions; fits any seat."""

    @checked_arguments
    def __init__(
        self, observation_space: Space | None = None, action_space: Space | None = None, *, seed: int | None = None
    ) -> None:
        """Store the spaces and the seed; the default values come from the seat and the run."""
        self._set_spaces(observation_space, action_space)
        self.seed = None if seed is None else chosen_seed(seed, "RandomAgent")

    def act(self, observation: Any, legal: Any = None, explore: bool | Array = False) -> Any:
        """Return a random legal action, or one per row for a batch."""
        return self._act_by_decide(observation, legal, False, lambda: self.rng)[0]

    def probabilities(self, observation: Any, legal: Any = None, explore: bool = True) -> Array:
        """Return equal probabilities of the legal actions; see `Agent.probabilities`."""
        layout, space = self._seated()
        obs, mask, batched = encoded(layout, observation, legal, space)
        equal = np.ones((len(arrays_of(obs)[0]), number_of_actions("RandomAgent", space)))
        shares = legal_shares(equal, mask)
        return shares if batched else shares[0]

    def decide(
        self, obs: Obs, legal: Array | None, carry: Any, *, turn: Array, explore: Array, rng: np.random.Generator
    ) -> Acted:
        """Draw an action for every row, so that the random stream does not depend on `turn`."""
        return Acted(_random_actions(self._seated()[1], legal, len(turn), rng), carry)

    def state(self) -> AgentState:
        """Return the spaces, if they are known, and the seed."""
        info = {
            "type": "random",
            **described_spaces(self.observation_space, self.action_space),
            "seed": self.seed,
            "stack": 1 if self.layout is None else self.layout.stack,
            "any_seat": self.any_seat,
        }
        return AgentState(info, {})

    @classmethod
    def from_state(cls, state: AgentState) -> RandomAgent:
        """Build the agent from its state."""
        info = state.info
        agent = cls(*(spaces_from(info) if "observation_space" in info else ()), seed=info["seed"])
        agent.any_seat = info.get("any_seat") is True
        return agent

    def restore(self, state: AgentState) -> None:
        """Restore the saved seed."""
        self.seed = None if state.value("seed", int, NoneType) is None else state.count("seed", high=MOST_SEED)


def _random_actions(space: Space, legal: Array | None, rows: int, rng: np.random.Generator) -> Array:
    if isinstance(space, spaces.Discrete):
        score = rng.random((rows, int(space.n)))
        return (score if legal is None else np.where(legal, score, -1.0)).argmax(-1)
    if isinstance(space, spaces.MultiDiscrete) and legal is not None:
        choices = Legal(space)
        return choices.best(np.where(legal, rng.random((rows, choices.width)), -1.0))
    if isinstance(space, spaces.MultiDiscrete):
        return (rng.random((rows, space.nvec.size)) * space.nvec.reshape(-1)).astype(np.int64)
    if isinstance(space, spaces.Box):
        low, high = space.low.reshape(-1), space.high.reshape(-1)
        bounded = np.isfinite(low) & np.isfinite(high)
        uniform, normal = rng.random((rows, len(low))), rng.standard_normal((rows, len(low)))
        spread = np.where(bounded, high, 1.0) - np.where(bounded, low, 0.0)
        drawn = np.where(bounded, np.where(bounded, low, 0.0) + uniform * spread, normal)
        return np.clip(drawn.astype(np.float32), *action_bounds(space))
    raise SpecError(f"no random actions for action space {space}")


class FunctionAgent(Agent):
    """Agent that plays a function: (observation) -> action, or (observation, legal) -> action if moves are masked."""

    @checked_arguments
    def __init__(
        self,
        function: Callable[..., Any],
        observation_space: Space | None = None,
        action_space: Space | None = None,
    ) -> None:
        """Store the function and the spaces; the default spaces come from the seat."""
        if not callable(function):
            raise AgentError(f"FunctionAgent needs a function, got {shown(function)}")
        self.function = function
        self._set_spaces(observation_space, action_space)

    def sit(self, player: PlayerSpec, seed: int) -> None:
        """Take a seat; raises ConfigError if the function does not accept the seat's arguments."""
        super().sit(player, seed)
        shows = ("observation", "legal") if player.masked else ("observation",)
        check_function("FunctionAgent: function", self.function, *shows)

    def _marks(self) -> list[str]:
        return [getattr(self.function, "__name__", type(self.function).__name__)]

    def act(self, observation: Any, legal: Any = None, explore: bool | Array = False) -> Any:
        """Call the function for the observation, or for each row of a batch."""
        layout, space = self._seated()
        obs, mask, batched = encoded(layout, observation, legal, space)
        answers = []
        for row in range(len(arrays_of(obs)[0])):
            one = _first(layout.decode(map_tree(itemgetter(slice(row, row + 1)), obs)))
            answers.append(self.function(one) if mask is None else self.function(one, mask[row]))
        return np.asarray(answers) if batched else answers[0]


def _first(observation: Any) -> Any:
    """Return index 0 of the leading axis of every leaf of a decoded observation."""
    if isinstance(observation, dict):
        return {key: _first(value) for key, value in observation.items()}
    if isinstance(observation, tuple):
        return tuple(_first(value) for value in observation)
    return observation[0]


class FrozenAgent(Agent):
    """Frozen copy of an agent; it never learns and never explores."""

    def __init__(self, agent: Agent) -> None:
        """Copy the agent; later updates of the agent do not change the copy."""
        if not isinstance(agent, Agent):
            raise AgentError(f"FrozenAgent: agent must be an Agent, got {shown(agent)}")
        self.inner: Agent = (agent.inner if isinstance(agent, FrozenAgent) else agent).frozen_copy()
        self.observation_space, self.action_space = self.inner.observation_space, self.inner.action_space
        self.layout, self.identity = self.inner.layout, self.inner.identity

    def _marks(self) -> list[str]:
        return [repr(self.inner)]

    def act(self, observation: Any, legal: Any = None, explore: bool | Array = False, player: Any = None) -> Any:
        """Return the copy's action without exploration; player: see `LearningAgent.act`."""
        inner: Any = self.inner
        who = () if player is None and not self.identity else (player,)
        return inner.act(observation, legal, False, *who)

    def probabilities(self, observation: Any, legal: Any = None, explore: bool = True, player: Any = None) -> Array:
        """Return the probabilities of the copy's acts without exploration; see `Agent.probabilities` and `act`."""
        inner: Any = self.inner
        who = () if player is None and not self.identity else (player,)
        return inner.probabilities(observation, legal, False, *who)

    def sit(self, player: PlayerSpec, seed: int) -> None:
        """Seat the copy."""
        self.inner.sit(player, seed)
        self.any_seat, self.seed = self.inner.any_seat, self.inner.seed
        self.turn_to(player)

    def turn_to(self, player: PlayerSpec) -> None:
        """Make this player's seat the copy's current seat."""
        self.inner.turn_to(player)
        self.observation_space, self.action_space = self.inner.observation_space, self.inner.action_space
        self.layout, self._seat, self._kinds = self.inner.layout, self.inner._seat, self.inner._kinds

    def decide(
        self, obs: Obs, legal: Array | None, carry: Any, *, turn: Array, explore: Array, rng: np.random.Generator
    ) -> Acted:
        """Choose actions with the copy, without exploration."""
        return self.inner.decide(obs, legal, carry, turn=turn, explore=np.zeros_like(explore), rng=rng)

    def state(self) -> AgentState:
        """Return the copy's state, marked as frozen."""
        inner = self.inner.state()
        return AgentState({"type": "frozen", "inner": inner.info}, inner.arrays)

    def restore(self, state: AgentState) -> None:
        """Restore the saved state of the copy."""
        self.inner.restore(AgentState(state.value("inner", dict), state.arrays, state.place("inner")))
        self.seed = self.inner.seed
