"""ProgramStep: the gradient step of a phase by a program of the tape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from marltrain.core.errors import ConfigError, error_text
from marltrain.core.layout import Array
from marltrain.policies.learner.fallback import fall_back
from marltrain.policies.learner.gradient_step import GradientStep
from marltrain.policies.learner.programs.recorded_step import COLUMNS, arrays_in, as_arrays
from marltrain.policies.learner.programs.rollout_program import RolloutProgram
from marltrain.policies.learner.programs.row_blocks import RowBlocks
from marltrain.policies.learner.programs.step_program import StepProgram
from marltrain.policies.learner.programs.step_table import StepTable, step_table
from marltrain.policies.learner.trained_team import ALONE, Columns, TrainedTeam

MOST_PROGRAMS = 16
"""Programs that a step keeps: those of the latest shapes of columns."""
LARGEST_ARENA, LEAST_ROWS = 2**21, 32
"""Bytes of the results of operations from which on they are computed in blocks of rows; rows that a block has at least.
"""
LARGEST_DIFFERENCE, TINY = 1e-3, 1e-7
"""Of the gradients of a user's algorithm, relative to the largest entry of a network's gradient; and a difference that
is never told.
"""


class ProgramStep(GradientStep):
    """The training step of one phase of a team, recorded and run as a program; on a CPU, in place.

    The memory of the backend's tensors is shared with arrays. The framework computes what cannot be recorded, which a
    notice tells once.

    The first gradient of an algorithm that is not marltrain's own is computed by the framework, too, and compared.

    recordable: False once a recording has failed.  compared: whether the first gradient has been compared, or need not.
    """

    def __init__(self, number: int, team: TrainedTeam) -> None:
        """Store the agents; a call with columns of new shapes makes a program."""
        super().__init__(number, team)
        self._programs: dict[Any, StepProgram] = {}
        self._tables: dict[Any, StepTable] = {}  # shared by single and planned updates
        self.recordable = True
        algorithms = [type(member.algorithm) for member in team.members.values()]
        self.compared = all(kind.__module__.startswith("marltrain.") for kind in algorithms)

    def __call__(self, columns: Columns, numbers: Mapping[str, Any], due: Array) -> Any:
        """Make one gradient step, see `GradientStep`; returns an array.

        Raises ConfigError if the first gradient of a user's algorithm differs from the framework's.
        """
        if self.recordable:
            arrays = [self.backend.numpy(tensor) for tensor in leaves(columns)]
            if (program := self._program(columns, arrays)) is not None:
                if not self.compared:
                    self._compare(columns, arrays, numbers, due)
                return self._run(program, arrays, numbers, due)
        return super().__call__(columns, numbers, due)

    def _run(self, program: StepProgram, arrays: list[Array], numbers: Mapping[str, Any], due: Array) -> Array:
        self.metrics, measured = (
            program.metrics,
            program.run(arrays, numbers, due, self.team.threads, self.backend.threads()),
        )
        if self._row_error is not None and program.errors is not None:
            self.errors = program.errors.copy()
        self.moved()
        return measured

    def moved(self) -> None:
        """Note that a program has changed the numbers of the trained networks and of their optimizers."""
        for name in self.trains:
            self.team.nets[name].numbers_changed()
            self.team.optimizers[name].numbers_changed()

    @property
    def plannable(self) -> bool:
        """Whether compiled code can make the step between batch steps: it has a program, and all agents learn at once.

        The errors of rows must be those of each pass.
        """
        return self.recordable and self.phase.turns is None and (self._row_error is None or self.phase.every == 1)

    def program_for(self, columns: Columns) -> StepProgram | None:
        """Return a new program for columns of the shapes of these arrays.

        None if the phase cannot be recorded, or is still to be compared with the framework.
        """
        if not self.compared or (made := self._recorded(columns)) is None:
            return None
        return StepProgram(self, made, list(arrays_in(columns, COLUMNS)))

    def measure_noise(self, *, on: bool) -> None:
        """See `GradientStep`."""
        super().measure_noise(on=on)
        self._programs.clear()
        self._tables.clear()

    def _program(self, columns: Columns, arrays: list[Array]) -> StepProgram | None:
        """Return the program for columns of these shapes; None if the phase cannot be recorded."""
        shapes = (*paths(columns), *((array.shape, array.dtype.char) for array in arrays))
        if (program := self._programs.get(shapes)) is None:
            if (made := self._recorded(as_arrays(self.backend, columns))) is None:
                return None
            program = StepProgram(self, made, list(arrays_in(columns, COLUMNS)))
            kept_within(self._programs, MOST_PROGRAMS)[shapes] = program
        return program

    def rollout_program(
        self, columns: Columns, drawn: Mapping[str, Any], blocks: RowBlocks, rows: int
    ) -> RolloutProgram | None:
        """Return the program for the minibatches of agents alone; None if the phase cannot be recorded.

        columns: of all rows of a rollout, arrays without weights.  drawn: the random numbers of a minibatch.
        rows: of a minibatch.
        """
        names = list(arrays_in(columns, COLUMNS))
        weight = np.zeros((self.team.num_agents, rows), np.float32)
        given = {ALONE: {**columns[ALONE], **drawn, "weight": weight}}
        dealt = {name: array for name, array in arrays_in(given, COLUMNS).items() if name not in names}
        try:
            made = step_table(self, given, blocks.block, blocks.rest, rows, dealt)
            if made.blocks and made.table.arena > LARGEST_ARENA:
                less = blocks.smaller(-(-made.table.arena // LARGEST_ARENA))
                made = step_table(self, given, less.block, less.rest, rows, dealt)
        except Exception as error:  # of functions of the user, too; nothing has been changed
            self._fall_back(error)
            return None
        return RolloutProgram(self, made, names, dealt)

    def rollout_program_of_team(self, columns: Columns, *, several: bool) -> RolloutProgram | None:
        """Return the program for the minibatches of a team; None if the phase cannot be recorded.

        columns: of a minibatch, arrays.  several: whether each minibatch has columns of its own.
        """
        if (made := self._recorded(columns)) is None:
            return None
        arrays = arrays_in(columns, COLUMNS)
        return RolloutProgram(self, made, [] if several else list(arrays), arrays if several else {})

    def compare(self, columns: Columns, numbers: Mapping[str, Any], due: Array) -> None:
        """Compare the first gradient of a user's algorithm with the framework's; raises ConfigError."""
        if not self.compared:
            self._compare(columns, [self.backend.numpy(tensor) for tensor in leaves(columns)], numbers, due)

    def _recorded(self, columns: Columns) -> StepTable | None:
        """Return the table for arrays of these shapes; None if the phase cannot be recorded, from now on."""
        arrays = arrays_in(columns, COLUMNS)
        shapes = tuple(sorted((name, array.shape, array.dtype.char) for name, array in arrays.items()))
        if shapes not in self._tables:
            try:
                kept_within(self._tables, MOST_PROGRAMS)[shapes] = self._table(columns)
            except Exception as error:  # of functions of the user, too; nothing has been changed
                self._fall_back(error)
                return None
        return self._tables[shapes]

    def _table(self, columns: Columns, *, moves: bool = True) -> StepTable:
        """Return the table for columns of these shapes; in blocks of rows if all rows need much memory."""
        made = step_table(self, columns, rows := rows_of(columns), moves=moves)
        if self.team.is_joint or made.table.arena <= LARGEST_ARENA:
            return made
        unit = 2 if self.measures else self.team.algorithm.needs().block or 1
        block = max(LEAST_ROWS, -(-rows * LARGEST_ARENA // made.table.arena))
        return step_table(self, columns, min(rows, -(-block // unit) * unit), moves=moves)

    def _fall_back(self, error: Exception) -> None:
        """Let the framework compute the phase from now on; raises ConfigError if programs are required."""
        fall_back(self.team, self.phase, f"it cannot be recorded: {error_text(error)}")
        self.recordable = False
        self._function = self.backend.function(self.compute)

    def _compare(self, columns: Columns, arrays: list[Array], numbers: Mapping[str, Any], due: Array) -> None:
        """Compare the gradients by a program with those by the framework.

        Raises ConfigError for a difference: the loss depends on more than its arguments, or is no sum over rows.
        """
        given = as_arrays(self.backend, columns)
        program = StepProgram(self, self._table(given, moves=False), list(arrays_in(given, COLUMNS)))
        _, expected = self._gradients(self._over_rows({**columns}), self.team.hyper(numbers))
        program.run(arrays, numbers, due, self.team.threads, 1)
        learns = self.team.by_member(due)
        for name, tensor in zip(self.trains, expected, strict=True):
            key, network = name.split("/")
            own = learns.get(key, np.ones(1, bool))
            gradient, found = self.backend.numpy(tensor)[own], program.gradients[name][own]
            largest = float(np.abs(gradient).max(initial=0.0))
            difference = float(np.abs(gradient - found).max(initial=0.0))
            if difference > LARGEST_DIFFERENCE * largest + TINY:
                raise ConfigError(
                    f"{self.team.algorithm.name}: the gradient of network {network!r} in phase {self.phase.name!r} by "
                    f"compiled code differs by {difference:.3g} from that by {self.backend.name}, whose largest entry "
                    f"is {largest:.3g}; expected at most {LARGEST_DIFFERENCE} of that. A loss must be a sum over rows "
                    "that depends on its arguments only. Otherwise leave jit_compile out"
                )
        self.compared = True


def kept_within(programs: dict[Any, Any], most: int) -> dict[Any, Any]:
    """Remove the oldest entries, so that there is room for another one; return the dictionary."""
    while len(programs) >= most:
        del programs[next(iter(programs))]
    return programs


def rows_of(columns: Columns) -> int:
    """Return the rows of each agent alone."""
    return int(columns[ALONE]["weight"].shape[1])


def leaves(tree: Any) -> Iterator[Any]:
    """Yield the tensors of a tree in order, without None."""
    for part in tree.values():
        if isinstance(part, dict):
            yield from leaves(part)
        elif part is not None:
            yield part


def paths(tree: Any) -> Iterator[Any]:
    """Yield the names of the tensors of a tree, and of its parts."""
    for name, part in tree.items():
        if isinstance(part, dict):
            yield name
            yield from paths(part)
        elif part is not None:
            yield name
