"""Agents with models or algorithms of external code: each has a learner and random streams of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from marltrain.errors import AgentError, SaveError, shown
from marltrain.files import State
from marltrain.layout import Array, Layout, Obs, arrays_of, map_obs, without_mask
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.spaces import (
    described_spaces,
    encoded,
    exploring,
    in_units,
    spaces_from,
)
from marltrain.policies.batch import Acted, Needs
from marltrain.policies.learner.learner import PURPOSES, Learner, Pace
from marltrain.policies.memory.readers import Reader
from marltrain.policies.memory.streams import Streams
from marltrain.random import MOST_SEED, fresh_seed, generator, restored, state_of


class ExternalAgent(Agent):
    """Base of agents whose weights and losses are a user's own.

    A subclass defines `needs`, `decide` and `learn`. The global generators of its framework and of numpy, which foreign
    code draws from, are seeded from the agent's streams around `decide` and `learn`, and put back afterwards.
    framework: the backend's name.
    """

    framework: str = "torch"
    pace: Pace = Pace()
    _learner: ExternalLearner | None = None

    def _marks(self) -> list[str]:
        return [f"backend={self.framework!r}", *super()._marks()]

    def needs(self) -> Needs:
        """Return what it must be given to learn; asked when it has its seat."""
        raise TypeError(f"{type(self).__name__} must define needs")

    def learn(self, batch: Any, batch_size: int) -> tuple[dict[str, float], int]:
        """Learn from what the reader gave; return metrics and the number of gradient passes."""
        raise TypeError(f"{type(self).__name__} must define learn")

    def reader(self, streams: Streams, seats: Sequence[Sequence[int]]) -> Reader:
        """Return how it reads what happened."""
        return streams.reader(seats, self.needs())

    def gamma(self) -> float:
        """Return the discount that the reader applies."""
        return 1.0

    def at(self, env_steps: int) -> None:
        """Set whatever follows a schedule to its value after `env_steps` env steps of the run."""

    def described(self) -> dict[str, Any]:
        """Return its spaces, as far as they are known, as JSON values."""
        return {
            **described_spaces(self.observation_space, self.action_space),
            "frame_stack": 1 if self.layout is None else self.layout.stack,
        }

    def adopt(self, info: Mapping[str, Any]) -> None:
        """Take the spaces that `described` returned; raises SaveError where it sits before others."""
        if "observation_space" in info:
            here = self.described()
            if self.layout is not None and any(here[name] != info[name] for name in here):
                raise SaveError(f"the saved agent is of other spaces than those of its seat: {shown(here)}")
            self.observation_space, self.action_space = spaces_from(info)
            self.layout = Layout(without_mask(self.observation_space)[0], info["frame_stack"])

    @property
    def learns(self) -> bool:
        """Every such agent can learn."""
        return True

    def learner(self) -> ExternalLearner:
        """Return the one learner it has, made when it is first asked for."""
        if self._learner is None:
            self.seed = fresh_seed() if self.seed is None else self.seed
            self._learner = ExternalLearner(self, self.seed)
        return self._learner

    def act(self, observation: Any, legal: Any = None, explore: bool | Array = False) -> Any:
        """Return the action; see `Agent.act`."""
        layout, space = self._seated()
        obs, mask, batched = encoded(layout, observation, legal, space)
        rows = len(arrays_of(obs)[0])
        coin = exploring(explore, rows)
        rng = self.learner().rngs("act")[0]
        action = in_units(space, self.decide(obs, mask, None, turn=np.ones(rows, bool), explore=coin, rng=rng).action)
        return action if batched else action[0]


class ExternalLearner(Learner):
    """One agent with code of its own (K = 1). It owns the random streams; the weights are the agent's."""

    def __init__(self, agent: ExternalAgent, seed: int) -> None:
        """Wrap a seated agent."""
        self.agent, self.seed = agent, seed
        self.needs, self.pace = agent.needs(), agent.pace
        self.gradient_steps = np.zeros(1, np.int64)
        self._streams = {purpose: [generator(seed, purpose)] for purpose in PURPOSES}

    def rngs(self, purpose: str) -> list[np.random.Generator]:
        """Return the agent's stream; that for "test" starts anew at every call."""
        return [generator(self.seed, "test")] if purpose == "test" else self._streams[purpose]

    def gammas(self) -> Array:
        """Return the agent's discount, [1]."""
        return np.array([self.agent.gamma()])

    def at(self, env_steps: int) -> None:
        """Let the agent follow its schedules."""
        self.agent.at(env_steps)

    def reader(self, streams: Streams, seats: Sequence[Sequence[int]]) -> Reader:
        """Return the agent's own reader."""
        return self.agent.reader(streams, seats)

    def act(self, obs: Obs, legal: Array | None, carry: Any, *, turn: Array, explore: Array, rngs: Any) -> Acted:
        """Ask the agent, without the axis K."""
        acted = self.agent.decide(
            map_obs(lambda array: array[0], obs), None if legal is None else legal[0], carry,
            turn=turn[0], explore=explore[0], rng=rngs[0],
        )  # fmt: skip
        return Acted(acted.action[None], acted.carry, {name: value[None] for name, value in acted.extras.items()})

    def update(self, batch: Any, *, learn: Array, batch_size: int) -> dict[str, Array]:
        """Let the agent learn, with the global generators seeded from its own stream."""
        if not learn[0]:
            return {}
        with seeded(self.agent.framework, self._streams["update"][0]):
            metrics, passes = self.agent.learn(batch, batch_size)
        self.gradient_steps += passes
        return {name: np.array([value], np.float64) for name, value in metrics.items()}

    def describe(self) -> dict[str, Any]:
        """Return its counters and random streams as JSON values."""
        rngs = {purpose: state_of(rngs[0]) for purpose, rngs in self._streams.items()}
        return {"seed": self.seed, "gradient_steps": int(self.gradient_steps[0]), "rngs": rngs}

    def restore(self, state: State) -> None:
        """Continue where `describe` was taken; raises SaveError for values that it does not give."""
        self.seed, self.gradient_steps[0] = state.count("seed", high=MOST_SEED), state.count("gradient_steps")
        for purpose, rngs in self._streams.items():
            rngs[0] = restored(state.part("rngs").value(purpose, dict))


def seeded(framework: str, rng: np.random.Generator) -> Any:
    """Return a context in which a framework's and numpy's global generators are seeded from an agent's stream."""
    return import_module(f"marltrain.policies.backends.{framework}.randomness").seeded(rng)


def check_legal(legal: Array | None, action: Array, turn: Array, who: str, remedy: str) -> None:
    """Raise AgentError when an action [B] of a row that has its turn is not legal."""
    if legal is None:
        return
    broken = turn & ~np.take_along_axis(legal, action[:, None].astype(np.int64), 1)[:, 0]
    if broken.any():
        row = int(np.flatnonzero(broken)[0])
        raise AgentError(
            f"{who} chose action {int(action[row])} in row {row} of {len(turn)}, where only "
            f"{np.flatnonzero(legal[row]).tolist()} are legal. {remedy}"
        )
