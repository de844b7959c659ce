"""The assembler: recordings become the sections of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from marltrain.policies.tape.assembly.arena import Arena
from marltrain.policies.tape.assembly.segments import Segments
from marltrain.policies.tape.assembly.table import SECTIONS, Role, Section, Table
from marltrain.policies.tape.instructions import CONSTANTS, KEPT, WIDTH, ZEROS, instruction, place
from marltrain.policies.tape.operations import DType


class Assembler:
    """Makes the table of a program, of one agent at a time or of a team.

    arena: buffers of results.  segments: the arrays of the program.
    """

    def __init__(self, roles: Mapping[str, Role], *, by_agent: bool = True, checks: bool = False) -> None:
        """Start an empty table.

        roles: of the inputs and outputs that are not the same for all blocks of rows.
        by_agent, checks: see `Table`.
        """
        self.by_agent, self.checks = by_agent, checks
        self.arena, self._kept = Arena(reuses=not checks), Arena()
        self.segments = Segments(roles)
        self._sections: dict[Section, list[list[int]]] = {name: [] for name in SECTIONS}
        self._zeros, self._constants = 1, bytearray()
        self._constant_places: dict[bytes, int] = {}
        self._kept_places: dict[object, int] = {}

    def emit(self, section: Section, operation: str, **fields: int) -> None:
        """Append an instruction to a section."""
        self._sections[section].append(instruction(operation, **fields))

    def segment(self, name: str, shape: Sequence[int], dtype: DType, section: Section, *, written: bool = False) -> int:
        """Enter the use of an array and return its place; a sum over blocks starts at zero."""
        starts = self.is_sum(name) and name not in self.segments.found
        where = self.segments.add(name, shape, dtype, section, written=written)
        if starts:
            self.emit("start", "zero", out=where, size=int(np.prod(shape)))
        return where

    def is_sum(self, name: str) -> bool:
        """Return whether an output is summed over the blocks."""
        return self.segments.role(name) in ("sum", "own sum")

    def constant(self, data: bytes) -> int:
        """Return the place of constant bytes."""
        if data not in self._constant_places:
            self._constant_places[data] = len(self._constants)
            self._constants += data + bytes(-len(data) % 8)
        return place(CONSTANTS, self._constant_places[data])

    def number(self, value: float) -> int:
        """Return the place of a constant float32 number."""
        return self.constant(np.float32(value).tobytes())

    def zeros(self, size: int) -> int:
        """Return the place of `size` float32 zeros."""
        self._zeros = max(self._zeros, size)
        return place(ZEROS)

    def kept(self, key: object, size: int) -> tuple[int, bool]:
        """Return the place of `size` bytes that last through all sections, and whether they are new for this key."""
        new = key not in self._kept_places
        if new:
            self._kept_places[key] = self._kept.take(size)
        return place(KEPT, self._kept_places[key]), new

    def table(self) -> Table:
        """Return the table of everything so far."""
        rows = [row for section in SECTIONS for row in self._sections[section]]
        starts = np.cumsum([0, *(len(self._sections[section]) for section in SECTIONS)])
        return Table(
            np.array(rows, np.int64).reshape(-1, WIDTH), tuple(map(int, starts)), bytes(self._constants),
            tuple(self.segments.found.values()), self._zeros, self.arena.size, self._kept.size, self.by_agent,
            self.checks,
        )  # fmt: skip
