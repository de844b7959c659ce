"""Programs of gradient steps: tables bound to the arrays of a learner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.jit.threads import Threads
from marltrain.jit.views import address_of
from marltrain.policies.learner.gradient_step import ERRORS, GradientStep
from marltrain.policies.learner.programs.recorded_step import DUE, HYPER, MEASURED
from marltrain.policies.learner.programs.step_table import StepTable
from marltrain.policies.tape.assembly.segments import GRADIENT
from marltrain.policies.tape.over_minibatches import OverMinibatches
from marltrain.policies.tape.program import Program

LEAST_FOR_THREADS = 2**24
"""Multiplications of a step from which on threads divide it: they take about 0.3 ms in one thread."""


class BoundTable:
    """A table of a phase with the weights, moments and step counts of the networks, which it reads and writes in place.

    metrics: names of the values that a step returns.
    """

    def __init__(self, step: GradientStep, made: StepTable, columns: Sequence[str]) -> None:
        """Bind the arrays of the learner; they stay where they are while the program lives.

        columns: the names of all columns, in the order in which their arrays are given.
        """
        team, table = step.team, made.table
        self.team, self.backend, self.metrics = team, step.backend, made.metrics
        agents = 1 if team.is_joint else team.num_agents
        self.execution = Program(table).execution(
            agents=agents, blocks=made.blocks, rests=made.rests, groups=made.groups
        )
        self._segments = {segment.name: segment for segment in table.segments}
        self._hyper: dict[str, Any] = {}  # member -> the tensor of numbers that is bound
        self._due = np.ones(team.num_agents, np.bool_)
        self._columns = {name: i for i, name in enumerate(columns) if name in self._segments}
        self._numbers = np.array([table.number(name) for name in self._columns], np.int64)
        self._layout: object = None  # that of the columns that are bound
        self._copied: list[int] = []  # columns that the program reads from copies
        self._bind(team.numbers())
        self._bind({f"{DUE}/{key}": own for key, own in team.by_member(self._due).items()})

    def _bind(self, arrays: Mapping[str, Array]) -> None:
        self.execution.bind({name: array for name, array in arrays.items() if name in self._segments})

    def _fetch(self, numbers: Mapping[str, Any]) -> None:
        """Copy what the framework changed into the arrays; bind the numbers of each member, tensors [H, K_i, 1]."""
        self.team.fetch()
        for key, own in numbers.items():
            if own is not self._hyper.get(key):
                self._hyper[key] = own
                names = self.team.members[key].algorithm.numbers()
                rows = zip(names, own if isinstance(own, np.ndarray) else self.backend.numpy(own), strict=True)
                named = {f"{HYPER}/{key}/{name}": row for name, row in rows}
                self.execution.exchange({name: row for name, row in named.items() if name in self._segments})

    def _bind_results(self) -> None:
        """Bind new arrays for what else the program writes."""
        for name, segment in self._segments.items():
            if segment.written and not segment.is_own and name not in self.execution.arrays:
                self.execution.bind({name: self.execution.empty(name)})

    def _move_columns(self, columns: Sequence[Array]) -> None:
        """Let the program read these columns, and keep them, since it has their addresses only."""
        arrays = [columns[i] for i in self._columns.values()]
        if (layout := [(array.shape, array.strides, array.flags.aligned) for array in arrays]) != self._layout:
            self._copied = [i for i, array in enumerate(arrays) if has_gaps(array if self.team.is_joint else array[:1])]
            plain = [array.copy("C") if i in self._copied else array for i, array in enumerate(arrays)]
            self._bind(dict(zip(self._columns, plain, strict=True)))
            self._layout = layout
        for i in self._copied:
            arrays[i] = arrays[i].copy("C")
        self.execution.move(self._numbers, np.array([address_of(array) for array in arrays], np.int64))
        self._held = arrays


class StepProgram(BoundTable):
    """The program of a phase for columns of fixed shapes.

    measured: [M, K] float32, the metrics of the latest run.
    gradients: network -> [K, N], those of the latest run of a table that does not move the weights; else empty.
    errors: [K, B], those of the rows of the latest run; None if the phase gives none.
    """

    def __init__(self, step: GradientStep, made: StepTable, columns: Sequence[str]) -> None:
        """See `BoundTable`."""
        super().__init__(step, made, columns)
        several = (
            self.execution.agents * self.execution.groups > 1 and self.execution.multiply_adds >= LEAST_FOR_THREADS
        )
        self._in_threads = OverMinibatches([self.execution]) if several else None
        self.measured = np.zeros((len(made.metrics), self.team.num_agents), np.float32)
        self._bind({f"{MEASURED}/{name}": row for name, row in zip(made.metrics, self.measured, strict=True)})
        self._bind_results()
        arrays = self.execution.arrays
        self.errors: Array | None = arrays.get(f"{MEASURED}/{ERRORS}")
        self.gradients = {name: arrays[GRADIENT + name] for name in step.trains if GRADIENT + name in arrays}

    def run(
        self, columns: Sequence[Array], numbers: Mapping[str, Any], due: Array, threads: Threads, count: int
    ) -> Array:
        """Make the step for the agents that are `due` [K] bool; return its metrics [M, K].

        numbers: tensors, see `GradientStep`.  count: the largest number of threads.
        """
        address = self.prepare(columns, numbers, due)
        if self._in_threads is None or count == 1:
            self.execution.program.run(address)
        else:
            self._in_threads.run(self.execution.due[None, None].copy(), threads, count)
        return self.measured.copy()

    def prepare(self, columns: Sequence[Array], numbers: Mapping[str, Any], due: Array) -> int:
        """Bind the arguments of `run`; return the address of the arguments of `runs.run`, see `Execution.prepare`."""
        self._fetch(numbers)
        self._move_columns(columns)
        self._due[:] = due
        # errors are those of all rows, also of agents that are not due
        return self.execution.prepare(None if self.team.is_joint or self.errors is not None else due)

    def due_addresses(self) -> tuple[int, int]:
        """Return the addresses of the agents whose weights a run moves, [K] bool, and of those that it computes.

        The latter is 0 if it computes all of them.
        """
        every = self.team.is_joint or self.errors is not None
        return address_of(self._due), 0 if every else address_of(self.execution.due)

    def address_at(self, column: str) -> int:
        """Return where the program has the address of a column, which compiled code may move; 0 if it reads none."""
        return self.execution.address_at(column) if column in self._columns else 0


def has_gaps(array: Array) -> bool:
    """Return whether a program must read an array from a copy."""
    return not (array.flags.c_contiguous and array.flags.aligned)
