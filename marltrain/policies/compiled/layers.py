"""Fully connected layers, over arrays at addresses.

The results of a row depend neither on the number of rows nor on the surrounding code: every multiplication is fused
with its addition (`fma`), and sums follow the order of the weights.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import float32

from marltrain.jit.compiling import compiled, program
from marltrain.jit.views import entry, f32, fma
from marltrain.policies.compiled.gemm import BROAD, tile

TANH, RELU, NONE = range(3)
"""Activation functions of a layer."""
_LOWEST = np.float32(-np.inf)
_END = np.float32(7.90531110763549805)
"""For larger inputs tanh is 1 in float32."""
_SMALL = np.float32(0.0004)
"""For smaller absolute inputs tanh(x) is x in float32."""
_P = np.array([-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08,
               1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03], np.float32)  # fmt: skip
_Q = np.array([1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03], np.float32)
"""tanh(x) = x P(x^2) / Q(x^2), with an error of 3e-7: a widely used minimax approximation for float32.

Coefficients: highest powers first.
"""


@compiled
def layer(
    activation: int, x: int, rows: int, x_row: int, x_step: int, inputs: int, weight: int, bias: int, bias_row: int,
    outputs: int, y: int,
) -> int:  # fmt: skip
    """Write the activation of x @ weight + bias to y; return 0.

    x: [rows, inputs], with strides `x_row` between rows and `x_step` within a row, in elements; it may be transposed.
    weight: [inputs, outputs].  y: [rows, outputs].
    bias: [outputs] with `bias_row` 0, or [rows, outputs] with the stride `bias_row` between rows; it may be y itself.
    """
    floor = float32(0.0) if activation == RELU else _LOWEST
    row = 0
    while row < rows:
        left = rows - row
        tall = 6 if left >= 6 and left != 8 else 4 if left >= 4 else 1  # of `gemm.HEIGHTS`
        below, start = x + 4 * row * x_row, bias + 4 * row * bias_row
        row_of_tiles(tall, below, x_row, x_step, inputs, weight, start, bias_row, outputs, y + 4 * row * outputs, floor)
        row += tall
    if activation == TANH:
        values = f32(y, rows * outputs)
        for i in range(rows * outputs):
            values[i] = tanh(values[i])
    return 0


@functools.cache
def layer_entry() -> int:
    """Return the address by which compiled code calls `layer`.

    It is compiled once, apart from its callers: inlined, it would be the largest part of each of them.
    """
    return entry(program(layer), 11)


@compiled
def row_of_tiles(
    tall: int, x: int, x_row: int, x_step: int, inputs: int, weight: int, bias: int, bias_row: int, outputs: int,
    y: int, floor: Any,
) -> None:  # fmt: skip
    """Write `tall` rows of the result, by the widest tiles that fit."""
    j = 0
    while j < outputs:
        columns = BROAD if outputs - j >= BROAD else min(outputs - j, 8)
        at = 4 * j
        tile(tall, columns, x, x_row, x_step, inputs, weight + at, bias + at, bias_row, outputs, y + at, floor)
        j += columns


@compiled
def tanh(x: Any) -> Any:
    """Return tanh of a float32, by operations that vectorize."""
    bounded: Any = min(max(x, -_END), _END)
    square = bounded * bounded
    upper = _P[0]
    for i in range(1, 7):
        upper = fma(square, upper, _P[i])
    lower = _Q[0]
    for i in range(1, 4):
        lower = fma(square, lower, _Q[i])
    return x if abs(x) < _SMALL else bounded * upper / lower
