"""RolloutSteps: all gradient steps over a rollout in one call of compiled code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from marltrain.core.layout import Array, map_tree
from marltrain.policies.backends.base import Forward, Network
from marltrain.policies.learner.minibatches import Dealt
from marltrain.policies.learner.programs.program_network import evaluated
from marltrain.policies.learner.programs.program_step import MOST_PROGRAMS, ProgramStep, kept_within, leaves
from marltrain.policies.learner.programs.recorded_step import COLUMNS, arrays_in, as_arrays
from marltrain.policies.learner.programs.rollout_program import RolloutPrograms
from marltrain.policies.learner.programs.row_blocks import RowBlocks
from marltrain.policies.learner.programs.step_table import WEIGHT
from marltrain.policies.learner.trained_team import ALONE, Columns
from marltrain.policies.tape.assembly.table import INDEX

Examples = Callable[[int], Mapping[int, Mapping[str, Any]]]
"""Number of rows -> arrays [K, rows, ...] like the random numbers of phases, by the numbers of the phases."""


def rollout_steps(steps: Sequence[ProgramStep]) -> RolloutSteps | None:
    """Return the steps of a team over rollouts; None if they are made one by one, for each minibatch.

    This is so for phases with turns of agents; for algorithms whose updates end early, and that have several phases,
    random numbers or a team; and for teams whose phases draw random numbers.
    """
    if not steps:
        return None
    team, phases = steps[0].team, [step.phase for step in steps]
    draws = any(phase.draw is not None for phase in phases)
    ends = team.algorithm.ends_update is not None
    if any(phase.turns is not None for phase in phases) or (team.is_joint and (draws or ends)):
        return None
    if ends and (draws or [phase.every for phase in phases] != [1]):
        return None
    on_policy = team.algorithm.needs().on_policy and not team.algorithm.prioritized
    return RolloutSteps(steps) if on_policy else None


class RolloutSteps:
    """The gradient steps of all phases over all minibatches of a rollout.

    A team has no minibatches: each of its steps reads all rows.
    """

    def __init__(self, steps: Sequence[ProgramStep]) -> None:
        """Store the steps of the phases, in order."""
        self.steps, self.backend, self.team = list(steps), steps[0].backend, steps[0].team
        self.blocks = RowBlocks.of_units(self.team.algorithm.needs().block or 1)
        self._threads, self._networks = steps[0].threads, dict[str, Forward]()
        self._programs: dict[Any, RolloutPrograms] = {}

    def networks(self, nets: Mapping[str, Network]) -> Mapping[str, Forward]:
        """Return networks for the rows of rollouts, see `program_network`."""
        if not self._networks:
            self._networks = evaluated(nets, self.backend, self.blocks, self._threads)
        return self._networks

    def programs(
        self, columns: Columns, rows: int | None, examples: Examples
    ) -> tuple[RolloutPrograms, dict[str, Array]] | None:
        """Return the programs, and the columns as arrays by their names; None if steps must be made one by one.

        columns: of the rollout, tensors [K, R, ...]; of agents alone without weights.
        rows: of a minibatch of agents alone; None: each minibatch of a team holds all rows.
        """
        if not all(step.recordable for step in self.steps):
            return None
        tree = as_arrays(self.backend, columns)
        arrays = arrays_in(tree, COLUMNS)
        fixed = 0 if rows is None else 2  # the rows of a rollout of agents alone may be any number
        shapes = (
            rows,
            self.steps[0].measures,
            *((name, array.shape[fixed:], array.dtype.char) for name, array in arrays.items()),
        )
        if (found := self._programs.get(shapes)) is None:
            drawn = {} if rows is None else examples(rows)
            made = [step.rollout_program(tree, drawn.get(step.number, {}), self.blocks, rows) for step in self.steps]
            each = [program for program in made if program is not None]
            if len(each) < len(made):
                return None
            found = kept_within(self._programs, MOST_PROGRAMS)[shapes] = RolloutPrograms(each)
        return found, arrays

    def __call__(
        self, programs: RolloutPrograms, arrays: Mapping[str, Array], columns: Columns, dealt: Dealt | None,
        drawn: Mapping[int, Mapping[str, Any]], numbers: Mapping[str, Any], due: Array,
    ) -> list[Array]:  # fmt: skip
        """Make the steps that are `due` [P, F, K] bool; return the metrics [P, M, K] of each phase.

        programs, arrays: see `programs`.  columns: given there.  dealt: the minibatches of agents alone.
        drawn: the random numbers of phases by their numbers, [P, K, W, ...].  numbers: see `GradientStep`.
        Entries of `due` become False where an agent's update ended before.
        """
        self._compare(columns, dealt, drawn, numbers, due)
        rows, given = np.ones((len(due), 1), np.int64), dict[str, Array]()
        if dealt is not None:
            rows = dealt.rows
            given = {INDEX: dealt.index.swapaxes(0, 1), WEIGHT: dealt.weight.swapaxes(0, 1)}
        own = [given | arrays_in({ALONE: drawn.get(step.number, {})}, COLUMNS) for step in self.steps]
        columns_of = list(arrays.values())
        measured = programs.run(columns_of, numbers, own, rows, due, self._threads, self.backend.threads())
        for step, program in zip(self.steps, programs.programs, strict=True):
            step.metrics = program.metrics
            step.moved()
        return measured

    def _compare(
        self, columns: Columns, dealt: Dealt | None, drawn: Mapping[int, Mapping[str, Any]], numbers: Mapping[str, Any],
        due: Array,
    ) -> None:  # fmt: skip
        """Compare the gradients of a user's algorithm in each phase's first minibatch with the framework's."""
        for step, own in zip(self.steps, due.swapaxes(0, 1), strict=True):
            made = own.any(1)
            if step.compared or not np.count_nonzero(made):
                continue
            first, i = columns, int(made.argmax())
            if dealt is not None:
                rows = self.backend.rows(columns[ALONE], dealt.index[:, i], next(leaves(columns)).shape[1])
                rows |= self.backend.tensor(map_tree(itemgetter(i), drawn.get(step.number, {})))
                first = {ALONE: {**rows, "weight": self.backend.tensor(dealt.weight[:, i])}}
            step.compare(first, numbers, own[i])
