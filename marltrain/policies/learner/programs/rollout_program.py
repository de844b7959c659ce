"""Programs that read the minibatches of a rollout by the numbers of their rows, and the steps of all phases by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.jit.threads import Threads
from marltrain.jit.views import address_of
from marltrain.policies.learner.gradient_step import GradientStep
from marltrain.policies.learner.minibatches import Dealt
from marltrain.policies.learner.programs.recorded_step import MEASURED
from marltrain.policies.learner.programs.step_program import BoundTable
from marltrain.policies.learner.programs.step_table import GOING, WEIGHT, StepTable
from marltrain.policies.learner.trained_team import ALONE
from marltrain.policies.tape.assembly.table import INDEX
from marltrain.policies.tape.over_minibatches import OverMinibatches


class RolloutProgram(BoundTable):
    """The program of a phase for all minibatches of a rollout."""

    def __init__(self, step: GradientStep, made: StepTable, columns: Sequence[str]) -> None:
        """See `BoundTable`."""
        super().__init__(step, made, columns)
        if step.team.algorithm.ends_update is not None:
            self.execution.end_by(f"{GOING}/{ALONE}")
        one = np.zeros((len(made.metrics), self.team.num_agents), np.float32)  # of a minibatch
        self._bind({f"{MEASURED}/{name}": own for name, own in zip(made.metrics, one, strict=True)})
        self._results = np.array([made.table.number(f"{MEASURED}/{name}") for name in made.metrics], np.int64)
        self._offsets = np.arange(len(one)) * one.strides[0]

    def bind(self, columns: Sequence[Array], numbers: Mapping[str, Any], dealt: Dealt) -> Array:
        """Bind the columns of a rollout [K, R, ...] and its minibatches; return the array of their metrics, [P, M, K].

        numbers: tensors, see `GradientStep`.
        """
        self._fetch(numbers)
        self._move_columns(columns)
        measured = np.zeros((len(dealt.rows), len(self.metrics), self.team.num_agents), np.float32)
        self.execution.move_over_minibatches(self._results, address_of(measured) + self._offsets, measured.strides[0])
        given = {INDEX: dealt.index.swapaxes(0, 1), WEIGHT: dealt.weight.swapaxes(0, 1)}
        held = {name: array for name, array in given.items() if name in self._segments}
        self.execution.bind_minibatches(held, dealt.rows)
        return measured


class RolloutPrograms:
    """The steps of all phases over the minibatches of a rollout, in one call."""

    def __init__(self, programs: Sequence[RolloutProgram]) -> None:
        """Store the programs of the phases, in order."""
        self.programs = list(programs)
        self._all = OverMinibatches([each.execution for each in programs])

    def run(
        self, columns: Sequence[Array], numbers: Mapping[str, Any], dealt: Dealt, due: Array, threads: Threads,
        count: int,
    ) -> list[Array]:  # fmt: skip
        """Make the steps that are `due` [P, F, K] bool, in at most `count` threads; return the metrics of each phase.

        The metrics are [P, M, K].  See `RolloutProgram.bind` for the other arguments, and `OverMinibatches` for `due`.
        """
        measured = [each.bind(columns, numbers, dealt) for each in self.programs]
        self._all.run(due, threads, count)
        return measured
