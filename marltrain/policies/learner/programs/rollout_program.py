"""Programs that read the minibatches of a rollout by the numbers of their rows, and the steps of all phases by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.jit.threads import Threads
from marltrain.jit.views import address_of
from marltrain.policies.learner.gradient_step import GradientStep
from marltrain.policies.learner.programs.recorded_step import DUE, MEASURED
from marltrain.policies.learner.programs.step_program import BoundTable
from marltrain.policies.learner.programs.step_table import GOING, StepTable
from marltrain.policies.learner.trained_team import ALONE
from marltrain.policies.tape.over_minibatches import OverMinibatches


class RolloutProgram(BoundTable):
    """The program of a phase for all minibatches of a rollout."""

    def __init__(
        self, step: GradientStep, made: StepTable, columns: Sequence[str], dealt: Mapping[str, Array]
    ) -> None:  # fmt: skip
        """See `BoundTable`.

        dealt: arrays as those that each minibatch has of its own; a phase that is not due gets no others.
        """
        super().__init__(step, made, columns)
        self._bind(dealt)
        if step.team.algorithm.ends_update is not None:
            self.execution.end_by(f"{GOING}/{ALONE}")
        one = np.zeros((len(made.metrics), self.team.num_agents), np.float32)  # of a minibatch
        self._bind({f"{MEASURED}/{name}": own for name, own in zip(made.metrics, one, strict=True)})
        if self.team.is_joint:
            self._bind_results()
        self._results = np.array([made.table.number(f"{MEASURED}/{name}") for name in made.metrics], np.int64)
        self._offsets = np.arange(len(one)) * one.strides[0]

    def bind(
        self, columns: Sequence[Array], numbers: Mapping[str, Any], dealt: Mapping[str, Array], rows: Array, due: Array
    ) -> Array:
        """Bind the columns of a rollout [K, R, ...] and its minibatches; return the array of their metrics, [P, M, K].

        numbers: tensors, see `GradientStep`.  dealt: what each minibatch has of its own, [P, K, ...] by segment.
        rows: [P, K] int64 of agents alone, [P, 1] of a team.  due: [P, K] bool.
        """
        self._fetch(numbers)
        self._move_columns(columns)
        measured = np.zeros((len(rows), len(self.metrics), self.team.num_agents), np.float32)
        self.execution.move_over_minibatches(self._results, address_of(measured) + self._offsets, measured.strides[0])
        given = dict(dealt)
        if self.team.is_joint:  # of agents alone, the program runs for those that are due
            given |= {f"{DUE}/{key}": own.T for key, own in self.team.by_member(due.T).items()}
        held = {name: array for name, array in given.items() if name in self._segments}
        self.execution.bind_minibatches(held, rows)
        return measured


class RolloutPrograms:
    """The steps of all phases over the minibatches of a rollout, in one call."""

    def __init__(self, programs: Sequence[RolloutProgram]) -> None:
        """Store the programs of the phases, in order."""
        self.programs = list(programs)
        self._all = OverMinibatches([each.execution for each in programs])

    def run(
        self, columns: Sequence[Array], numbers: Mapping[str, Any], dealt: Sequence[Mapping[str, Array]], rows: Array,
        due: Array, threads: Threads, count: int,
    ) -> list[Array]:  # fmt: skip
        """Make the steps that are `due` [P, F, K] bool, in at most `count` threads; return the metrics of each phase.

        The metrics are [P, M, K].  dealt: those of each phase.  See `RolloutProgram.bind` for the other arguments, and
        `OverMinibatches` for `due`.
        """
        measured = [
            each.bind(columns, numbers, own, rows, due[:, f])
            for f, (each, own) in enumerate(zip(self.programs, dealt, strict=True))
        ]
        of_agents: Array = np.logical_or.reduce(due, -1, keepdims=True) if self.programs[0].team.is_joint else due
        self._all.run(of_agents, threads, count)
        return measured
