"""The innermost part of a product of matrices: a tile of the result, held in the processor's vector registers.

Loops in Python's words would write every partial sum to memory; here they stay in registers. What is computed does not
depend on the tile: a sum starts with the bias and adds one product after another, each rounded once (a fused
multiply-add).
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

TALL = 4
"""Rows of a tile; the last rows of a matrix are tiles of one."""
WIDEST = 16
"""Numbers in a vector: those of the widest registers there are. Where they are narrower, LLVM takes several."""
_FLOAT, _WHOLE = ir.FloatType(), ir.IntType(64)
_TOOLS: Any = cgutils


def _tile(rows: int, columns: int) -> Any:
    """Return compiled code that writes x @ weight + bias for some rows and columns to y.

    It is given addresses and sizes: x of the first row, `inputs` numbers a row; weight and bias of the first column,
    `outputs` numbers a row of weight and y; y of the first row and column.
    """

    def tile(_: Any, x: Any, inputs: Any, weight: Any, bias: Any, outputs: Any, y: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            _write(builder, rows, columns, *arguments)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), generate

    return intrinsic(tile)


def _write(
    builder: Any, rows: int, columns: int, x: Any, inputs: Any, weight: Any, bias: Any, outputs: Any, y: Any
) -> None:
    width = min(columns, WIDEST)
    vector = _FLOAT if width == 1 else ir.VectorType(_FLOAT, width)
    pieces = [_WHOLE(piece) for piece in range(0, columns, width)]
    name = "llvm.fma.f32" if width == 1 else f"llvm.fma.v{width}f32"
    multiply_add = _TOOLS.get_or_insert_function(builder.module, ir.FunctionType(vector, [vector] * 3), name)
    sums = [[_TOOLS.alloca_once(builder, vector) for _ in pieces] for _ in range(rows)]
    for i, piece in enumerate(pieces):
        start = builder.load(_place(builder, vector, bias, piece), align=4)
        for row in range(rows):
            builder.store(start, sums[row][i])
    with _TOOLS.for_range(builder, inputs) as loop:
        first = builder.mul(loop.index, outputs)
        weights = [
            builder.load(_place(builder, vector, weight, builder.add(first, piece)), align=4) for piece in pieces
        ]
        for row in range(rows):
            at = builder.add(builder.mul(_WHOLE(row), inputs), loop.index)
            factor = _spread(builder, vector, builder.load(_place(builder, _FLOAT, x, at)))
            for total, weighed in zip(sums[row], weights, strict=True):
                builder.store(builder.call(multiply_add, [factor, weighed, builder.load(total)]), total)
    for row in range(rows):
        for total, piece in zip(sums[row], pieces, strict=True):
            at = builder.add(builder.mul(_WHOLE(row), outputs), piece)
            builder.store(builder.load(total), _place(builder, vector, y, at), align=4)


def _place(builder: Any, kind: Any, address: Any, index: Any) -> Any:
    """Return a pointer to what begins at number `index` of the float32 numbers at an address."""
    start = builder.inttoptr(address, _FLOAT.as_pointer())
    return builder.bitcast(builder.gep(start, [index]), kind.as_pointer())


def _spread(builder: Any, vector: Any, number: Any) -> Any:
    """Return a vector of one number."""
    if vector is _FLOAT:
        return number
    nothing, first = ir.Constant(vector, ir.Undefined), ir.IntType(32)(0)
    everywhere = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    return builder.shuffle_vector(builder.insert_element(nothing, number, first), nothing, everywhere)


rows_by_32, rows_by_8, rows_by_4, rows_by_1 = (_tile(TALL, columns) for columns in (32, 8, 4, 1))
row_by_32, row_by_8, row_by_4, row_by_1 = (_tile(1, columns) for columns in (32, 8, 4, 1))
