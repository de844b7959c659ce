"""What an assembler makes: the instructions of a program, and the memory that they need."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from marltrain.core.layout import Array
from marltrain.policies.tape.instructions import FIXED, multiply_adds
from marltrain.policies.tape.operations import DType

Role = Literal["agent", "rows", "gathered", "sum", "own", "own rows", "own sum"]
"""How a segment moves with agents and blocks, and who allocates it.

agent: an array of the caller, the same for all blocks of rows.
rows: one whose axis 1 are the rows; each block has its own.
gathered: one of which the rows at the indices of the segment INDEX are read.
sum: an output that is summed over the blocks.
own, own rows, own sum: as agent, rows and sum, in a buffer of the thread for one agent at a time.
"""
INDEX = "index"
"""The segment of the indices [K, B] int64 of gathered rows."""
DTYPES: dict[DType, np.dtype[Any]] = {
    "float": np.dtype(np.float32), "boolean": np.dtype(np.float32), "integer": np.dtype(np.int64),
    "bytes": np.dtype(np.bool_), "pixels": np.dtype(np.uint8),
}  # fmt: skip
"""Data types of a recording in memory."""
Section = Literal["before", "start", "block", "rest", "after"]
SECTIONS: tuple[Section, ...] = ("before", "start", "block", "rest", "after")
"""Parts of a table: once for an agent before its rows, at the start of each group of blocks (whose sums begin at 0),
for each block of rows, for each smaller block of the rows behind them, once after all.
"""


@dataclass(frozen=True)
class Segment:
    """An array of a program.

    shape: that of one agent or of one team, with axis 1 of size 0 if it holds rows.
    rows: section -> rows that the section reads or writes; empty for arrays without rows.
    written: whether instructions write it.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    role: Role
    rows: dict[Section, int] = field(default_factory=dict)
    written: bool = False

    @property
    def is_own(self) -> bool:
        """Whether a thread allocates the array."""
        return self.role in ("own", "own rows", "own sum")

    @property
    def is_sum(self) -> bool:
        """Whether it is summed over the blocks of rows."""
        return self.role in ("sum", "own sum")

    @property
    def moves(self) -> bool:
        """Whether each block of rows has its own part of the array."""
        return bool(self.rows) and self.role != "gathered"

    def rows_in(self, blocks: int, rests: int) -> int | None:
        """Return the number of rows with so many blocks of both kinds; None if the array may have any number."""
        if self.role == "gathered":
            return None
        if "block" in self.rows or "rest" in self.rows:
            return blocks * self.rows.get("block", 0) + rests * self.rows.get("rest", 0)
        return self.rows["before"]


@dataclass(frozen=True)
class Table:
    """A program without addresses; immutable.

    instructions: [N, WIDTH] int64.  starts: where each of SECTIONS begins, and where the last ends.
    constants: bytes.  segments: those after `instructions.FIXED`, in order.
    zeros: float32 zeros that are needed.  arena, kept: bytes of a thread's buffers.
    by_agent: whether the program computes one of K agents at a time; axis 0 of every array are the agents.
    checks: whether no buffer is used twice, and a run starts with all buffers full of NaN.
    """

    instructions: Array
    starts: tuple[int, ...]
    constants: bytes
    segments: tuple[Segment, ...]
    zeros: int
    arena: int
    kept: int
    by_agent: bool
    checks: bool

    def __post_init__(self) -> None:
        """Make the instructions read-only."""
        self.instructions.flags.writeable = False

    @cached_property
    def block_rows(self) -> int:
        """Rows of a block; 0 if blocks have no rows."""
        return self._rows("block")

    @cached_property
    def rest_rows(self) -> int:
        """Rows of a block of the section `rest`; 0 without this section."""
        return self._rows("rest")

    def multiply_adds(self, blocks: int, rests: int) -> int:
        """Return the multiplications of an agent's products, with so many blocks of both kinds."""
        starts = dict(zip(SECTIONS, zip(self.starts, self.starts[1:], strict=False), strict=True))
        counts: dict[Section, int] = {"before": 1, "block": blocks, "rest": rests}
        return sum(times * multiply_adds(self.instructions[slice(*starts[name])]) for name, times in counts.items())

    def blocks_of(self, rows: Array) -> tuple[Array, Array]:
        """Return how many blocks, and smaller ones behind them, hold some numbers of rows."""
        blocks = rows // self.block_rows if self.block_rows else np.zeros_like(rows)
        return blocks, -(-(rows - blocks * self.block_rows) // (self.rest_rows or 1))

    def _rows(self, section: Section) -> int:
        return max((segment.rows.get(section, 0) for segment in self.segments), default=0)

    def number(self, name: str) -> int:
        """Return the number of the segment with a name; raises KeyError."""
        return {segment.name: i for i, segment in enumerate(self.segments, len(FIXED))}[name]
