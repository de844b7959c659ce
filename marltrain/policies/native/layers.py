"""Layers of a network, over arrays at addresses.

A row's numbers do not depend on how many rows there are, nor on the code around: every multiplication is fused with its
addition (`fma`), and sums are in the order of the weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float32

from marltrain.addresses import fma, numbers
from marltrain.compiling import compiled
from marltrain.policies.native.tiles import (
    TALL,
    row_by_1,
    row_by_4,
    row_by_8,
    row_by_32,
    rows_by_1,
    rows_by_4,
    rows_by_8,
    rows_by_32,
)

TANH, RELU = range(2)
"""Activations."""
_END = np.float32(7.90531110763549805)
"""From here on tanh is 1 in float32."""
_SMALL = np.float32(0.0004)
"""Below that tanh(x) is x."""
_P = np.array([-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08,
               1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03], np.float32)  # fmt: skip
_Q = np.array([1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03], np.float32)
"""tanh(x) = x P(x^2) / Q(x^2), to 3e-7: a minimax fraction, highest powers first, in wide use for float32."""


@compiled
def linear(x: int, rows: int, inputs: int, weight: int, bias: int, outputs: int, y: int) -> None:
    """Write x @ weight + bias to y: x [rows, inputs], weight [inputs, outputs], bias [outputs], y [rows, outputs]."""
    whole = rows - rows % TALL
    for row in range(0, whole, TALL):
        some_rows(x + 4 * row * inputs, inputs, weight, bias, outputs, y + 4 * row * outputs)
    for row in range(whole, rows):
        one_row(x + 4 * row * inputs, inputs, weight, bias, outputs, y + 4 * row * outputs)


@compiled
def some_rows(x: int, inputs: int, weight: int, bias: int, outputs: int, y: int) -> None:
    """Write as many rows as a tile has, by the widest tiles that fit."""
    j = 0
    while outputs - j >= 32:
        rows_by_32(x, inputs, weight + 4 * j, bias + 4 * j, outputs, y + 4 * j)
        j += 32
    while outputs - j >= 8:
        rows_by_8(x, inputs, weight + 4 * j, bias + 4 * j, outputs, y + 4 * j)
        j += 8
    if outputs - j >= 4:
        rows_by_4(x, inputs, weight + 4 * j, bias + 4 * j, outputs, y + 4 * j)
        j += 4
    for column in range(j, outputs):
        rows_by_1(x, inputs, weight + 4 * column, bias + 4 * column, outputs, y + 4 * column)


@compiled
def one_row(x: int, inputs: int, weight: int, bias: int, outputs: int, y: int) -> None:
    """Write one row, by the widest tiles that fit."""
    j = 0
    while outputs - j >= 32:
        row_by_32(x, inputs, weight + 4 * j, bias + 4 * j, outputs, y + 4 * j)
        j += 32
    while outputs - j >= 8:
        row_by_8(x, inputs, weight + 4 * j, bias + 4 * j, outputs, y + 4 * j)
        j += 8
    if outputs - j >= 4:
        row_by_4(x, inputs, weight + 4 * j, bias + 4 * j, outputs, y + 4 * j)
        j += 4
    for column in range(j, outputs):
        row_by_1(x, inputs, weight + 4 * column, bias + 4 * column, outputs, y + 4 * column)


@compiled
def activate(activation: int, y: int, size: int) -> None:
    """Apply an activation to `size` numbers in place."""
    values = numbers(y, size)
    if activation == RELU:
        for i in range(size):
            values[i] = max(values[i], float32(0.0))
    else:
        for i in range(size):
            values[i] = tanh(values[i])


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
