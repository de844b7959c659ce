"""RowBlocks: how programs divide the rows of a rollout into blocks, whatever their number."""

from __future__ import annotations

from dataclasses import dataclass

from marltrain.policies.backends.shapes import rounded_up

IN_ROWS, IN_SEQUENCES = (128, 16), (32, 8)
"""Units of a block, and of a smaller block behind the last one that is full: rows, or sequences of a recurrent network.
"""


@dataclass(frozen=True)
class RowBlocks:
    """Blocks of `block` rows, and behind them smaller ones of `rest` rows; the last one may be padded.

    An agent's blocks depend on the number of its own rows only, and so do its results.
    unit: rows that must stay together.
    """

    block: int
    rest: int
    unit: int

    @classmethod
    def of_units(cls, unit: int) -> RowBlocks:
        """Return the blocks for rows, `unit` 1, or for sequences of `unit` rows."""
        block, rest = IN_ROWS if unit == 1 else IN_SEQUENCES
        return cls(block * unit, rest * unit, unit)

    def smaller(self, parts: int) -> RowBlocks:
        """Return blocks of about a part of these rows; of at least one smaller block."""
        return RowBlocks(max(1, self.block // self.rest // parts) * self.rest, self.rest, self.unit)

    def widened(self, rows: int) -> int:
        """Return a number of rows, rounded up to whole blocks."""
        return -(-rows // self.rest) * self.rest

    def width(self, units: int) -> int:
        """Return the units of a minibatch with some units at most, rounded up so that few widths occur."""
        return self.widened(rounded_up(units) * self.unit) // self.unit

    def of(self, rows: int) -> tuple[int, int]:
        """Return how many blocks of each kind hold so many rows."""
        whole, behind = divmod(rows, self.block)
        return whole, -(-behind // self.rest)
