"""Copies of columns of a ring in the memory of a GPU, from which batches are gathered there.

The ring stays the owner of its rows: it alone is written, saved, restored and checked. A mirror receives the rows that
were written since its last call, and gathers the rows of a batch by their places. A place is a cell of the ring, or
-2-k for entry k of its end table, as in the column `next`; see `rows`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from marltrain.core.layout import Array
from marltrain.policies.backends.row_memory import RowMemory
from marltrain.policies.memory.ends import EndTable

LARGEST_COPY = 2**26
"""Bytes of rows that are sent at once, if there are several batch steps of them."""
SMALL = 2**31
"""Number of rows below which places are sent as int32."""
LEGAL = "legal"
"""Name of the column whose blank row is True."""


class Source(Protocol):
    """A ring, or global states: rows [P, C, E, ...] in the order of batch steps, and entries of an end table.

    now, oldest, capacity, axes: see `Rows`.
    """

    now: int
    oldest: int
    capacity: int
    ends: EndTable

    @property
    def axes(self) -> tuple[int, int, int]:
        """(P, C, E), the leading axes of the columns."""

    def mirrored(self) -> dict[str, tuple[Array, Array | None]]:
        """Return the columns [P, C, E, ...] by name, with their values [N, ...] in the end table, if it has any."""


class OfPlayers(NamedTuple):
    """A table on the device with a row for each player of a ring, and a last one for the blank row."""

    table: Any


class Mirror:
    """Tables of the columns of a source in the memory of a device.

    A table has a row for each cell, and then a blank row: 0 or False, but True for legal actions.
    """

    def __init__(self, source: Source, memory: RowMemory) -> None:
        """Allocate nothing yet; the first call of `read` does."""
        self._source, self._memory = source, memory
        self._rows, self._final = dict[str, Any](), dict[str, Any]()
        self._capacity = self._entries = 0
        self._sent = self._sent_entries = 0  # rows and entries of earlier batch steps are in the tables

    def place_of_blank(self) -> int:
        """Return the place of the blank row."""
        return math.prod(self._source.axes)

    def read(self, wanted: Sequence[tuple[str | OfPlayers, Array]]) -> list[Any]:
        """Return rows of columns by (name, places), [*places.shape, ...], on the device; equal places are sent once.

        A table `OfPlayers` in place of a name: its rows of the players of cells.

        New rows of the source are sent before, those of the last batch steps by the same copy as the places.
        """
        self._allocate()
        news = self._news()
        for new in news[:-1]:
            self._write(new, self._memory.send(new.arrays))
        arrays, plans = list(news[-1].arrays), dict[int, _Plan]()
        for _, places in wanted:
            if id(places) not in plans:
                plans[id(places)] = _Plan.of(places, arrays, narrow=self.place_of_blank() < SMALL)
        tensors = self._memory.send(arrays)
        self._write(news[-1], tensors)
        return [self._gathered(name, places.shape, plans[id(places)], tensors) for name, places in wanted]

    def _gathered(self, name: str | OfPlayers, shape: tuple[int, ...], plan: _Plan, tensors: Sequence[Any]) -> Any:
        """Return rows of a column by a plan, [*shape, ...]."""
        memory = self._memory
        if isinstance(name, OfPlayers):
            players = tensors[plan.cells] // (self._source.axes[1] * self._source.axes[2])
            return memory.gather(name.table, players).reshape(*shape, -1)
        table = self._rows[name]
        rows = memory.gather(table, tensors[plan.cells])
        if plan.ended is not None:
            final = memory.gather(self._final[name], tensors[plan.ended + 1])
            memory.replace(rows, tensors[plan.ended], final)
        return rows.reshape(*shape, *table.shape[1:])

    def _allocate(self) -> None:
        """Allocate the tables anew if the source has another capacity, or its end table other entries."""
        source, memory, columns = self._source, self._memory, self._source.mirrored()
        if source.capacity != self._capacity:
            self._rows.clear()  # their memory serves the larger tables
            self._capacity, self._sent, blank = source.capacity, 0, self.place_of_blank()
            for name, (column, _) in columns.items():
                self._rows[name] = memory.table(blank + 1, column.shape[3:], column.dtype)
                if name == LEGAL:
                    self._rows[name][blank].fill_(True)
        if len(source.ends.time) != self._entries:
            self._entries, self._sent_entries = len(source.ends.time), 0
            for name, (_, final) in columns.items():
                if final is not None:
                    self._final[name] = memory.table(len(final), final.shape[1:], final.dtype)

    def _news(self) -> list[_News]:
        """Return what was written since the last call, in parts to be sent; the last one has the entries.

        The newest row is sent again with the next call: its decision comes later, and a restart replaces its
        observation.
        """
        source, columns, news = self._source, self._source.mirrored(), list[_News]()
        first = max(self._sent, source.oldest)
        size = sum(column[:, 0].nbytes for column, _ in columns.values())
        for slots in _slots(first, source.now + 1, source.capacity, max(1, LARGEST_COPY // max(1, size))):
            news.append(_News(slots, [column[:, slots] for column, _ in columns.values()]))
        news = news or [_News(slice(0, 0), [])]
        entries = np.flatnonzero(source.ends.time >= self._sent_entries)
        if len(entries) and self._final:
            news[-1].entries = len(news[-1].arrays)
            news[-1].arrays += [entries, *(final[entries] for _, final in columns.values() if final is not None)]
        self._sent = self._sent_entries = max(source.now, 0)
        return news

    def _write(self, new: _News, tensors: Sequence[Any]) -> None:
        """Write a part into the tables; tensors: its arrays, and perhaps others after them."""
        if new.slots.stop:
            for table, rows in zip(self._rows.values(), tensors, strict=False):
                self._memory.write(table, self._source.axes, new.slots, rows)
        if new.entries is not None:
            for table, rows in zip(self._final.values(), tensors[new.entries + 1 :], strict=False):
                self._memory.replace(table, tensors[new.entries], rows)


@dataclass
class _News:
    """Rows that were written: arrays of the columns at `slots`, and from number `entries` on, of the end table.

    entries: number of the array of their numbers, which those of their columns follow; None without new entries.
    """

    slots: slice
    arrays: list[Array]
    entries: int | None = None


@dataclass(frozen=True)
class _Plan:
    """Numbers of the arrays that were sent for places: their cells, and if some are entries, where, and which.

    ended: number of the array of the positions of entries among the places, which that of the entries follows.
    """

    cells: int
    ended: int | None

    @classmethod
    def of(cls, places: Array, arrays: list[Array], *, narrow: bool) -> _Plan:
        """Append the arrays to send for places; narrow: whether their cells fit into int32."""
        flat = places.reshape(-1)
        ended = np.flatnonzero(flat < 0) if flat.size and flat.min() < 0 else flat[:0]
        cells = np.maximum(flat, 0) if len(ended) else flat
        arrays.append(cells.astype(np.int32) if narrow else cells)
        if not len(ended):
            return cls(len(arrays) - 1, None)
        arrays += [ended, -2 - flat[ended]]
        return cls(len(arrays) - 3, len(arrays) - 2)


def _slots(first: int, stop: int, capacity: int, most: int) -> list[slice]:
    """Return the slots of the batch steps from `first` to before `stop`, in order, at most `most` in each slice."""
    found = []
    while first < stop:
        start = first % capacity
        count = min(stop - first, capacity - start, most)
        found.append(slice(start, start + count))
        first += count
    return found
