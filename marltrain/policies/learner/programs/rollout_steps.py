"""RolloutSteps: all gradient steps over a rollout in one call of compiled code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.policies.backends.base import Forward, Network
from marltrain.policies.learner.minibatches import Dealt
from marltrain.policies.learner.programs.program_network import evaluated
from marltrain.policies.learner.programs.program_step import MOST_PROGRAMS, ProgramStep, kept_within, leaves
from marltrain.policies.learner.programs.recorded_step import COLUMNS, arrays_in, as_arrays
from marltrain.policies.learner.programs.rollout_program import RolloutPrograms
from marltrain.policies.learner.programs.row_blocks import RowBlocks
from marltrain.policies.learner.trained_team import ALONE


def rollout_steps(steps: Sequence[ProgramStep]) -> RolloutSteps | None:
    """Return the steps of a team over rollouts; None if they are made one by one, for each minibatch.

    This is so for teams, for phases with random numbers of their own or with turns of agents, and for algorithms whose
    updates end early and that have several phases.
    """
    if not steps:
        return None
    team, phases = steps[0].team, [step.phase for step in steps]
    plain = all(phase.draw is None and phase.turns is None for phase in phases)
    ends = team.algorithm.ends_update is not None and [phase.every for phase in phases] != [1]
    on_policy = team.algorithm.needs().on_policy and not team.algorithm.prioritized
    return RolloutSteps(steps) if on_policy and plain and not ends and not team.is_joint else None


class RolloutSteps:
    """The gradient steps of all phases over all minibatches of a rollout, of agents alone."""

    def __init__(self, steps: Sequence[ProgramStep]) -> None:
        """Store the steps of the phases, in order."""
        self.steps, self.backend = list(steps), steps[0].backend
        self.blocks = RowBlocks.of_units(steps[0].team.algorithm.needs().block or 1)
        self._threads, self._networks = steps[0].threads, dict[str, Forward]()
        self._programs: dict[Any, RolloutPrograms] = {}

    def networks(self, nets: Mapping[str, Network]) -> Mapping[str, Forward]:
        """Return networks for the rows of rollouts, see `program_network`."""
        if not self._networks:
            self._networks = evaluated(nets, self.backend, self.blocks, self._threads)
        return self._networks

    def programs(self, columns: Mapping[str, Any], rows: int) -> tuple[RolloutPrograms, dict[str, Array]] | None:
        """Return the programs for minibatches of `rows` rows, and the columns as arrays by their names.

        columns: of the rollout, tensors [K, R, ...] without weights.  None if a step must be made for each minibatch.
        """
        if any(step.measures or not step.recordable for step in self.steps):
            return None
        tree = {ALONE: as_arrays(self.backend, columns)}
        arrays = arrays_in(tree, COLUMNS)
        shapes = (rows, *((name, array.shape[2:], array.dtype.char) for name, array in arrays.items()))
        if (found := self._programs.get(shapes)) is None:
            tree[ALONE]["weight"] = np.zeros((self.steps[0].team.num_agents, rows), np.float32)
            made = [step.rollout_program(tree, list(arrays), self.blocks, rows) for step in self.steps]
            each = [program for program in made if program is not None]
            if len(each) < len(made):
                return None
            found = kept_within(self._programs, MOST_PROGRAMS)[shapes] = RolloutPrograms(each)
        return found, arrays

    def __call__(
        self, programs: RolloutPrograms, arrays: Mapping[str, Array], columns: Mapping[str, Any], dealt: Dealt,
        numbers: Mapping[str, Any], due: Array,
    ) -> list[Array]:  # fmt: skip
        """Make the steps that are `due` [P, F, K] bool; return the metrics [P, M, K] of each phase.

        programs, arrays: see `programs`.  columns: given there.  numbers: see `GradientStep`.
        Entries of `due` become False where an agent's update ended before.
        """
        self._compare(columns, dealt, numbers, due)
        measured = programs.run(list(arrays.values()), numbers, dealt, due, self._threads, self.backend.threads())
        for step, program in zip(self.steps, programs.programs, strict=True):
            step.metrics = program.metrics
            step.moved()
        return measured

    def _compare(self, columns: Mapping[str, Any], dealt: Dealt, numbers: Mapping[str, Any], due: Array) -> None:
        """Compare the gradients of a user's algorithm in the first minibatch with the framework's."""
        if not all(step.compared for step in self.steps):
            first = self.backend.rows(columns, dealt.index[:, 0], next(leaves(columns)).shape[1])
            first["weight"] = self.backend.tensor(dealt.weight[:, 0])
            for step, own in zip(self.steps, due[0], strict=True):
                step.compare({ALONE: first}, numbers, own)
