"""Members of a set that are computed together: those of one algorithm as a stack, others each by its own `decide`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import numpy as np

from marltrain.core.encoding import no_actions
from marltrain.core.layout import Array, map_tree
from marltrain.core.seeds import generator, restored, state_of
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.agent_learner import each_array
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.agents.fixed import FrozenAgent
from marltrain.policies.batches.batch import Acted, ActInputs
from marltrain.policies.learner.actor import Actor
from marltrain.policies.learner.frozen_stack import FrozenStack
from marltrain.policies.learner.noise import Noise
from marltrain.storage.state import State

FIRST_SIZE = 8
"""Agents of a new stack; it doubles when it is full."""


class Rngs:
    """Generators of acts, one for each part of a set, made at their first use.

    seed, purpose: of the seed tree: (seed, purpose, part).
    """

    def __init__(self, seed: int, purpose: str) -> None:
        """Start without a generator."""
        self.seed, self.purpose = seed, purpose
        self._of: dict[str, list[np.random.Generator]] = {}

    def of(self, part: str) -> list[np.random.Generator]:
        """Return a list of the generator of a part, the same list at every call."""
        if part not in self._of:
            self._of[part] = [generator(self.seed, self.purpose, part)]
        return self._of[part]

    def state(self) -> dict[str, Any]:
        """Return the seed and the generators' states as JSON values."""
        return {"seed": self.seed, "of": {part: state_of(rngs[0]) for part, rngs in self._of.items()}}

    def restore(self, state: State) -> None:
        """Restore what `state` returned."""
        self.seed = state.count("seed")
        self._of = {part: [restored(saved)] for part, saved in state.value("of", dict).items()}


class Part(Protocol):
    """Members that are computed together.  name: never used again for another part of the set."""

    name: str

    def act(self, rows: Array, inputs: ActInputs, turn: Array, rngs: Rngs) -> Acted:
        """Choose the actions [1, B, ...] of rows with `turn` [B] whose agent in this part is `rows` [B], -1: none."""

    def settle(self) -> None:
        """Reset generators that are ahead of the numbers used."""


class StackPart:
    """Members of one algorithm.

    template: an agent of their kind, of which copies are made.  rows: number of a member -> its row of the stack.
    """

    def __init__(self, name: str, template: LearningAgent) -> None:
        """Take a template, which must not change any more."""
        self.name, self.template = name, template
        self.stack = FrozenStack(template.algorithm, template.backend, FIRST_SIZE)
        self.rows: dict[int, int] = {}

    row: ClassVar[None] = None

    @property
    def actor(self) -> Actor:
        """The actor of all members."""
        return self.stack.actor

    @property
    def noise(self) -> Noise:
        """The noise of acts, drawn for all rows."""
        return self.stack.actor.noise

    @property
    def greedy(self) -> Array:
        """See `FrozenStack`."""
        return self.stack.greedy

    def add(self, number: int) -> int:
        """Return a free row for a member."""
        free = sorted(set(range(self.stack.size)) - set(self.rows.values()))
        if not free:
            self.stack.actor.noise.settle()
            free, self.stack = [self.stack.size], self.stack.grown()
        self.rows[number] = free[0]
        return free[0]

    def act(self, rows: Array, inputs: ActInputs, turn: Array, rngs: Rngs) -> Acted:
        """See `Part`."""
        return self.stack.act(rows, inputs, turn, rngs.of(self.name))

    def settle(self) -> None:
        """See `Part`."""
        self.stack.actor.noise.settle()

    def agent(self, number: int) -> Agent:
        """Return an independent copy of a member."""
        state, copy = self.stack.export(self.rows[number]), self.template.frozen_copy()
        copy.learner_.load_weights(0, state.arrays)
        copy.learner_.hyper.load(0, State({**state.info, "schedules": {}}))
        return FrozenAgent(copy) if state.info["greedy"] else copy


class AgentPart:
    """A member that is computed alone: an agent that cannot be stacked, or a learning agent as it is at present.

    noise: of a learning agent, for the rows in which it acts; compiled code draws some ahead.
    """

    greedy = np.zeros(1, bool)

    def __init__(self, name: str, number: int, agent: Agent) -> None:
        """Take an agent, which acts by its own `decide`."""
        self.name, self.number, self.inner = name, number, agent
        self.noise = Noise(agent.algorithm.noise) if isinstance(agent, LearningAgent) else None

    @property
    def actor(self) -> Actor | None:
        """The actor of a learning agent."""
        return self.inner.learner_.actor if isinstance(self.inner, LearningAgent) else None

    @property
    def row(self) -> int:
        """The row of a learning agent in its actor."""
        return self.inner.row if isinstance(self.inner, LearningAgent) else 0

    @property
    def rows(self) -> dict[int, int]:
        """See `StackPart`: the part has one row."""
        return {self.number: 0}

    def act(self, rows: Array, inputs: ActInputs, turn: Array, rngs: Rngs) -> Acted:
        """See `Part`; the agent gets only the rows in which it acts."""
        self.settle()
        count = len(rows)
        acts = np.flatnonzero((rows >= 0) & turn)
        if not len(acts):
            return Acted(no_actions(self.inner._seated()[1], count), inputs.carry)

        def own(array: Array) -> Array:
            picked: Array = array[0, acts]
            return picked

        def back(array: Array) -> Array:
            result = np.zeros((1, count, *array.shape[1:]), array.dtype)
            result[0, acts] = array
            return result

        rng = rngs.of(self.name)[0]
        acted = self.inner.decide(
            map_tree(own, inputs.obs), map_tree(own, inputs.legal), each_array(inputs.carry, own),
            turn=np.ones(len(acts), bool), explore=own(inputs.explore), rng=rng,
        )  # fmt: skip
        return Acted(back(acted.action), each_array(acted.carry, back))

    def settle(self) -> None:
        """See `Part`."""
        if self.noise is not None:
            self.noise.settle()


def act_by_parts(
    parts: Mapping[str, Part], places: Mapping[str, Array], inputs: ActInputs, turn: Array, rngs: Rngs
) -> Acted | None:
    """Choose the actions [1, B, ...] of the members `inputs.member` [1, B]; rows without `turn` [B] get any.

    places: of each part, its rows by the numbers of members, -1: of another part.
    The carry is that of each part, by its name. Returns None without parts.
    """
    numbers, action, carry = inputs.member[0], None, {}
    before = inputs.carry or {}
    for name, own in places.items():
        rows = own[numbers]
        given = ActInputs(inputs.obs, inputs.legal, inputs.explore, before.get(name))
        acted = parts[name].act(rows, given, turn, rngs)
        if acted.carry is not None:
            carry[name] = acted.carry
        if action is None:
            action = acted.action
        else:
            np.copyto(action, acted.action, where=(rows >= 0).reshape(1, -1, *[1] * (action.ndim - 2)))
    return None if action is None else Acted(action, carry or None)
