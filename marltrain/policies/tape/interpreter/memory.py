"""Places in memory, for the instructions of the interpreter."""

from __future__ import annotations

from typing import Any

from marltrain.jit.compiling import inner
from marltrain.jit.views import f32, i64
from marltrain.policies.tape.instructions import OFFSET, SEGMENTS, SHIFT


@inner
def at(segments: int, place: int) -> int:
    """Return the address of a place.  segments: the address of the segments' addresses."""
    return i64(segments, SEGMENTS)[place >> SHIFT] + (place & OFFSET)


@inner
def row_at(start: int, row: int, row_stride: int, columns: int, stride: int) -> Any:
    """Return the float32 numbers of a row of a strided matrix, up to its last entry; strides in elements."""
    return f32(start + 4 * row * row_stride, (columns - 1) * stride + 1)


@inner
def number_at(segments: int, place: int) -> Any:
    """Return the float32 number at a place."""
    return f32(at(segments, place), 1)[0]
