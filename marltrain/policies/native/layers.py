"""Layers of a network, over arrays at addresses.

A row's numbers do not depend on how many rows there are, nor on the code around: every multiplication is fused with its
addition here (`fma`), and sums are in the order of the weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float32

from marltrain.addresses import carray, fma, numbers, pointer
from marltrain.compiling import compiled

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
    read = carray(pointer(x), (rows, inputs), float32)
    matrix = carray(pointer(weight), (inputs, outputs), float32)
    made = carray(pointer(y), (rows, outputs), float32)
    start = numbers(bias, outputs)
    for row in range(rows):
        for j in range(outputs):
            made[row, j] = start[j]
    for row in range(0, rows - 1, 2):
        two_rows(read, matrix, made, row, inputs, outputs)
    if rows % 2:
        one_row(read, matrix, made, rows - 1, inputs, outputs)


@compiled
def two_rows(x: Any, weight: Any, y: Any, row: int, inputs: int, outputs: int) -> None:
    """Add x @ weight in rows `row` and `row + 1`: weights are read once for both."""
    for i in range(0, inputs - 3, 4):
        a0, a1, a2, a3 = x[row, i], x[row, i + 1], x[row, i + 2], x[row, i + 3]
        b0, b1, b2, b3 = x[row + 1, i], x[row + 1, i + 1], x[row + 1, i + 2], x[row + 1, i + 3]
        for j in range(outputs):
            w0, w1, w2, w3 = weight[i, j], weight[i + 1, j], weight[i + 2, j], weight[i + 3, j]
            y[row, j] = fma(a3, w3, fma(a2, w2, fma(a1, w1, fma(a0, w0, y[row, j]))))
            y[row + 1, j] = fma(b3, w3, fma(b2, w2, fma(b1, w1, fma(b0, w0, y[row + 1, j]))))
    for i in range(inputs - inputs % 4, inputs):
        a0, b0 = x[row, i], x[row + 1, i]
        for j in range(outputs):
            y[row, j] = fma(a0, weight[i, j], y[row, j])
            y[row + 1, j] = fma(b0, weight[i, j], y[row + 1, j])


@compiled
def one_row(x: Any, weight: Any, y: Any, row: int, inputs: int, outputs: int) -> None:
    """Add x @ weight in one row."""
    for i in range(0, inputs - 3, 4):
        a0, a1, a2, a3 = x[row, i], x[row, i + 1], x[row, i + 2], x[row, i + 3]
        for j in range(outputs):
            low = fma(a1, weight[i + 1, j], fma(a0, weight[i, j], y[row, j]))
            y[row, j] = fma(a3, weight[i + 3, j], fma(a2, weight[i + 2, j], low))
    for i in range(inputs - inputs % 4, inputs):
        a0 = x[row, i]
        for j in range(outputs):
            y[row, j] = fma(a0, weight[i, j], y[row, j])


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
