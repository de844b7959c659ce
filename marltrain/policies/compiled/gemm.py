"""The inner loop of a matrix product: it computes a tile of the result in the processor's vector registers.

Loops written in Python and compiled by Numba write every partial sum to memory; these sums stay in registers. Results
do not depend on the size of the tile: a sum starts with the bias and adds the products in order, each rounded once
(fused multiply-add).
"""

from __future__ import annotations

from typing import Any

from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

HEIGHTS = (6, 4, 1)
"""Possible numbers of rows of a tile: six use the multipliers fully; four complete an even number of rows."""
WIDEST = 16 if binding.get_host_cpu_features().get("avx512f") else 8
"""Elements of a vector: as many as the processor's widest registers hold."""
BROAD = 2 * WIDEST
"""Columns of the widest tile: its sums, weights and factors just fit into the registers (32 with AVX-512, else 16)."""
COLUMNS = (BROAD, *range(8, 0, -1))
"""Possible numbers of columns of a tile."""
_MANY = 1000
"""A number larger than the columns of a tile, to combine rows and columns into one key."""
_FLOAT, _WHOLE = ir.FloatType(), ir.IntType(64)
_TOOLS: Any = cgutils


def _tile(
    _: Any, rows: Any, columns: Any, x: Any, x_row: Any, x_step: Any, inputs: Any, weight: Any, bias: Any,
    bias_row: Any, outputs: Any, y: Any, floor: Any,
) -> Any:  # fmt: skip
    """Write max(x @ weight + bias, floor) for a tile of rows and columns to y.

    rows: one of HEIGHTS.  columns: one of COLUMNS.  All other arguments but `floor` are addresses, sizes and strides
    in elements.
    x: the first row, of `inputs` elements, with the stride `x_step` within a row and `x_row` between rows.
    weight, bias: the first column; the stride `outputs` between the rows of weight, `bias_row` between those of bias.
    y: the first row and column, with the stride `outputs` between rows.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        after = builder.append_basic_block()
        chosen = builder.add(builder.mul(arguments[0], _WHOLE(_MANY)), arguments[1])
        choice = builder.switch(chosen, after)
        for height in HEIGHTS:
            for size in COLUMNS:
                block = builder.append_basic_block(f"tile{height}x{size}")
                choice.add_case(_WHOLE(height * _MANY + size), block)
                builder.position_at_end(block)
                _write(builder, height, size, *arguments[2:])
                builder.branch(after)
        builder.position_at_end(after)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 11, types.float32), generate


tile: Any = intrinsic(_tile)


def _write(
    builder: Any, rows: int, columns: int, x: Any, x_row: Any, x_step: Any, inputs: Any, weight: Any, bias: Any,
    bias_row: Any, outputs: Any, y: Any, floor: Any,
) -> None:  # fmt: skip
    width = min(columns, WIDEST)
    vector = _FLOAT if width == 1 else ir.VectorType(_FLOAT, width)
    pieces = [_WHOLE(piece) for piece in range(0, columns, width)]
    name = "llvm.fma.f32" if width == 1 else f"llvm.fma.v{width}f32"
    multiply_add = _TOOLS.get_or_insert_function(builder.module, ir.FunctionType(vector, [vector] * 3), name)
    sums = [[_TOOLS.alloca_once(builder, vector) for _ in pieces] for _ in range(rows)]
    for row in range(rows):
        down = builder.mul(_WHOLE(row), bias_row)
        for total, piece in zip(sums[row], pieces, strict=True):
            start = builder.load(_place(builder, vector, bias, builder.add(down, piece)), align=4)
            builder.store(start, total)
    with _TOOLS.for_range(builder, inputs) as loop:
        first = builder.mul(loop.index, outputs)
        weights = [
            builder.load(_place(builder, vector, weight, builder.add(first, piece)), align=4) for piece in pieces
        ]
        for row in range(rows):
            at = builder.add(builder.mul(_WHOLE(row), x_row), builder.mul(loop.index, x_step))
            factor = _spread(builder, vector, builder.load(_place(builder, _FLOAT, x, at)))
            for total, weighed in zip(sums[row], weights, strict=True):
                builder.store(builder.call(multiply_add, [factor, weighed, builder.load(total)]), total)
    lowest = _spread(builder, vector, floor)
    for row in range(rows):
        for total, piece in zip(sums[row], pieces, strict=True):
            result = builder.load(total)
            raised = builder.select(builder.fcmp_ordered("<", result, lowest), lowest, result)
            at = builder.add(builder.mul(_WHOLE(row), outputs), piece)
            builder.store(raised, _place(builder, vector, y, at), align=4)


def _place(builder: Any, kind: Any, address: Any, index: Any) -> Any:
    """Return a pointer to element `index` of the float32 array at an address."""
    start = builder.inttoptr(address, _FLOAT.as_pointer())
    return builder.bitcast(builder.gep(start, [index]), kind.as_pointer())


def _spread(builder: Any, vector: Any, number: Any) -> Any:
    """Return a vector with all elements equal to a number."""
    if vector is _FLOAT:
        return number
    nothing, first = ir.Constant(vector, ir.Undefined), ir.IntType(32)(0)
    everywhere = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    return builder.shuffle_vector(builder.insert_element(nothing, number, first), nothing, everywhere)
