"""Arrays in buffers of bytes that are copied at once between the memory of the CPU and that of a GPU."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from marltrain.core.layout import Array, map_tree
from marltrain.policies.backends.torch.capture_protocol import Capture, Function

ALIGNED = 64
"""Bytes of which the place of an argument is a multiple: operations of a GPU read several aligned numbers at once."""


class Layout:
    """Places of arrays in a buffer, those of wide numbers first: each starts at a multiple of its numbers' width.

    order: the arrays in the order of their places.  size: bytes of the buffer.
    """

    def __init__(self, kinds: Sequence[tuple[np.dtype[Any], tuple[int, ...]]], aligned: int = 1) -> None:
        """Take the dtypes and shapes; aligned: bytes of which each place is a multiple."""
        self._kinds = list(kinds)
        self.order = sorted(range(len(kinds)), key=lambda i: -kinds[i][0].itemsize)
        self._places, end = [(0, 0)] * len(kinds), 0
        for i in self.order:
            start = -(-end // aligned) * aligned
            end = start + kinds[i][0].itemsize * math.prod(kinds[i][1])
            self._places[i] = start, end
        self.size = end

    def arrays(self, buffer: Array) -> list[Array]:
        """Return the arrays in a buffer [size] uint8, on its memory."""
        return [
            np.ndarray(shape, dtype, buffer, start)
            for (start, _), (dtype, shape) in zip(self._places, self._kinds, strict=True)
        ]

    def tensors(self, buffer: Tensor) -> list[Tensor]:
        """Return the tensors in a buffer [size] uint8, on its memory."""
        return [
            buffer[start:end].view(dtype_of(dtype)).view(shape)
            for (start, end), (dtype, shape) in zip(self._places, self._kinds, strict=True)
        ]


class Arguments:
    """The arguments of a captured call: arrays, which are copied at once into one buffer, and tensors.

    fixed: tensors whose addresses never change, one for each argument.
    """

    def __init__(self, examples: Sequence[Any], capture: Capture) -> None:
        """Allocate memory for arguments like `examples`, arrays and tensors of the device."""
        self._capture = capture
        self._arrays = [i for i, given in enumerate(examples) if isinstance(given, np.ndarray)]
        layout = Layout([(examples[i].dtype, examples[i].shape) for i in self._arrays], ALIGNED)
        self._buffer = torch.zeros(layout.size, dtype=torch.uint8, device=capture.device)
        own = dict(zip(self._arrays, layout.tensors(self._buffer), strict=True))
        self.fixed: list[Tensor] = [own[i] if i in own else given.detach().clone() for i, given in enumerate(examples)]
        self._groups = by_dtype({i: tensor for i, tensor in enumerate(self.fixed) if i not in own})
        self._sources = [_Source(layout, capture) for _ in range(2)] if self._arrays else []

    def write(self, given: Sequence[Any]) -> None:
        """Copy the arguments into the fixed tensors, behind the operations that have been started."""
        if self._sources:
            source = self._sources[0]
            self._sources.reverse()
            source.mark.synchronize()  # an earlier copy may still read its memory
            for place, i in zip(source.arrays, self._arrays, strict=True):
                place[...] = given[i]
            self._capture.send(source.memory, self._buffer)
            source.mark.record()
        for into, places in self._groups:
            torch._foreach_copy_(into, [given[i] for i in places])


class _Source:
    """Memory of the CPU that arguments are copied from, and the mark behind its last copy."""

    def __init__(self, layout: Layout, capture: Capture) -> None:
        self.memory, self.mark = capture.host(layout.size), capture.mark()
        self.arrays = layout.arrays(self.memory.numpy())


class Packed:
    """A function of tensors whose results are returned in one buffer, [size] uint8."""

    def __init__(self, function: Function) -> None:
        """Wrap the function; a call of it makes the layout of its results."""
        self._function = function
        self._tree: Any = None  # the results' tree, with their numbers in the layout
        self._layout = Layout([])

    def __call__(self, *given: Tensor) -> Tensor:
        """Call the function; return its results in one buffer."""
        found: list[Tensor] = []
        self._tree = map_tree(lambda tensor: appended(found, tensor.detach()), self._function(*given))
        self._layout = Layout([(array_dtype(tensor.dtype), tuple(tensor.shape)) for tensor in found])
        if not found:
            return torch.empty(0, dtype=torch.uint8)
        return torch.cat([found[i].contiguous().view(-1).view(torch.uint8) for i in self._layout.order])

    def unpacked(self, buffer: Array) -> Any:
        """Return the results in a buffer as arrays on its memory."""
        return map_tree(self._layout.arrays(buffer).__getitem__, self._tree)


class Fetches:
    """Copies of results of a function to the memory of the CPU, several of which may be under way."""

    def __init__(self, packed: Packed, capture: Capture) -> None:
        """Take the function that makes the results."""
        self._packed, self._capture = packed, capture
        self._free: list[_Landing] = []

    def start(self, results: Tensor) -> Fetch:
        """Start the copy of results."""
        landing = self._free.pop() if self._free else _Landing(len(results), self._capture)
        self._capture.fetch(results, landing.memory)
        landing.mark.record()
        return Fetch(self._packed, landing, self._free)


class _Landing:
    """Memory of the CPU that results are copied to, as a tensor and as an array, and the mark behind the copy."""

    def __init__(self, size: int, capture: Capture) -> None:
        self.memory, self.mark = capture.host(size), capture.mark()
        self.array: Array = self.memory.numpy()


class Fetch:
    """Results that are copied to the memory of the CPU."""

    def __init__(self, packed: Packed, landing: _Landing, free: list[_Landing]) -> None:
        """Take the memory, which belongs to this copy until its results have been read; free: that for later copies."""
        self._packed, self._landing, self._free = packed, landing, free
        self._read: Array | None = None

    def result(self) -> Any:
        """Wait for the copy; return the results as writable arrays."""
        if self._read is None:
            self._landing.mark.synchronize()
            self._read = self._landing.array.copy()  # the memory serves later copies
            self._free.append(self._landing)
        return self._packed.unpacked(self._read)


def by_dtype(tensors: dict[int, Tensor]) -> list[tuple[list[Tensor], list[int]]]:
    """Return the tensors of each dtype with their numbers: torch copies such lists in one operation."""
    numbers: dict[torch.dtype, list[int]] = {}
    for i, tensor in tensors.items():
        numbers.setdefault(tensor.dtype, []).append(i)
    return [([tensors[i] for i in own], own) for own in numbers.values()]


def appended(leaves: list[Any], leaf: Any) -> int:
    """Append a leaf; return its number."""
    leaves.append(leaf)
    return len(leaves) - 1


@functools.cache
def dtype_of(dtype: np.dtype[Any]) -> torch.dtype:
    """Return torch's dtype of the same numbers; raises TypeError if there is none."""
    return torch.from_numpy(np.empty(0, dtype)).dtype


@functools.cache
def array_dtype(dtype: torch.dtype) -> np.dtype[Any]:
    """Return numpy's dtype of the same numbers."""
    found: np.dtype[Any] = torch.empty(0, dtype=dtype).numpy().dtype
    return found
