"""Places of buffers in one piece of memory: a place is used again when its buffer is given back."""

from __future__ import annotations

ALIGNMENT = 64
"""Buffers begin at multiples of this: a cache line, and the widest vector."""


def rounded(size: int) -> int:
    """Return a size, rounded up to a multiple of ALIGNMENT; at least one."""
    return max(ALIGNMENT, -(-size // ALIGNMENT) * ALIGNMENT)


class Arena:
    """Places of buffers: the smallest free one that fits, else at the end.

    size: bytes of memory for all places.  reuses: whether a place that is given back is used again.
    """

    def __init__(self, *, reuses: bool = True) -> None:
        """Start empty."""
        self.size, self.reuses = 0, reuses
        self._taken: dict[int, int] = {}  # place -> size
        self._free: dict[int, int] = {}

    def take(self, size: int) -> int:
        """Return the offset of a buffer of `size` bytes."""
        size = rounded(size)
        fitting = [(free, place) for place, free in self._free.items() if free >= size]
        if fitting:
            free, place = min(fitting)
            del self._free[place]
            if free > size:
                self._free[place + size] = free - size
        else:
            place, self.size = self.size, self.size + size
        self._taken[place] = size
        return place

    def give(self, place: int) -> None:
        """Give a buffer back; its neighbors that are free become one place with it. Raises KeyError if not taken."""
        size = self._taken.pop(place)
        if not self.reuses:
            return
        if (behind := self._free.pop(place + size, None)) is not None:
            size += behind
        before = next((start for start, free in self._free.items() if start + free == place), None)
        if before is None:
            self._free[place] = size
        else:
            self._free[before] += size
