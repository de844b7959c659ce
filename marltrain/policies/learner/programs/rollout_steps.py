"""RolloutSteps: all gradient steps over a rollout in one call of compiled code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from marltrain.core.layout import Array, map_tree
from marltrain.policies.backends.base import Forward, Network
from marltrain.policies.learner.minibatches import Dealt
from marltrain.policies.learner.programs.program_network import evaluated
from marltrain.policies.learner.programs.program_step import MOST_PROGRAMS, ProgramStep, kept_within, leaves
from marltrain.policies.learner.programs.recorded_step import COLUMNS, arrays_in, as_arrays
from marltrain.policies.learner.programs.rollout_program import RolloutProgram, RolloutPrograms
from marltrain.policies.learner.programs.row_blocks import RowBlocks
from marltrain.policies.learner.programs.step_table import WEIGHT
from marltrain.policies.learner.trained_team import ALONE, Columns
from marltrain.policies.tape.assembly.table import INDEX

Examples = Callable[[int], Mapping[int, Mapping[str, Any]]]
"""Number of rows -> arrays [K, rows, ...] like the random numbers of phases, by the numbers of the phases."""


def rollout_steps(steps: Sequence[ProgramStep]) -> RolloutSteps | None:
    """Return the steps of a team over rollouts; None if they are made one by one, for each minibatch.

    This is so for algorithms whose updates end early, and that have several phases, random numbers or a team; and for
    teams whose phases draw random numbers.
    """
    if not steps:
        return None
    team, phases = steps[0].team, [step.phase for step in steps]
    draws = any(phase.draw is not None for phase in phases)
    ends = team.algorithm.ends_update is not None
    if team.is_joint and (draws or ends):
        return None
    if ends and (draws or [phase.every for phase in phases] != [1]):
        return None
    on_policy = team.algorithm.needs().on_policy and not team.algorithm.prioritized
    return RolloutSteps(steps) if on_policy else None


class Found(NamedTuple):
    """Programs for a rollout: the steps of some phases, and the arrays of the columns that all minibatches share."""

    steps: Sequence[ProgramStep]
    programs: RolloutPrograms
    arrays: Mapping[str, Array]


class RolloutSteps:
    """The gradient steps of phases over all minibatches of a rollout.

    Agents alone have minibatches of a rollout's rows by their numbers. Each step of a team reads all rows, or a
    minibatch, whose columns have been copied.
    """

    def __init__(self, steps: Sequence[ProgramStep]) -> None:
        """Store the steps of the phases, in order."""
        self.steps, self.backend, self.team = list(steps), steps[0].backend, steps[0].team
        self.blocks = RowBlocks.of_units(self.team.algorithm.needs().block or 1)
        self._networks = dict[str, Forward]()
        self._programs: dict[Any, RolloutPrograms] = {}

    def networks(self, nets: Mapping[str, Network]) -> Mapping[str, Forward]:
        """Return networks for the rows of rollouts, see `program_network`."""
        if not self._networks:
            self._networks = evaluated(nets, self.backend, self.blocks, self.team.threads)
        return self._networks

    def programs(self, steps: Sequence[ProgramStep], columns: Columns, rows: int, examples: Examples) -> Found | None:
        """Return the programs of some phases of agents alone; None if steps must be made one by one.

        columns: of the rollout, tensors [K, R, ...], without weights.  rows: of a minibatch.
        """
        tree = as_arrays(self.backend, columns)
        arrays = arrays_in(tree, COLUMNS)

        def make(step: ProgramStep) -> RolloutProgram | None:
            return step.rollout_program(tree, examples(rows).get(step.number, {}), self.blocks, rows)

        found = self._found(steps, (rows,), arrays, 2, make)  # the rows of a rollout may be any number
        return None if found is None else Found(steps, found, arrays)

    def programs_of_team(self, steps: Sequence[ProgramStep], columns: Columns, *, several: bool) -> Found | None:
        """Return the programs of some phases of a team; None if steps must be made one by one.

        columns: of a minibatch, tensors.  several: whether there are several minibatches, which have own columns.
        """
        tree = as_arrays(self.backend, columns)
        arrays = arrays_in(tree, COLUMNS)

        def make(step: ProgramStep) -> RolloutProgram | None:
            return step.rollout_program_of_team(tree, several=several)

        found = self._found(steps, (several,), arrays, 0, make)
        return None if found is None else Found(steps, found, {} if several else arrays)

    def _found(
        self, steps: Sequence[ProgramStep], kind: tuple[Any, ...], arrays: Mapping[str, Array], fixed: int,
        make: Callable[[ProgramStep], RolloutProgram | None],
    ) -> RolloutPrograms | None:  # fmt: skip
        """Return the programs for arrays of these shapes from axis `fixed` on, made if there are none."""
        if not all(step.recordable for step in steps):
            return None
        numbers = tuple(step.number for step in steps)
        shapes = (*kind, numbers, steps[0].measures, *((n, a.shape[fixed:], a.dtype.char) for n, a in arrays.items()))
        if (found := self._programs.get(shapes)) is None:
            made = [make(step) for step in steps]
            each = [program for program in made if program is not None]
            if len(each) < len(made):
                return None
            found = kept_within(self._programs, MOST_PROGRAMS)[shapes] = RolloutPrograms(each)
        return found

    def of_agents(
        self, found: Found, columns: Columns, dealt: Dealt, drawn: Mapping[int, Mapping[str, Any]],
        numbers: Mapping[str, Any], due: Array,
    ) -> list[Array]:  # fmt: skip
        """Make the steps of agents alone that are `due` [P, F, K] bool; return the metrics [P, M, K] of each phase.

        found: see `programs`.  columns: given there.  dealt: the minibatches.
        drawn: the random numbers of phases by their numbers, [P, K, W, ...].  numbers: see `GradientStep`.
        Entries of `due` become False where an agent's update ended before.
        """

        def minibatch(step: ProgramStep, i: int) -> Columns:
            rows = self.backend.rows(columns[ALONE], dealt.index[:, i], next(leaves(columns)).shape[1])
            rows |= self.backend.tensor(map_tree(itemgetter(i), drawn.get(step.number, {})))
            return {ALONE: {**rows, "weight": self.backend.tensor(dealt.weight[:, i])}}

        self._compare(found.steps, minibatch, numbers, due)
        given = {INDEX: dealt.index.swapaxes(0, 1), WEIGHT: dealt.weight.swapaxes(0, 1)}
        own = [given | arrays_in({ALONE: drawn.get(step.number, {})}, COLUMNS) for step in found.steps]
        return self._run(found, numbers, own, dealt.rows, due)

    def of_team(
        self, found: Found, parts: Sequence[Columns], numbers: Mapping[str, Any], due: Array
    ) -> list[Array]:  # fmt: skip
        """Make the steps of a team that are `due` [P, F, K] bool; return the metrics [P, M, K] of each phase.

        found: see `programs_of_team`.  parts: the columns of each minibatch; of all rows if there is one.
        """
        self._compare(found.steps, lambda _, i: parts[i % len(parts)], numbers, due)
        given = dict[str, Array]()
        if not found.arrays:
            each = [arrays_in(as_arrays(self.backend, part), COLUMNS) for part in parts]
            given = {name: np.stack([part[name] for part in each]) for name in each[0]}
        return self._run(found, numbers, [given] * len(found.steps), np.ones((len(due), 1), np.int64), due)

    def _run(
        self, found: Found, numbers: Mapping[str, Any], own: Sequence[Mapping[str, Array]], rows: Array, due: Array
    ) -> list[Array]:
        """Run the programs.  own: of each phase, what each minibatch has of its own.  rows: [P, K] or [P, 1]."""
        columns, count = list(found.arrays.values()), self.backend.threads()
        measured = found.programs.run(columns, numbers, own, rows, due, self.team.threads, count)
        for step, program in zip(found.steps, found.programs.programs, strict=True):
            step.metrics = program.metrics
            step.moved()
        return measured

    def _compare(
        self, steps: Sequence[ProgramStep], minibatch: Callable[[ProgramStep, int], Columns],
        numbers: Mapping[str, Any], due: Array,
    ) -> None:  # fmt: skip
        """Compare the gradients of a user's algorithm in each phase's first minibatch with the framework's."""
        for step, own in zip(steps, due.swapaxes(0, 1), strict=True):
            if not step.compared and np.count_nonzero(made := own.any(1)):
                first = int(made.argmax())
                step.compare(minibatch(step, first), numbers, own[first])
