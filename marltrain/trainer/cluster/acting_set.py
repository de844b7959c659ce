"""ActingSet: the members of a set of policies act in a runner, as `MixedLearner` lets them act in the driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from marltrain.core.encoding import no_actions
from marltrain.core.layout import Array, map_tree
from marltrain.policies.agents.agent_learner import each_array
from marltrain.policies.agents.parts import Rngs, act_by_parts
from marltrain.policies.backends import make_backend
from marltrain.policies.batches.batch import Acted, ActInputs
from marltrain.policies.learner.frozen_stack import FrozenStack
from marltrain.policies.learner.noise import Draw
from marltrain.storage.state import State
from marltrain.trainer.cluster.acting_learner import ActingLearner
from marltrain.trainer.cluster.columns import Columns
from marltrain.trainer.cluster.messages import ActingTask, MembersNews, PartTask

Cut = Callable[[Draw], Draw]
"""See `Columns.cut`."""


class ActingSet:
    """Acting of the members of a set in a runner's environments."""

    actor = None
    counts = np.zeros((1, 0), np.int64)

    def __init__(self, task: ActingTask, columns: Columns, numbers: Array) -> None:
        """Start without members; `take` adds them.

        numbers: [n] int64, the members that play now, which the runner writes there.
        """
        self._numbers, self._columns, self._players = numbers, columns, task.players
        self._parts: dict[str, _Stack | _Alone] = {}
        self._places: dict[str, Array] = {}
        self._rngs = Rngs(0, "act")

    def take(self, news: MembersNews) -> None:
        """Add and remove members."""
        for name, task in news.parts.items():
            self._parts[name] = (_Stack if task.backend else _Alone)(name, task, self._cut)
        self._parts = {name: self._parts[name] for name in news.rows}
        for name, arrived in news.arrived.items():
            part = self._parts[name]
            if isinstance(part, _Stack):
                part.take(news.sizes[name], {row: State(*state) for row, state in arrived.items()})
        known = [number for rows in news.rows.values() for number in rows]
        size = max(known) + 1 - min(0, *known)  # negative numbers count from the end
        self._places = {name: np.full(size, -1) for name in news.rows}
        for name, rows in news.rows.items():
            self._places[name][list(rows)] = list(rows.values())

    def _cut(self, draw: Draw) -> Draw:
        return self._columns.cut(draw, self._players)

    def load(self, learners: Sequence[Any]) -> None:
        """Take the weights of learners for agents as they are at present."""
        for part in self._parts.values():
            if isinstance(part, _Stack) and part.learner >= 0:
                part.copy(learners[part.learner])

    def draw_from(self, state: dict[str, Any]) -> Rngs:
        """Take the state of the generators; return the generators of the acts."""
        self.settle()
        self._rngs = Rngs(0, "act")
        self._rngs.restore(State(state))
        return self._rngs

    @property
    def generators(self) -> dict[str, Any]:
        """State of the generators."""
        return self._rngs.state()

    def rngs(self, purpose: str) -> Rngs:
        """Return the generators."""
        return self._rngs

    def settle(self) -> None:
        """Reset the generators of acts that are ahead of the numbers used."""
        for part in self._parts.values():
            part.settle()

    def act(self, inputs: ActInputs, *, turn: Array, rngs: Rngs) -> Acted:
        """See `MixedLearner`."""
        cells = self._columns.cells[self._players % self._columns.matches]
        inputs.member = self._numbers[cells].reshape(1, -1)
        acted = act_by_parts(self._parts, self._places, inputs, turn[0], rngs)
        if acted is None:
            raise RuntimeError("a set of policies acts without members")
        return acted


class _Stack:
    """Members of one algorithm, or an agent as it is at present; see `StackPart`.

    learner: number of the learner of the agent as it is; -1: members.
    """

    def __init__(self, name: str, task: PartTask, cut: Cut) -> None:
        self.name, self.learner, self._row, self._cut = name, task.learner, task.row, cut
        self._algorithm, self._backend = task.algorithm(), make_backend(task.backend, "cpu")
        self.stack = self._made(1)

    def _made(self, size: int) -> FrozenStack:
        stack = FrozenStack(self._algorithm, self._backend, size)
        stack.actor.noise = stack.actor.noise.by(self._cut(self._algorithm.noise))
        return stack

    def take(self, size: int, arrived: dict[int, State]) -> None:
        """Load members into their rows."""
        if size != self.stack.size:
            self.settle()
            before, self.stack = self.stack, self._made(size)
            for row in range(min(before.size, size)):
                self.stack.load(row, before.export(row))
        for row, state in arrived.items():
            self.stack.load(row, state)

    def copy(self, learner: ActingLearner) -> None:
        """Take the agent as it is now."""
        self.stack.copy(learner.weights, learner.actor, self._row, 0)

    def act(self, rows: Array, inputs: ActInputs, turn: Array, rngs: Rngs) -> Acted:
        """See `Part`."""
        return self.stack.act(rows, inputs, turn, rngs.of(self.name))

    def settle(self) -> None:
        """See `Part`."""
        self.stack.actor.noise.settle()


class _Alone:
    """A member that is computed alone, each row with a generator of its own, so that runners may share the rows."""

    def __init__(self, name: str, task: PartTask, cut: Cut) -> None:
        self.name = name
        self._agent = task.agent()
        seeds: Draw = lambda rngs, rows: {"seed": rngs[0].integers(2**63, size=(1, rows))}  # noqa: E731
        self._seeds = cut(seeds)

    def act(self, rows: Array, inputs: ActInputs, turn: Array, rngs: Rngs) -> Acted:
        """See `Part`."""
        seeds = self._seeds(rngs.of(self.name), len(rows))["seed"][0]
        acts = np.flatnonzero((rows >= 0) & turn)
        if not len(acts):
            return Acted(no_actions(self._agent._seated()[1], len(rows)), inputs.carry)
        decided = [self._decided(inputs, row, np.random.default_rng(seeds[row])) for row in acts.tolist()]

        def back(array: Array) -> Array:
            result = np.zeros((1, len(rows), *array.shape[1:]), array.dtype)
            result[0, acts] = array
            return result

        action = np.concatenate([acted.action for acted in decided])
        return Acted(back(action), each_array(_joined([acted.carry for acted in decided]), back))

    def _decided(self, inputs: ActInputs, row: int, rng: np.random.Generator) -> Acted:
        def own(array: Array) -> Array:
            picked: Array = array[0, row : row + 1]
            return picked

        return self._agent.decide(
            map_tree(own, inputs.obs), map_tree(own, inputs.legal), each_array(inputs.carry, own),
            turn=np.ones(1, bool), explore=own(inputs.explore), rng=rng,
        )  # fmt: skip

    def settle(self) -> None:
        """See `Part`; nothing is ahead."""


def _joined(carries: Sequence[Any]) -> Any:
    """Return the carries of several rows as one."""
    first = carries[0]
    if isinstance(first, dict):
        return {name: _joined([carry[name] for carry in carries]) for name in first}
    if isinstance(first, tuple):
        return tuple(_joined(own) for own in zip(*carries, strict=True))
    return None if first is None else np.concatenate(carries)
