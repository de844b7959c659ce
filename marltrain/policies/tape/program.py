"""Programs: a table with the addresses of arrays, ready to run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from marltrain.core.errors import MarlTrainError, did_you_mean
from marltrain.core.layout import Array
from marltrain.jit.views import address_of
from marltrain.policies.compiled.layers import layer_entry
from marltrain.policies.tape.assembly.arena import ALIGNMENT
from marltrain.policies.tape.assembly.table import Segment, Table
from marltrain.policies.tape.instructions import ARENA, CONSTANTS, FIXED, KEPT, LAYER, SEGMENTS, ZEROS
from marltrain.policies.tape.interpreter.interpreter import RUN, run_program


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
        self.run = run_program()

    def execution(self, *, agents: int = 1, blocks: int = 1) -> Execution:
        """Return buffers of a thread for this program; see `Execution`."""
        return Execution(self, agents, blocks)


class Execution:
    """A program with arrays and with the buffers of one thread.

    agents: K, those that are computed one after another; 1 for a team.  blocks: whole blocks of rows.
    arrays: the bound arrays, by the names of their segments.
    """

    def __init__(self, program: Program, agents: int, blocks: int) -> None:
        """Allocate the thread's own buffers. Raises BindingError if a table of one team is to compute several."""
        table = program.table
        if agents != 1 and not table.by_agent:
            raise BindingError(f"expected 1 team, since the table computes all its agents at once; got {agents}")
        self.program, self.agents, self.blocks, self.arrays = program, agents, blocks, dict[str, Array]()
        self._fixed = {
            CONSTANTS: program.constants,
            ZEROS: program.zeros,
            ARENA: aligned(table.arena),
            KEPT: aligned(table.kept),
        }
        self._addresses = {
            name: np.zeros(SEGMENTS, np.int64) for name in ("segments", "bases", "agent_steps", "block_steps")
        }
        self._due = np.ones(agents, np.bool_)
        self._record = self._arguments()
        self._numbers = {segment.name: i for i, segment in enumerate(table.segments, len(FIXED))}
        self._address = address_of(self._record)
        self._unbound = {segment.name for segment in table.segments if not segment.is_own}
        self._own = [self._allocated(segment) for segment in table.segments if segment.is_own]

    def _arguments(self) -> Array:
        """Return the arguments of the interpreter."""
        table, record = self.program.table, np.zeros(1, RUN)
        u = record[0]
        names = ("before", "block", "rest", "after", "stop")
        for name, start in zip(names, table.starts, strict=True):
            u[name] = start
        for name, array in {"code": table.instructions, "due": self._due, **self._addresses}.items():
            u[name] = address_of(array)
        u["used"], u["agents"], u["blocks"] = len(FIXED) + len(table.segments), self.agents, self.blocks
        u["has_rest"] = table.starts[2] < table.starts[3]
        bases = self._addresses["bases"]
        bases[LAYER] = layer_entry()
        for number, array in self._fixed.items():
            bases[number] = address_of(array)
        return record

    def _allocated(self, segment: Segment) -> Array:
        """Return a thread's own array, of one agent, at its place."""
        array = np.zeros(self._expected(segment, 1), segment.dtype)
        self._place(segment, array, 0)
        return array

    def bind(self, arrays: Mapping[str, Array]) -> None:
        """Set arrays by the names of their segments; raises BindingError for one that does not fit.

        Axis 0 of each are the K agents, unless the table is of a team. Arrays are read and written where they are.
        """
        for name, array in arrays.items():
            segment = self._segment(name)
            self._check(segment, array)
            self._place(segment, array, array.strides[0] if self.program.table.by_agent else 0)
            self.arrays[name] = array
            self._unbound.discard(name)

    def empty(self, name: str) -> Array:
        """Return zeros with the shape and type of the array of a segment that holds as many rows as the table reads."""
        segment = self._segment(name)
        return np.zeros(self._expected(segment, self.agents), segment.dtype)

    def move(self, numbers: Array, addresses: Array) -> None:
        """Set the addresses of arrays that are as those bound before; nothing is checked.

        numbers: [n] int64, those of the segments, see `Table.number`.  addresses: [n] int64.
        """
        self._addresses["bases"][numbers] = addresses

    def _segment(self, name: str) -> Segment:
        if (number := self._numbers.get(name)) is None:
            raise BindingError(f"the program has no segment {name!r}{did_you_mean(name, self._numbers)}")
        return self.program.table.segments[number - len(FIXED)]

    def _place(self, segment: Segment, array: Array, agent_step: int) -> None:
        """Write the address of an array, and the bytes from agent to agent and from block to block."""
        number = self._numbers[segment.name]
        self._addresses["bases"][number] = address_of(array)
        self._addresses["agent_steps"][number] = agent_step
        self._addresses["block_steps"][number] = array.strides[1] * segment.step if segment.rows else 0

    def _expected(self, segment: Segment, agents: int) -> tuple[int, ...]:
        """Return the shape of the array of a segment; -1 for any number of rows."""
        lead = (agents, *segment.shape[1:]) if self.program.table.by_agent else segment.shape
        if not segment.rows:
            return lead
        rows = segment.rows_in(self.blocks)
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
        if self._unbound:
            raise BindingError(f"expected an array for each segment, got none for {sorted(self._unbound)}")
        self._due[:] = True if due is None else due
        if self.program.table.checks:
            for number in (ARENA, KEPT):
                self._fixed[number].fill(0xFF)  # NaN in float32, -1 in int64
            for array in self._own:
                array.view(np.uint8).fill(0xFF)
        self.program.run(self._address)


def aligned(size: int) -> Array:
    """Return zeros [size] uint8 that begin at a multiple of ALIGNMENT, with as many bytes behind them."""
    room = np.zeros(size + 2 * ALIGNMENT, np.uint8)
    start = -address_of(room) % ALIGNMENT
    return room[start : start + size]
