"""FrozenStack: agents of one algorithm that act and never learn, computed together; each has rows of its own number."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from marltrain.core.encoding import no_actions
from marltrain.core.errors import SaveError
from marltrain.core.layout import Array, map_tree
from marltrain.policies.backends.base import Backend
from marltrain.policies.batches.batch import Acted, ActInputs
from marltrain.policies.batches.normalization import RunningStatistics
from marltrain.policies.hyperparameters.stacked import StackedHyperparameters
from marltrain.policies.interface.algorithm import OBSERVATION, Algorithm
from marltrain.policies.learner.actor import Actor
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.policies.learner.weights import Weights, grouped
from marltrain.storage.checks import counted
from marltrain.storage.state import State


class FrozenStack:
    """Up to `size` frozen agents of one algorithm: what acting needs, without optimizers and target networks.

    nets: name -> network of all agents.  greedy: [size] bool, agents that never explore.
    """

    def __init__(self, algorithm: Algorithm, backend: Backend, size: int) -> None:
        """Build the networks; `copy_from` or `load` sets their weights. The algorithm's networks are NetworkSpecs."""
        self.algorithm, self.backend, self.size = algorithm, backend, size
        self.hyper = StackedHyperparameters(algorithm.settings, algorithm.name, size, backend)
        self.nets = {name: backend.network(definition, None, size) for name, definition in algorithm.networks().items()}
        widths = algorithm.statistics()
        self.statistics = {name: RunningStatistics(size, widths[name]) for name in widths if name == OBSERVATION}
        self.greedy = np.zeros(size, bool)
        self.actor = Actor(algorithm, backend, self.hyper, None)
        self.actor.use(self.nets, self.statistics)

    def copy_from(self, learner: AlgorithmLearner, row: int, into: int) -> None:
        """Copy the agent `row` of a learner, with the present values of its numbers."""
        learner.copies.wait()
        self.copy(learner.weights, learner.actor, row, into)

    def copy(self, weights: Weights, actor: Actor, row: int, into: int) -> None:
        """Copy the agent `row` of K agents.  actor: has their numbers and counts."""
        for name, net in self.nets.items():
            net.load(into, weights.online[name].arrays(row))
        for name, statistics in self.statistics.items():
            statistics.load(into, weights.statistics[name].arrays(row))
        self._set_numbers(into, {"hyper": actor.hyper.export(row)["hyper"]})
        self.actor.counts[into] = actor.counts[row]

    def grown(self) -> FrozenStack:
        """Return a stack of twice as many agents, the first of which are those of this one."""
        result = FrozenStack(self.algorithm, self.backend, 2 * self.size)
        for row in range(self.size):
            result.load(row, self.export(row))
        return result

    def act(self, rows: Array, inputs: ActInputs, turn: Array, rngs: list[np.random.Generator]) -> Acted:
        """Choose actions [1, B, ...] by the agent of each row, `rows` [B] int64; -1: not of this stack.

        turn: [B] bool; the actions of rows without it, and of rows of no agent here, are 0.
        rngs: one generator. Its noise is drawn for every row, so it does not depend on who acts.
        """
        noise = self.actor.noise.next(rngs, len(rows))
        acts = np.flatnonzero((rows >= 0) & turn)
        if not len(acts):
            return Acted(no_actions(self.algorithm.action_space, len(rows)), inputs.carry)
        dealt = Dealt.of(rows[acts], acts, self.size)
        given = ActInputs(
            map_tree(dealt.out, inputs.obs), map_tree(dealt.out, inputs.legal), dealt.out(inputs.explore),
            map_tree(dealt.out, inputs.carry),
        )  # fmt: skip
        if self.greedy.any():
            given.explore &= ~self.greedy[:, None]
        acted = self.actor.act_dealt(given, map_tree(dealt.out, dict(noise)), rngs[0], dealt.counts)
        return Acted(dealt.back(acted.action, len(rows)), map_tree(lambda a: dealt.back(a, len(rows)), acted.carry))

    def export(self, row: int) -> State:
        """Return what one agent acts by."""
        arrays = {f"net/{name}/{key}": a for name, net in self.nets.items() for key, a in net.arrays(row).items()}
        for name, statistics in self.statistics.items():
            arrays.update({f"statistics/{name}/{key}": value for key, value in statistics.arrays(row).items()})
        numbers = {"hyper": self.hyper.export(row)["hyper"], "greedy": bool(self.greedy[row])}
        return State({**numbers, "counts": self.actor.counts[row].tolist()}, arrays)

    def load(self, row: int, state: State) -> None:
        """Load what `export` returned; raises SaveError for an agent of another kind."""
        parts: dict[str, Any] = {f"net/{name}": net for name, net in self.nets.items()}
        parts |= {f"statistics/{name}": statistics for name, statistics in self.statistics.items()}
        held = grouped(state.arrays)
        if set(held) != set(parts):
            raise SaveError(f"{state.place('')} holds {sorted(held)}, a {self.algorithm.name} agent {sorted(parts)}")
        for name, part in parts.items():
            part.load(row, held[name])
        self._set_numbers(row, state.info, state.name)
        self.greedy[row] = state.value("greedy", bool)
        counts = [counted(state.place("counts"), count) for count in state.values("counts", int)]
        if len(counts) != self.actor.counts.shape[1]:
            raise SaveError(f"{state.place('counts')} has {len(counts)}, expected {self.actor.counts.shape[1]}")
        self.actor.counts[row] = counts

    def _set_numbers(self, row: int, info: dict[str, Any], name: str = "") -> None:
        """Set the numbers of one agent; they follow no schedule any more."""
        self.hyper.load(row, State({"hyper": info.get("hyper"), "schedules": {}}, name=name))


class Dealt(NamedTuple):
    """Rows dealt to K agents: row `rows[i]` is at place `places[i]` of arrays [K * width, ...].

    counts: [K] int64, rows of each agent, which have its first places.  width: the largest of them.
    """

    rows: Array
    places: Array
    counts: Array
    width: int

    @classmethod
    def of(cls, agents: Array, rows: Array, count: int) -> Dealt:
        """Deal rows [n] to the agents [n] of `count` agents, in order."""
        counts = np.bincount(agents, minlength=count)
        order, width = np.argsort(agents, kind="stable"), int(counts.max())
        first = np.arange(0, count * width, width) - (np.cumsum(counts) - counts)
        return cls(rows[order], np.repeat(first, counts) + np.arange(len(rows)), counts, width)

    def out(self, array: Array) -> Array:
        """Return the rows of an array [1, B, ...] at their places, [K, width, ...]; 0 elsewhere."""
        result = np.zeros((len(self.counts) * self.width, *array.shape[2:]), array.dtype)
        result[self.places] = array[0].take(self.rows, 0)
        return result.reshape(len(self.counts), self.width, *array.shape[2:])

    def back(self, array: Array, count: int) -> Array:
        """Return an array [K, width, ...] as rows [1, B, ...], `count` of them; 0 for rows that were not dealt."""
        result = np.zeros((1, count, *array.shape[2:]), array.dtype)
        result[0, self.rows] = array.reshape(-1, *array.shape[2:]).take(self.places, 0)
        return result
