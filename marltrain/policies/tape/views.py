"""Strided views: axes that are moved, sliced, split, joined or repeated without any computation."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import EllipsisType

Place = int | slice | EllipsisType | None
"""An entry of an index."""


@dataclass(frozen=True, slots=True)
class View:
    """Places of the entries of a view among the numbers of an array, in elements.

    The stride of an axis of size 1 is 0, so that equal views compare equal; that of a repeated axis is 0, too.
    """

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of entries, repeated ones included."""
        return math.prod(self.shape)

    @property
    def repeated(self) -> tuple[int, ...]:
        """The axes along which the same numbers repeat."""
        return tuple(i for i, (n, s) in enumerate(zip(self.shape, self.strides, strict=True)) if s == 0 and n > 1)

    def indexed(self, index: Sequence[Place]) -> View:
        """Return a part of the view, by numbers, slices of positive steps, None and an Ellipsis.

        Raises IndexError for a number out of range and for too many numbers, ValueError for another step.
        """
        offset, shape, strides, axis = self.offset, list[int](), list[int](), 0
        for place in self._completed(index):
            if place is None:
                shape.append(1)
                strides.append(0)
                continue
            size, stride = self.shape[axis], self.strides[axis]
            if isinstance(place, slice):
                start, stop, step = place.indices(size)
                if step < 1:
                    raise ValueError(f"the step of a slice must be positive, got {step}")
                shape.append(len(range(start, stop, step)))
                strides.append(step * stride)
            else:
                start = operator.index(place)
                if not -size <= start < size:
                    raise IndexError(f"index {start} is out of range: axis {axis} of {self.shape} has size {size}")
            offset += start % max(size, 1) * stride
            axis += 1
        return view_of(offset, shape, strides)

    def _completed(self, index: Sequence[Place]) -> list[int | slice | None]:
        """Return an index that names every axis."""
        named = sum(place is not None and place is not Ellipsis for place in index)
        if named > len(self.shape):
            raise IndexError(f"an index of {named} places has no meaning for shape {self.shape}")
        places: list[int | slice | None] = []
        rest = [slice(None)] * (len(self.shape) - named)
        for place in index:
            if place is Ellipsis:
                places += rest
                rest = []
            else:
                places.append(place)
        return places + rest

    def broadcast(self, shape: Sequence[int]) -> View:
        """Return the view repeated to a shape; raises ValueError if the shapes do not fit."""
        added = len(shape) - len(self.shape)
        sizes = (1,) * added + self.shape
        if added < 0 or any(own not in (1, size) for own, size in zip(sizes, shape, strict=True)):
            raise ValueError(f"shape {self.shape} cannot be broadcast to {tuple(shape)}")
        return View(self.offset, tuple(shape), (0,) * added + self.strides)

    def moved(self, source: int, destination: int) -> View:
        """Return the view with an axis moved to another place."""
        axes = [i for i in range(len(self.shape)) if i != source % len(self.shape)]
        axes.insert(destination % len(self.shape), source % len(self.shape))
        return View(self.offset, tuple(self.shape[i] for i in axes), tuple(self.strides[i] for i in axes))

    def expanded(self, axis: int) -> View:
        """Return the view with a new axis of size 1 at a place of the result."""
        axis %= len(self.shape) + 1
        return self.indexed((slice(None),) * axis + (None,))

    def once(self) -> View:
        """Return the view with every repeated axis reduced to size 1."""
        repeated = self.repeated
        shape = tuple(1 if i in repeated else n for i, n in enumerate(self.shape))
        return View(self.offset, shape, self.strides)

    def reshaped(self, shape: Sequence[int]) -> View | None:
        """Return the entries in their order with another shape of equal size; None if they would have to be copied."""
        if self.size == 0:
            return whole(shape)
        runs: list[tuple[int, int]] = []  # neighboring axes that one stride describes: (size, stride)
        for n, s in zip(self.shape, self.strides, strict=True):
            if runs and runs[-1][1] == n * s:
                runs[-1] = runs[-1][0] * n, s
            elif n > 1:
                runs.append((n, s))
        strides, left, stride = list[int](), 1, 0
        for n in reversed(shape):
            if left == 1 and n > 1:
                left, stride = runs.pop()
            if left % n:
                return None
            strides.append(stride)
            left, stride = left // n, stride * n
        return view_of(self.offset, shape, strides[::-1])


def view_of(offset: int, shape: Sequence[int], strides: Sequence[int]) -> View:
    """Return a view, with stride 0 for axes of size 1."""
    return View(offset, tuple(shape), tuple(s if n > 1 else 0 for n, s in zip(shape, strides, strict=True)))


def whole(shape: Sequence[int]) -> View:
    """Return the view of all numbers of an array in C order."""
    return _whole(tuple(shape))


@lru_cache(1024)
def _whole(shape: tuple[int, ...]) -> View:
    strides, step = list[int](), 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return view_of(0, shape, strides[::-1])
