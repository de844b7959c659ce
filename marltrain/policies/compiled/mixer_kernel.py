"""The monotonic mixer of QMIX in compiled code, with its gradient: the equivalent of `MonotonicMixer`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float32

from marltrain.jit.compiling import compiled
from marltrain.jit.views import f32, fma, i64, record_at
from marltrain.policies.compiled.layers import tanh
from marltrain.policies.compiled.network import NETWORK, backward, forward, outputs_at, transpose_weights

_ONE = (
    "players", "units", "skip", "rows",  # N players, U hidden units of the mixture, B rows
    "order",  # [N] int64, places of the players, in their order, among the values
    "weights", "target", "first", "second", "count",  # [1, size], and steps so far [1]
    "rate", "weight_decay", "momentum", "epsilon",  # [1] each, set by `team_kernel`, and one float64
    "state", "next_state",  # [B, width]
    "activations", "transposed", "gradient", "zeros", "scratch",  # work arrays
    "hidden",  # work array [B, U]
)  # fmt: skip
MIXER = np.dtype(NETWORK + [(name, np.int64) for name in _ONE])
"""Arguments of the mixer: the network that makes the weights of the mixture from the state, numbers and addresses.

Its outputs are W1 [N, U], b1 [U], w2 [U] and V.
"""


@compiled
def mixer_at(address: int) -> Any:
    """Return the MIXER record at an address."""
    return record_at(address, MIXER)


@compiled
def mix_next(m: Any, values: int, made: int) -> None:
    """Write the mixture of the next values [N, B] by the target network, at the next states, to `made` [B]."""
    mix(m, forward(m, m.next_state, m.rows, m.target, m.activations), values, made)


@compiled
def mix_taken(m: Any, values: int, made: int) -> None:
    """Write the mixture of the values [N, B] of the actions, for `mix_backward`, to `made` [B]."""
    mix(m, forward(m, m.state, m.rows, m.weights, m.activations), values, made)


@compiled
def mix(m: Any, outputs: int, values: int, made: int) -> None:
    """Write |w2| elu(|W1| q + b1) + V, and the sum of q with `skip`, for values q [N, B] to `made` [B].

    outputs: those of the network, [B, choices].  The outputs of elu are left in `hidden`.
    """
    units, rows, totals = m.units, m.rows, f32(made, m.rows)
    own = m.players * units
    for row in range(rows):
        out, hidden = f32(outputs + 4 * row * m.choices, m.choices), f32(m.hidden + 4 * row * units, units)
        for u in range(units):
            hidden[u] = out[own + u]
        total = out[own + 2 * units]
        for i in range(m.players):
            q, first = value_of(m, values, i, row), out[i * units : (i + 1) * units]
            for u in range(units):
                hidden[u] = fma(abs(first[u]), q, hidden[u])
            if m.skip:
                total += q
        for u in range(units):
            hidden[u] = elu(hidden[u])
        for u in range(units):
            total = fma(abs(out[own + units + u]), hidden[u], total)
        totals[row] = total


@compiled
def mix_backward(m: Any, values: int, slopes: int, made: int) -> None:
    """Write the gradient of a loss with respect to the weights to `gradient`, and to the values [N, B] to `made`.

    slopes: [B], the loss's gradient with respect to the result of `mix_taken`, which was called last.
    """
    units, rows, outputs = m.units, m.rows, outputs_at(m, m.rows, m.activations)
    own = m.players * units
    given = f32(slopes, rows)
    for row in range(rows):
        slope = given[row]
        out, hidden = f32(outputs + 4 * row * m.choices, m.choices), f32(m.hidden + 4 * row * units, units)
        for u in range(units):
            second, y = out[own + units + u], hidden[u]
            hidden[u] = slope * abs(second) * (y + float32(1.0) if y < 0 else float32(1.0))
            out[own + units + u] = slope * y * sign(second)
        for u in range(units):
            out[own + u] = hidden[u]
        out[own + 2 * units] = slope
        for i in range(m.players):
            q, first = value_of(m, values, i, row), out[i * units : (i + 1) * units]
            total = slope if m.skip else float32(0.0)
            for u in range(units):
                total = fma(abs(first[u]), hidden[u], total)
            for u in range(units):
                first[u] = sign(first[u]) * (q * hidden[u])
            f32(made + 4 * place_of_value(m, i) * rows, rows)[row] = total
    transpose_weights(m, m.weights, m.transposed)
    f32(m.gradient, m.size)[:] = float32(0.0)
    backward(m, m.state, rows, m.transposed, m.activations, m.gradient, m.zeros, m.scratch)


@compiled
def place_of_value(m: Any, player: int) -> int:
    """Return the place of a player among the values."""
    return i64(m.order, m.players)[player]


@compiled
def value_of(m: Any, values: int, player: int, row: int) -> Any:
    """Return the value of a player in a row of values [N, B]."""
    return f32(values + 4 * place_of_value(m, player) * m.rows, m.rows)[row]


@compiled
def elu(x: Any) -> Any:
    """Return x, or exp(x) - 1 if x is negative: 2 t / (1 - t) with t = tanh(x / 2), by operations that vectorize."""
    t = tanh(float32(0.5) * min(x, float32(0.0)))
    return float32(2.0) * t / (float32(1.0) - t) if x < 0 else x


@compiled
def sign(x: Any) -> Any:
    """Return the derivative of |x|: 1, -1 or 0."""
    return float32(x > 0) - float32(x < 0)
