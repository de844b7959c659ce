"""Agents with external models or algorithms; each has its own learner and random streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from marltrain.core.encoding import described_spaces, spaces_from
from marltrain.core.errors import AgentError, SaveError, shown
from marltrain.core.layout import Array, Space, map_tree
from marltrain.core.legal import Legal
from marltrain.core.seeds import MOST_SEED, fresh_seed, generator, restored, state_of
from marltrain.policies.agents.agent import Agent
from marltrain.policies.batches.batch import Acted, ActInputs
from marltrain.policies.learner.learner import PURPOSES, Learner, UpdateSchedule
from marltrain.policies.memory.config import Replay, Rollouts, chosen_memory
from marltrain.policies.memory.memory_numbers import AgentMemory, MemoryNumbers
from marltrain.policies.memory.needs import Needs
from marltrain.policies.memory.readers import Reader, UniformReader
from marltrain.policies.memory.sequences import transition_reader
from marltrain.policies.memory.streams import Streams
from marltrain.storage.state import State


class ExternalAgent(Agent):
    """Base class of agents with external weights and losses.

    A subclass defines `needs`, `decide` and `learn`. External code draws from the global generators of its framework
    and of numpy. They are seeded from the agent's streams during `decide` and `learn`, and restored afterwards.

    framework: name of the backend.
    update_schedule: when and how often it updates.
    replay: the memory at the start.  memory_numbers: those of its settings that may change; None for `Rollouts`.
    """

    framework: str = "torch"
    update_schedule: UpdateSchedule = UpdateSchedule()
    replay: Replay | Rollouts
    memory_numbers: MemoryNumbers | None = None
    _learner: ExternalLearner | None = None

    def _remember(self, memory: Any, allowed: tuple[type[Any], ...]) -> None:
        """Set the memory; raises ConfigError for one of another type."""
        self.replay = chosen_memory(memory, allowed, type(self).__name__)
        if isinstance(self.replay, Replay):
            self.memory_numbers = MemoryNumbers(self.replay, type(self).__name__)

    @property
    def memory(self) -> Any:
        """The memory's settings; numbers (alpha, beta) may be set at any time."""
        numbers = self.memory_numbers
        return self.replay if numbers is None else AgentMemory(numbers, 0, numbers.set)

    def _marks(self) -> list[str]:
        return [f"backend={self.framework!r}", *super()._marks()]

    def needs(self) -> Needs:
        """Return the data required for learning; called after the agent takes its seat."""
        raise TypeError(f"{type(self).__name__} must define needs")

    def learn(self, batch: Any, batch_size: int) -> tuple[dict[str, float], int]:
        """Learn from the reader's batch; return metrics and the number of gradient passes."""
        raise TypeError(f"{type(self).__name__} must define learn")

    def reader(self, streams: Streams, seats: Sequence[Sequence[int]]) -> Reader:
        """Return the reader of the streams for this agent."""
        needs, numbers = self.needs(), self.memory_numbers
        make = None if numbers is None else partial(transition_reader(needs, UniformReader), numbers=numbers)
        return streams.reader(seats, needs, make)

    def close(self) -> None:
        """End the processes that learning started; a later update starts them again."""

    def gamma(self) -> float:
        """Return the discount that the reader applies."""
        return 1.0

    def apply_schedules(self, env_steps: int) -> None:
        """Set all scheduled settings to their values after `env_steps` env steps of the run."""
        if self.memory_numbers is not None:
            self.memory_numbers.apply_schedules(env_steps)

    def described(self) -> dict[str, Any]:
        """Return the spaces, if they are known, and the frame stack as JSON values."""
        return {
            **described_spaces(self.observation_space, self.action_space),
            "frame_stack": 1 if self.layout is None else self.layout.stack,
        }

    def adopt(self, info: Mapping[str, Any]) -> None:
        """Adopt the spaces that `described` returned; raises SaveError if they differ from those of its seat."""
        if "observation_space" in info:
            here = self.described()
            if self.layout is not None and any(here[name] != info[name] for name in here):
                raise SaveError(f"the saved agent is of other spaces than those of its seat: {shown(here)}")
            self._set_spaces(*spaces_from(info), info["frame_stack"])

    @property
    def learns(self) -> bool:
        """Always True."""
        return True

    def learner(self) -> ExternalLearner:
        """Return the agent's learner; the first call creates it."""
        if self._learner is None:
            self.seed = fresh_seed() if self.seed is None else self.seed
            self._learner = ExternalLearner(self, self.seed)
        return self._learner

    def act(self, observation: Any, legal: Any = None, explore: bool | Array = False) -> Any:
        """Return the action; see `Agent.act`."""
        return self._act_by_decide(observation, legal, explore, lambda: self.learner().rngs("act")[0])[0]


class ExternalLearner(Learner):
    """Learner of one external agent (K = 1). It owns the random streams; the agent owns the weights."""

    def __init__(self, agent: ExternalAgent, seed: int) -> None:
        """Wrap a seated agent."""
        self.agent, self.seed = agent, seed
        self.needs, self.update_schedule = agent.needs(), agent.update_schedule
        self.gradient_steps = np.zeros(1, np.int64)
        self._streams = {purpose: [generator(seed, purpose)] for purpose in PURPOSES}

    def rngs(self, purpose: str) -> list[np.random.Generator]:
        """Return the agent's generator; the generator for "test" is reseeded at every call."""
        return [generator(self.seed, "test")] if purpose == "test" else self._streams[purpose]

    def gammas(self) -> Array:
        """Return the agent's discount, [1]."""
        return np.array([self.agent.gamma()])

    def apply_schedules(self, env_steps: int) -> None:
        """Set the agent's scheduled settings."""
        self.agent.apply_schedules(env_steps)

    def reader(self, streams: Streams, seats: Sequence[Sequence[int]]) -> Reader:
        """Return the agent's own reader."""
        return self.agent.reader(streams, seats)

    def act(self, inputs: ActInputs, *, turn: Array, rngs: Any) -> Acted:
        """Choose actions with `agent.decide`, which has no axis K."""
        acted = self.agent.decide(
            map_tree(lambda array: array[0], inputs.obs), None if inputs.legal is None else inputs.legal[0],
            inputs.carry, turn=turn[0], explore=inputs.explore[0], rng=rngs[0],
        )  # fmt: skip
        return Acted(acted.action[None], acted.carry, {name: value[None] for name, value in acted.extras.items()})

    def update(self, batch: Any, *, learn: Array, batch_size: int) -> dict[str, Array]:
        """Call the agent's `learn`, with the global generators seeded from its stream; returns metrics [1]."""
        if not learn[0]:
            return {}
        with seeded(self.agent.framework, self._streams["update"][0]):
            metrics, passes = self.agent.learn(batch, batch_size)
        self.gradient_steps += passes
        return {name: np.array([value], np.float64) for name, value in metrics.items()}

    def close(self) -> None:
        """End the processes of the agent's strategy."""
        self.agent.close()

    def describe(self) -> dict[str, Any]:
        """Return its counters and random streams as JSON values."""
        rngs = {purpose: state_of(rngs[0]) for purpose, rngs in self._streams.items()}
        numbers = self.agent.memory_numbers
        memory = {} if numbers is None or not numbers.names else {"memory": numbers.export(0)}
        return {"seed": self.seed, "gradient_steps": int(self.gradient_steps[0]), "rngs": rngs, **memory}

    def restore(self, state: State) -> None:
        """Restore the values that `describe` returned; raises SaveError for invalid values."""
        self.seed, self.gradient_steps[0] = state.count("seed", high=MOST_SEED), state.count("gradient_steps")
        for purpose, rngs in self._streams.items():
            rngs[0] = restored(state.part("rngs").value(purpose, dict))
        numbers = self.agent.memory_numbers
        if numbers is not None and numbers.names and "memory" in state.info:
            numbers.load(0, state.part("memory"))


def seeded(framework: str, rng: np.random.Generator) -> Any:
    """Return a context that seeds the global generators of a framework and of numpy from an agent's stream."""
    return import_module(f"marltrain.policies.backends.{framework}.randomness").seeded(rng)


def check_legal(space: Space, legal: Array | None, action: Array, turn: Array, who: str, remedy: str) -> None:
    """Raise AgentError if an action [B] or [B, D] of a row with `turn` True is illegal."""
    if legal is None:
        return
    choices = Legal(space)
    broken = turn & ~choices.permits(legal, action.astype(np.int64))
    if broken.any():
        row = int(np.flatnonzero(broken)[0])
        raise AgentError(
            f"{who} chose action {action[row].astype(np.int64).tolist()} in row {row} of {len(turn)}, where only "
            f"{choices.listed(legal[row])} are legal. {remedy}"
        )
