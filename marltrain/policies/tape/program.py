"""Programs: a table with the addresses of arrays, ready to run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from marltrain.core.errors import MarlTrainError, did_you_mean
from marltrain.core.layout import Array
from marltrain.jit.views import address_of
from marltrain.policies.compiled.layers import layer_entry
from marltrain.policies.tape.assembly.arena import ALIGNMENT, rounded
from marltrain.policies.tape.assembly.table import SECTIONS, Segment, Table
from marltrain.policies.tape.instructions import ARENA, CONSTANTS, FIXED, KEPT, LAYER, SEGMENTS, ZEROS
from marltrain.policies.tape.interpreter.interpreter import interpreter_entry
from marltrain.policies.tape.interpreter.runs import RUN, SUM, run_program

_STEPS = ("bases", "thread_steps", "minibatch_steps", "agent_steps", "row_steps")
"""The fields of `runs.RUN` that hold a number for each segment."""


class BindingError(MarlTrainError, ValueError):
    """An array that does not fit the segment of a program."""


class Program:
    """A table with its constants in memory; immutable, so that threads and learners can share it."""

    def __init__(self, table: Table) -> None:
        """Compile the interpreter, or load it from disk, unless this process has done so."""
        self.table = table
        self.constants = aligned(len(table.constants))
        self.constants[:] = np.frombuffer(table.constants, np.uint8)
        self.zeros = aligned(4 * table.zeros)
        self.interpreter, self.run = interpreter_entry(), run_program()

    def execution(self, *, agents: int = 1, blocks: int = 1, rests: int | None = None, groups: int = 1) -> Execution:
        """Return this program with buffers; see `Execution`.  rests: by default 1 if the table has such blocks."""
        return Execution(self, agents, blocks, int(self.table.rest_rows > 0) if rests is None else rests, groups)


class Execution:
    """A program with arrays, and with buffers of one or more threads.

    agents: K, those that are computed one after another; 1 for a team.
    blocks, rests: blocks of rows, and smaller ones behind them, of an agent.
    groups: of blocks, whose sums are added in order; threads may compute them at the same time.
    due: [K] bool, the agents of a run.  address: of the arguments, see `runs.RUN`.
    arrays: the bound arrays, by the names of their segments.
    """

    def __init__(self, program: Program, agents: int, blocks: int, rests: int, groups: int) -> None:
        """Allocate the buffers of one thread. Raises BindingError if a table of one team is to compute several."""
        table = program.table
        if agents != 1 and not table.by_agent:
            raise BindingError(f"expected 1 team, since the table computes all its agents at once; got {agents}")
        self.program, self.agents, self.blocks, self.rests, self.groups = program, agents, blocks, rests, groups
        self.arrays = dict[str, Array]()
        self._layouts = dict[str, Any]()  # of the arrays that `exchange` has checked
        self._addresses = {name: np.zeros(SEGMENTS, np.int64) for name in _STEPS}
        self.due = np.ones(agents, np.bool_)
        self._numbers = {segment.name: i for i, segment in enumerate(table.segments, len(FIXED))}
        self._unbound = {segment.name for segment in table.segments if not segment.is_own}
        self._sums = [segment for segment in table.segments if segment.is_sum] if groups > 1 else []
        self._parts = [np.zeros((agents, groups, self._size(segment)), np.float32) for segment in self._sums]
        self._record, self._summed = np.zeros(1, RUN), np.zeros(len(self._sums), SUM)
        self._counts = [np.full((1, agents), blocks), np.full((1, agents), rests)]
        self._counted: tuple[tuple[int, ...], bytes] | None = None  # rows of the minibatches that `_counts` divides
        self._write_arguments()
        self.address = address_of(self._record)
        self._threads = 0
        self.reserve(1)

    def _write_arguments(self) -> None:
        """Write the arguments that do not depend on the threads."""
        table, u = self.program.table, self._record[0]
        for name, start in zip((*SECTIONS, "stop"), table.starts, strict=True):
            u[name] = start
        arrays = {"code": table.instructions, "due": self.due, "sums": self._summed}
        for name, array in {**arrays, **self._addresses}.items():
            u[name] = address_of(array)
        u["execute"], u["used"] = self.program.interpreter, len(FIXED) + len(table.segments)
        u["agents"], u["groups"], u["summed"] = self.agents, self.groups, len(self._sums)
        u["block_rows"], u["rest_rows"] = table.block_rows, table.rest_rows
        u["blocks"], u["rests"] = map(address_of, self._counts)
        bases = self._addresses["bases"]
        bases[LAYER], bases[CONSTANTS], bases[ZEROS] = (
            layer_entry(),
            *map(address_of, (self.program.constants, self.program.zeros)),
        )
        for row, segment, parts in zip(self._summed, self._sums, self._parts, strict=True):
            row["segment"], row["size"], row["parts"] = self._numbers[segment.name], parts.shape[2], address_of(parts)
        for segment in table.segments:
            if segment.is_own and segment.rows:
                step = math.prod(segment.shape[2:]) * segment.dtype.itemsize
                self._addresses["row_steps"][self._numbers[segment.name]] = step

    def reserve(self, threads: int) -> None:
        """Allocate buffers for at least so many threads; what they held is lost."""
        if threads <= self._threads:
            return
        table = self.program.table
        sizes = {ARENA: table.arena, KEPT: table.kept}
        sizes |= {self._numbers[each.name]: self._size(each) * each.dtype.itemsize for each in table.segments
                  if each.is_own}  # fmt: skip
        self._threads, self._buffers = threads, []
        for number, size in sizes.items():
            step = rounded(size) + ALIGNMENT
            self._buffers.append(aligned(threads * step))
            self._addresses["bases"][number] = address_of(self._buffers[-1])
            self._addresses["thread_steps"][number] = step
        self._segments = np.zeros((threads, SEGMENTS), np.int64)
        self._record[0]["segments"] = address_of(self._segments)

    @cached_property
    def multiply_adds(self) -> int:
        """Multiplications of all agents' products in a run."""
        return self.agents * self.program.table.multiply_adds(self.blocks, self.rests)

    def number(self, name: str) -> int:
        """Return the number of a segment; raises BindingError."""
        self._segment(name)
        return self._numbers[name]

    def _size(self, segment: Segment) -> int:
        """Return how many numbers of one agent a segment has."""
        return math.prod(self._expected(segment, 1))

    def bind(self, arrays: Mapping[str, Array]) -> None:
        """Set arrays by the names of their segments; raises BindingError for one that does not fit.

        Axis 0 of each are the K agents, unless the table is of a team. Arrays are read and written where they are.
        """
        for name, array in arrays.items():
            segment = self._segment(name)
            self._check(segment, array)
            self._place(segment, array)
            self.arrays[name] = array
            self._unbound.discard(name)

    def exchange(self, arrays: Mapping[str, Array]) -> None:
        """Do the same as `bind`; an array whose layout is that of the last one of its name is not checked."""
        for name, array in arrays.items():
            layout = array.shape, array.strides, array.dtype, array.flags.aligned
            if self._layouts.get(name) == layout:
                self._addresses["bases"][self._numbers[name]] = address_of(array)
                self.arrays[name] = array
            else:
                self.bind({name: array})
                self._layouts[name] = layout

    def bind_minibatches(self, arrays: Mapping[str, Array], rows: Array) -> None:
        """Set arrays whose axis 0 are minibatches, and the rows [minibatches, K] of each agent.

        The rows behind them, up to the end of a block of the section `rest`, are computed, too. A team computes all
        rows in each minibatch.
        """
        self.exchange({name: array[0] for name, array in arrays.items()})
        self.arrays |= arrays
        for name, array in arrays.items():
            self._addresses["minibatch_steps"][self._numbers[name]] = array.strides[0]
        if (counted := (rows.shape, rows.tobytes())) == self._counted:
            return
        table = self.program.table
        blocks, rests = table.blocks_of(rows) if table.by_agent else (np.ones_like(rows), np.zeros_like(rows))
        if rests.any() and not table.rest_rows:
            raise BindingError(f"expected whole blocks of {table.block_rows} rows, got {rows.tolist()} rows")
        self._counts = [np.ascontiguousarray(counts, np.int64) for counts in (blocks, rests)]
        self._record[0]["blocks"], self._record[0]["rests"] = map(address_of, self._counts)
        self._counted = counted

    def move_over_minibatches(self, numbers: Array, addresses: Array, step: int) -> None:
        """Set the addresses of arrays in the first minibatch, see `move`.  step: bytes from one to the next."""
        self.move(numbers, addresses)
        self._addresses["minibatch_steps"][numbers] = step

    def end_by(self, name: str) -> None:
        """Let an agent make no further steps after one in which the number of a segment is 0."""
        self._record[0]["going"] = self._numbers[name]

    def empty(self, name: str) -> Array:
        """Return zeros with the shape and type of the array of a segment that holds as many rows as the table reads."""
        segment = self._segment(name)
        return np.zeros(self._expected(segment, self.agents), segment.dtype)

    def move(self, numbers: Array, addresses: Array) -> None:
        """Set the addresses of arrays that are as those bound before; nothing is checked.

        numbers: [n] int64, those of the segments, see `Table.number`.  addresses: [n] int64.
        """
        self._addresses["bases"][numbers] = addresses

    def address_at(self, name: str) -> int:
        """Return where the address of the array of a segment is, int64."""
        return address_of(self._addresses["bases"][self._numbers[name] :])

    def _segment(self, name: str) -> Segment:
        if (number := self._numbers.get(name)) is None:
            raise BindingError(f"the program has no segment {name!r}{did_you_mean(name, self._numbers)}")
        return self.program.table.segments[number - len(FIXED)]

    def _place(self, segment: Segment, array: Array) -> None:
        """Write the address of an array, and the bytes from agent to agent and from row to row."""
        number = self._numbers[segment.name]
        self._addresses["bases"][number] = address_of(array)
        self._addresses["agent_steps"][number] = array.strides[0] if self.program.table.by_agent else 0
        self._addresses["row_steps"][number] = array.strides[1] if segment.moves else 0

    def _expected(self, segment: Segment, agents: int) -> tuple[int, ...]:
        """Return the shape of the array of a segment; -1 for any number of rows."""
        lead = (agents, *segment.shape[1:]) if self.program.table.by_agent else segment.shape
        if not segment.rows:
            return lead
        rows = segment.rows_in(self.blocks, self.rests)
        return (lead[0], -1 if rows is None else rows, *lead[2:])

    def _check(self, segment: Segment, array: Any) -> None:
        """Raise BindingError unless an array has the type, shape and layout of a segment."""
        where = f"segment {segment.name!r}"
        if not isinstance(array, np.ndarray):
            raise BindingError(f"{where}: expected an array of {segment.dtype}, got {type(array).__name__}")
        expected = self._expected(segment, self.agents)
        fits = len(expected) == array.ndim and all(n in (-1, m) for n, m in zip(expected, array.shape, strict=True))
        if array.dtype != segment.dtype or not fits:
            shape = ", ".join("any" if n == -1 else str(n) for n in expected)
            raise BindingError(f"{where}: expected {segment.dtype} [{shape}], got {array.dtype} {list(array.shape)}")
        each = array[:1] if self.program.table.by_agent else array
        if not each.flags.c_contiguous:
            raise BindingError(f"{where}: expected the numbers of an agent in C order without gaps, got strides "
                               f"{array.strides} for shape {array.shape}; use np.ascontiguousarray")  # fmt: skip
        if not array.flags.aligned:
            raise BindingError(f"{where}: expected an address that {array.itemsize} divides, got {address_of(array)}")
        if segment.written and not array.flags.writeable:
            raise BindingError(f"{where}: expected an array to write to, got a read-only one")

    def run(self, due: Array | None = None) -> None:
        """Compute the agents that are `due` [K] bool, all by default. Raises BindingError if an array is missing."""
        self.program.run(self.prepare(due))

    def prepare(self, due: Array | None = None) -> int:
        """Set the agents of the next runs; return the address of the arguments of `runs.run`.

        With `checks`, the buffers are ready for one run. Raises BindingError if an array is missing.
        """
        if self._unbound:
            raise BindingError(f"expected an array for each segment, got none for {sorted(self._unbound)}")
        if self.program.table.checks:
            for buffer in self._buffers:
                buffer.fill(0xFF)  # NaN in float32, -1 in int64
        self.due[:] = True if due is None else due
        return self.address


def aligned(size: int) -> Array:
    """Return zeros [size] uint8 that begin at a multiple of ALIGNMENT, with as many bytes behind them."""
    room = np.zeros(size + 2 * ALIGNMENT, np.uint8)
    start = -address_of(room) % ALIGNMENT
    return room[start : start + size]
