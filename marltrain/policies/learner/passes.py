"""The gradient passes of an update: the phases in order, over transitions or over minibatches of a rollout."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.policies.backends.base import Backend
from marltrain.policies.backends.shapes import rounded_up
from marltrain.policies.batches.batch import Rollout
from marltrain.policies.batches.row_draws import Draw, drawn_rows
from marltrain.policies.hyperparameters.stacked import StackedHyperparameters
from marltrain.policies.interface.algorithm import Algorithm
from marltrain.policies.learner.gradient_step import GradientSteps, MeanMetrics
from marltrain.policies.learner.learner import UpdateSchedule
from marltrain.policies.learner.minibatches import Minibatches


class Passes:
    """Runs the gradient steps of K agents, with the random numbers of their phases.

    count: [K] int64, gradient steps so far. The array is the learner's; every pass adds to it.
    """

    def __init__(
        self, algorithm: Algorithm, backend: Backend, steps: GradientSteps, hyper: StackedHyperparameters,
        rngs: Sequence[np.random.Generator], count: Array,
    ) -> None:  # fmt: skip
        """Store the parts of a learner.  rngs: the agents' generators for updates."""
        self.algorithm, self.backend, self.steps, self.hyper = algorithm, backend, steps, hyper
        self.rngs, self.count, self.block = rngs, count, algorithm.needs().block or 1

    def solve(self, columns: Mapping[str, Any], learn: Array, updates: Array, metrics: MeanMetrics) -> None:
        """Run the phases that solve for a natural gradient, on all rows.  updates: [K], numbers of earlier updates."""
        self._run(self.steps.solving, columns, learn, updates, metrics)

    def over_transitions(
        self, columns: Mapping[str, Any], weight: Array, learn: Array, share: Array, metrics: MeanMetrics
    ) -> None:
        """Make one pass over transitions.

        columns: those of the losses and `weight`, [K, B, ...].  weight: [K, B], the weights of the rows.  share: [K],
        see `Weights.update_targets`; the target networks move here only if a single call makes the whole pass.
        """
        if self.steps.whole is None:
            self._run(self.steps, columns, learn, self.count, metrics)
        else:
            numbers = self.hyper.stacked()
            for result in self.steps.whole(columns, weight, numbers, learn, self.count, share, self.draw):
                metrics.add(*result)
        self.count += learn

    def over_rollout(
        self,
        batch: Rollout,
        rows: Mapping[str, Any],
        learn: Array,
        schedule: UpdateSchedule,
        batch_size: int,
        metrics: MeanMetrics,
    ) -> None:
        """Make epochs x minibatches gradient steps over a prepared rollout.

        rows: the columns of the losses, without `weight`.  batch_size: used where the schedule has none.
        """
        size = schedule.batch_size or batch_size
        if self.steps.at_once:
            self._at_once(
                Minibatches(batch.weight, schedule.minibatches, size, width=int), rows, learn, schedule.epochs, metrics
            )
            return
        width = rounded_up if self.backend.jit_compile else int
        cut = Minibatches(batch.weight, schedule.minibatches, size, width=width, block=self.block)
        ends = self.algorithm.ends_update
        for columns, present in cut.epochs(schedule.epochs, self.rngs, rows, self.backend):
            active = learn & present
            self._run(self.steps, columns, active, self.count, metrics)
            self.count += active
            if ends is not None and np.count_nonzero(active):
                learn = learn & ~(active & ends(metrics.last(), self.hyper.values))

    def draw(self, draw: Draw, weight: Array) -> dict[str, Any]:
        """Draw random numbers for the rows of positive weight [K, B], as tensors by name."""
        drawn = drawn_rows(draw, self.rngs, weight > 0)
        tensors: dict[str, Any] = self.backend.tensor(drawn)
        return tensors

    def _at_once(
        self, cut: Minibatches, rows: Mapping[str, Any], learn: Array, epochs: int, metrics: MeanMetrics
    ) -> None:
        """Make all gradient steps over a rollout in a single call; see `GradientSteps.at_once`."""
        (step,), dealt = self.steps, cut.dealt(epochs, self.rngs)
        due = dealt.present & learn
        measured = step(rows, dealt, self.hyper.stacked(), due)
        for values, active in zip(measured, due, strict=True):
            if np.count_nonzero(active):
                metrics.add(step, values, active)
        self.count += due.sum(0)

    def _run(
        self, steps: Iterable[Any], columns: Mapping[str, Any], active: Array, passes: Array, metrics: MeanMetrics
    ) -> None:
        """Run the due phases in order for the agents that are `active`.

        active: [K] bool.  passes: [K], numbers of earlier passes; a phase is due on every n-th one.
        """
        for step in steps:
            due = active if step.phase.every == 1 else active & (passes % step.phase.every == 0)
            if not np.count_nonzero(due):
                continue
            given = columns
            if step.phase.draw is not None:
                weight = np.asarray(self.backend.numpy(columns["weight"]))
                given = {**columns, **self.draw(step.phase.draw, weight * due[:, None])}
            metrics.add(step, step(given, self.hyper.stacked(), due), due)
