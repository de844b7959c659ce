"""Transposition of matrices in vector registers: blocks of 16 x 16 numbers, by four rounds of shuffles."""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from marltrain.jit.compiling import inner
from marltrain.jit.views import f32

SIDE = 16
_FLOAT, _WHOLE, _INT = ir.FloatType(), ir.IntType(64), ir.IntType(32)
_VECTOR = ir.VectorType(_FLOAT, SIDE)
_TYPES: Any = types


def _transpose_block(_: Any, source: Any, source_row: Any, out: Any, out_row: Any) -> Any:
    """Write the transpose of a block; addresses, and strides between rows in elements."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, source_row, out, out_row = arguments
        rows = [builder.load(_row(builder, source, source_row, i), align=4) for i in range(SIDE)]
        step = 1
        while step < SIDE:  # exchange the parts of blocks [2 * step, 2 * step] that are off the diagonal
            low = [j if not j & step else SIDE + j - step for j in range(SIDE)]
            high = [j + step if not j & step else SIDE + j for j in range(SIDE)]
            for i in (i for i in range(SIDE) if not i & step):
                pair = rows[i], rows[i + step]
                rows[i], rows[i + step] = (_shuffle(builder, *pair, lanes) for lanes in (low, high))
            step *= 2
        for i, row in enumerate(rows):
            builder.store(row, _row(builder, out, out_row, i), align=4)
        return context.get_dummy_value()

    return _TYPES.void(*[types.int64] * 4), generate


def _row(builder: Any, start: Any, stride: Any, i: int) -> Any:
    """Return a pointer to row i, as a vector."""
    first = builder.inttoptr(start, _FLOAT.as_pointer())
    return builder.bitcast(builder.gep(first, [builder.mul(stride, _WHOLE(i))]), _VECTOR.as_pointer())


def _shuffle(builder: Any, a: Any, b: Any, lanes: list[int]) -> Any:
    """Return the entries `lanes` of two vectors, those of b counted on from those of a."""
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_INT, SIDE), lanes))


transpose_block: Any = intrinsic(_transpose_block)


@inner
def transpose(source: int, rows: int, columns: int, out: int) -> None:
    """Write the transpose of a matrix [rows, columns]."""
    x, o = f32(source, rows * columns), f32(out, rows * columns)
    tall, broad = rows - rows % SIDE, columns - columns % SIDE
    for i in range(0, tall, SIDE):
        for j in range(0, broad, SIDE):
            transpose_block(source + 4 * (i * columns + j), columns, out + 4 * (j * rows + i), rows)
    for i in range(rows):
        for j in range(broad if i < tall else 0, columns):
            o[j * rows + i] = x[i * columns + j]
