"""Axes that loops need: those of several operands that go on evenly are joined into one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from marltrain.policies.tape.views import View, whole


@dataclass(frozen=True)
class Axes:
    """Axes of a common shape, and the strides of each operand along them, in elements."""

    sizes: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]

    @property
    def count(self) -> int:
        """Number of matrices that cover all entries."""
        return math.prod(sorted(self.sizes[:-1])[:-1])

    def matrices(self) -> Iterator[tuple[list[int], int, int, list[tuple[int, int]]]]:
        """Yield matrices that cover all entries: one, unless there are more than two axes.

        Each is given by the offset of each operand, rows, columns, and each operand's strides between rows and columns.
        The columns are the last axis, and the rows the longest of the others.
        """
        last = len(self.sizes) - 1
        others = sorted(range(max(last, 0)), key=lambda axis: self.sizes[axis])
        outer, inner = others[:-1], [*others[-1:], *range(max(last, 0), last + 1)]
        missing = 2 - len(inner)
        rows, columns = (1,) * missing + tuple(self.sizes[axis] for axis in inner)
        pairs = [(0,) * missing + tuple(own[axis] for axis in inner) for own in self.strides]
        if missing == 2:  # a single entry
            pairs = [(0, 1) for _ in self.strides]
        for index in np.ndindex(*(self.sizes[axis] for axis in outer)):
            offsets = [sum(i * own[axis] for i, axis in zip(index, outer, strict=True)) for own in self.strides]
            yield offsets, rows, columns, pairs

    def vector(self) -> tuple[int, list[int]]:
        """Return the size of the only axis and the stride of each operand; 1 and 0 without an axis."""
        return (self.sizes[0], [own[0] for own in self.strides]) if self.sizes else (1, [0] * len(self.strides))


def joined(shape: Sequence[int], *strides: Sequence[int]) -> Axes:
    """Return the axes of a shape, in order: without those of size 1, and with those joined that all operands can join.

    strides: those of each operand.
    """
    return _joined(tuple(shape), tuple(map(tuple, strides)))


@lru_cache(4096)
def _joined(shape: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> Axes:
    sizes: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for size, *here in zip(shape, *strides, strict=True):
        if size == 1:
            continue
        if sizes and all(own[-1] == step * size for own, step in zip(steps, here, strict=True)):
            sizes[-1] *= size
            for own, step in zip(steps, here, strict=True):
                own[-1] = step
        else:
            sizes.append(size)
            for own, step in zip(steps, here, strict=True):
                own.append(step)
    return Axes(tuple(sizes), tuple(map(tuple, steps)))


def is_plain(view: View) -> bool:
    """Return whether the entries of a view lie in order without gaps or repetitions."""
    return view.strides == whole(view.shape).strides
