"""Writing one recording into a section of a table: places of results, and temporary buffers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from marltrain.policies.tape.assembly.assembler import Assembler
from marltrain.policies.tape.assembly.strides import is_plain, joined
from marltrain.policies.tape.assembly.table import DTYPES, Section
from marltrain.policies.tape.instructions import ARENA, place
from marltrain.policies.tape.symbols import Node, Symbol
from marltrain.policies.tape.views import View, whole


class Writer:
    """Writes the instructions of a recording.

    section: where they go.  places: node -> where its result is.
    """

    def __init__(self, assembler: Assembler, section: Section) -> None:
        """Start without results."""
        self.assembler, self.section = assembler, section
        self.places: dict[int, int] = {}
        self._offsets: dict[int, int] = {}  # node -> its buffer in the arena

    def emit(self, operation: str, **fields: int) -> None:
        """Append an instruction."""
        self.assembler.emit(self.section, operation, **fields)

    def allocate(self, node: Node) -> int:
        """Return the place of a new buffer for the result of a node."""
        self._offsets[node.index] = offset = self.assembler.arena.take(node.size * DTYPES[node.dtype].itemsize)
        self.places[node.index] = where = place(ARENA, offset)
        return where

    def free(self, node: Node) -> None:
        """Give back the buffer of a node, if it has one."""
        if (offset := self._offsets.pop(node.index, None)) is not None:
            self.assembler.arena.give(offset)

    def at(self, symbol: Symbol) -> int:
        """Return the place of the first entry of a symbol."""
        return self.places[symbol.node.index] + symbol.offset * DTYPES[symbol.node.dtype].itemsize

    @contextmanager
    def buffer(self, size: int) -> Iterator[int]:
        """Return the place of `size` bytes, which are given back at the end of the `with` block."""
        offset = self.assembler.arena.take(size)
        try:
            yield place(ARENA, offset)
        finally:
            self.assembler.arena.give(offset)

    def plain(self, symbol: Symbol, temporary: ExitStack) -> int:
        """Return the place of the entries of a symbol in order; copied to a temporary buffer if they are not."""
        if is_plain(symbol.view):
            return self.at(symbol)
        copied = temporary.enter_context(self.buffer(symbol.size * DTYPES[symbol.node.dtype].itemsize))
        self.copy(symbol, copied, whole(symbol.shape))
        return copied

    def copy(self, symbol: Symbol, out: int, view: View, *, add: bool = False) -> None:
        """Copy a symbol, or add it, to places of an array at `out`; more than two axes take several instructions."""
        size, source = DTYPES[symbol.node.dtype].itemsize, self.at(symbol)
        operation = "add_to" if add else "copy_integers" if symbol.node.dtype == "integer" else "copy"
        axes = joined(symbol.shape, view.strides, symbol.strides)
        for (down, along), rows, columns, ((out_row, out_column), (row, column)) in axes.matrices():
            self.emit(
                operation, out=out + size * (view.offset + down), a=source + size * along, rows=rows, columns=columns,
                out_row=out_row, out_column=out_column, a_row=row, a_column=column,
            )  # fmt: skip
