"""Layers of a network, over arrays at addresses.

A row's numbers do not depend on how many rows there are, nor on the code around: every multiplication is fused with its
addition (`fma`), and sums are in the order of the weights.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import float32

from marltrain.addresses import entry, fma, numbers
from marltrain.compiling import compiled, program
from marltrain.policies.compiled.gemm import BROAD, tile

TANH, RELU, NONE = range(3)
"""Activations."""
_LOWEST = np.float32(-np.inf)
_END = np.float32(7.90531110763549805)
"""From here on tanh is 1 in float32."""
_SMALL = np.float32(0.0004)
"""Below that tanh(x) is x."""
_P = np.array([-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08,
               1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03], np.float32)  # fmt: skip
_Q = np.array([1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03], np.float32)
"""tanh(x) = x P(x^2) / Q(x^2), to 3e-7: a minimax fraction, highest powers first, in wide use for float32."""


@compiled
def layer(
    activation: int, x: int, rows: int, x_row: int, x_step: int, inputs: int, weight: int, bias: int, bias_row: int,
    outputs: int, y: int,
) -> int:  # fmt: skip
    """Write the activation of x @ weight + bias to y; return 0.

    x [rows, inputs], `x_row` numbers from one row to the next and `x_step` within it, so that it may lie transposed;
    weight [inputs, outputs]; bias [outputs] with `bias_row` 0, or [rows, outputs] with as many as its rows are apart,
    which may be y itself; y [rows, outputs].
    """
    floor = float32(0.0) if activation == RELU else _LOWEST
    row = 0
    while row < rows:
        left = rows - row
        tall = 6 if left >= 6 and left != 8 else 4 if left >= 4 else 1  # of `tiles.HEIGHTS`
        below, start = x + 4 * row * x_row, bias + 4 * row * bias_row
        row_of_tiles(tall, below, x_row, x_step, inputs, weight, start, bias_row, outputs, y + 4 * row * outputs, floor)
        row += tall
    if activation == TANH:
        values = numbers(y, rows * outputs)
        for i in range(rows * outputs):
            values[i] = tanh(values[i])
    return 0


@functools.cache
def layer_entry() -> int:
    """Return where compiled code calls `layer`, which would be the most of every program that holds it."""
    return entry(program(layer), 11)


@compiled
def row_of_tiles(
    tall: int, x: int, x_row: int, x_step: int, inputs: int, weight: int, bias: int, bias_row: int, outputs: int,
    y: int, floor: Any,
) -> None:  # fmt: skip
    """Write as many rows as a tile has, by the widest tiles that fit."""
    j = 0
    while j < outputs:
        columns = BROAD if outputs - j >= BROAD else min(outputs - j, 8)
        at = 4 * j
        tile(tall, columns, x, x_row, x_step, inputs, weight + at, bias + at, bias_row, outputs, y + at, floor)
        j += columns


@compiled
def tanh(x: Any) -> Any:
    """Return tanh of a float32, in operations that vectors have."""
    bounded: Any = min(max(x, -_END), _END)
    square = bounded * bounded
    upper = _P[0]
    for i in range(1, 7):
        upper = fma(square, upper, _P[i])
    lower = _Q[0]
    for i in range(1, 4):
        lower = fma(square, lower, _Q[i])
    return x if abs(x) < _SMALL else bounded * upper / lower
