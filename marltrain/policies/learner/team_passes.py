"""The gradient passes of a team's update: its phases in order, over epochs and minibatches, and in turns of agents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.policies.backends.base import OPTIMIZER_NUMBERS
from marltrain.policies.batches.batch import TeamBatch
from marltrain.policies.learner.gradient_step import MeanMetrics
from marltrain.policies.learner.joint_step import OF_TEAM, JointSteps
from marltrain.policies.learner.learner import UpdateSchedule
from marltrain.policies.learner.minibatches import Minibatches, shares_of

if TYPE_CHECKING:
    from marltrain.policies.learner.algorithm_learner import AlgorithmLearner

Columns = dict[str, dict[str, Any]]
"""Columns of the rows as tensors: those of each part by its number, and those of the team; see `JointStep`."""


class TeamPasses:
    """Runs the gradient steps of a team, with the random numbers of its phases."""

    def __init__(self, parts: Sequence[AlgorithmLearner], steps: JointSteps, seats: Sequence[int]) -> None:
        """Store the parts of a `JointLearner`.  seats: [parts], seats of each agent."""
        self.parts, self.steps, self.seats, self.backend = parts, steps, seats, parts[0].backend
        ends = np.cumsum([part.num_agents for part in parts]).tolist()
        self.own = [slice(end - part.num_agents, end) for part, end in zip(parts, ends, strict=True)]

    def run(
        self, batch: TeamBatch, columns: Columns, learn: Array, schedule: UpdateSchedule, metrics: MeanMetrics
    ) -> None:
        """Make the passes of an update.  columns: of all rows.  learn: [K] bool.

        All agents make their passes at once; those of a phase with `turns`, one turn after another.
        """
        for turns, steps in groupby(self.steps, key=lambda step: step.phase.turns):
            phases = list(steps)
            order = [learn] if turns is None else turns(self._rng(), len(learn)) & learn
            for active in order:
                for rows, weights in self._minibatches(batch, columns, schedule):
                    present = np.concatenate([weight.sum(1) > 0 for weight in weights])
                    self._pass(phases, rows, weights, active & present, metrics)
                if turns is not None:
                    columns[OF_TEAM] |= self._after_turn(columns, active)

    def _rng(self) -> np.random.Generator:
        """Return the generator of the team: that of its first agent."""
        first: np.random.Generator = self.parts[0].rngs("update")[0]
        return first

    def _minibatches(
        self, batch: TeamBatch, columns: Columns, schedule: UpdateSchedule
    ) -> Iterator[tuple[Columns, list[Array]]]:
        """Yield the columns and the weights [K_i, S * n] of each part for epochs x minibatches of n batch steps."""
        weights = [rows.weight for rows in batch.parts]
        if schedule.minibatches in (None, 1):
            for _ in range(schedule.epochs):
                yield columns, weights
            return
        steps = np.flatnonzero(batch.weight[0] > 0)
        dealt = Minibatches(batch.weight[:, steps], schedule.minibatches, 1).dealt(schedule.epochs, [self._rng()])
        for epoch, start, stop in zip(dealt.epoch, dealt.start, dealt.stop, strict=True):
            yield self._of_steps(batch, columns, steps[dealt.index[epoch, 0, start:stop]])

    def _of_steps(self, batch: TeamBatch, columns: Columns, steps: Array) -> tuple[Columns, list[Array]]:
        """Return the columns and the weights of each part at some batch steps [n]."""
        count = batch.weight.shape[1]
        rows = {OF_TEAM: self._taken(columns[OF_TEAM], steps[None], count, batch.weight[:, steps])}
        weights = []
        for i, (part, seats, held) in enumerate(zip(self.parts, self.seats, batch.parts, strict=True)):
            index = (np.arange(seats)[:, None] * count + steps).ravel()
            weights.append(held.weight[:, index])
            every = np.tile(index, (part.num_agents, 1))
            rows[str(i)] = self._taken(columns[str(i)], every, seats * count, weights[-1])
        return rows, weights

    def _taken(self, columns: Mapping[str, Any], index: Array, count: int, weight: Array) -> dict[str, Any]:
        """Return the rows `index` [K, n] of columns [K, count, ...], with weights of sum 1."""
        held = {name: column for name, column in columns.items() if name != "weight"}
        return {**self.backend.rows(held, index, count), "weight": self.backend.tensor(shares_of(weight))}

    def _pass(
        self, steps: Sequence[Any], rows: Columns, weights: Sequence[Array], active: Array, metrics: MeanMetrics
    ) -> None:
        """Run the due phases in order for the agents that are `active`, [K] bool."""
        learns = [active[own] for own in self.own]
        counts = np.concatenate([part.gradient_steps for part in self.parts])
        passes = int(counts.max(where=active, initial=0))
        for step in steps:
            if passes % step.phase.every == 0:
                given = self._drawn(step.number, rows, weights)
                metrics.add(step, step(given, *self._of_parts(learns)), active)
        for part, learning in zip(self.parts, learns, strict=True):
            part.gradient_steps += learning

    def _drawn(self, number: int, columns: Columns, weights: Sequence[Array]) -> Columns:
        """Return the columns with the random numbers of a phase, from the generators of the agents."""
        given = dict(columns)
        for i, (part, weight) in enumerate(zip(self.parts, weights, strict=True)):
            draw = part.algorithm.phases[number].draw
            if draw is not None:
                drawn = draw(part.rngs("update"), weight.shape[1])
                given[str(i)] = {**given[str(i)], **self.backend.tensor(dict(drawn))}
        return given

    def _of_parts(self, learns: Sequence[Array]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Return, for a step: the numbers of each part, its agents that learn, and the numbers of its optimizers."""
        numbers, due, extra = {}, {OF_TEAM: None}, {}
        for i, (part, learning) in enumerate(zip(self.parts, learns, strict=True)):
            numbers[str(i)] = part.hyper.stacked()
            due[str(i)] = None if learning.all() else self.backend.tensor(learning)
            used = [name for name in OPTIMIZER_NUMBERS if np.count_nonzero(part.hyper.values[name])]
            tensors = part.hyper.tensors() if used else {}
            extra[str(i)] = {name: tensors[name] for name in used}
        extra[OF_TEAM] = {name: number[:1] for name, number in extra["0"].items()}
        return numbers, due, extra

    def _after_turn(self, columns: Columns, active: Array) -> dict[str, Any]:
        """Return the columns of the team that its algorithm computes after the turn of some agents, [K] bool."""
        learned = [self.backend.tensor(active[own]) for own in self.own]
        with self.backend.no_gradient():
            changed: dict[str, Any] = self.parts[0].algorithm.after_turn(  # type: ignore[attr-defined]
                self.backend.ops, team_of(self.parts, self.steps, columns), learned
            )
        return changed


def team_of(parts: Sequence[AlgorithmLearner], steps: JointSteps, columns: Columns) -> Any:
    """Return the team with all rows and the present weights, as `JointAlgorithm.prepare_team` gets it."""
    first = steps.steps[0]
    return first.team(first.nets, columns, {str(i): part.hyper.tensors() for i, part in enumerate(parts)})
