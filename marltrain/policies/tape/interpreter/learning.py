"""Instructions of layers and of gradient steps: products, norms, optimizers."""

from __future__ import annotations

from typing import Any

import numpy as np

from marltrain.jit.compiling import compiled, inner
from marltrain.jit.views import call, f32, f64, i64, record_at
from marltrain.policies.compiled.layers import NONE
from marltrain.policies.compiled.optimizers import (
    ADAM,
    ADAMAX,
    ADAMW,
    RMSPROP,
    SGD,
    adam,
    adamax,
    add_penalty,
    norm as norm_of,
    rmsprop,
    sgd,
    sgd_with_momentum,
    shrink,
    update_target,
)
from marltrain.policies.tape.instructions import (
    FLAT,
    FOLLOW,
    LAYER,
    LAYER_GRADIENT,
    LINEAR,
    OPTIMIZER,
    SEGMENTS,
    ZEROS,
)
from marltrain.policies.tape.interpreter.memory import at, number_at

_ZERO, _ONE = np.float32(0.0), np.float32(1.0)
NARROW = 8
"""A product with fewer columns is computed transposed: tiles are filled by columns."""


@inner
def segment(s: int, number: int) -> int:
    """Return the address of a segment."""
    return i64(s, SEGMENTS)[number]


@inner
def linear(i: int, s: int) -> None:
    """Write a layer's outputs; see `LINEAR`."""
    p = record_at(i, LINEAR)
    a, weight, bias, out = at(s, p.a), at(s, p.weight), at(s, p.bias), at(s, p.out)
    call(
        segment(s, LAYER),
        (p.activation, a, p.rows, p.a_row, p.a_column, p.inputs, weight, bias, 0, p.outputs, out),
    )


@inner
def layer_gradient(i: int, s: int) -> None:
    """Add to the gradients of a layer's weights and biases; see `LAYER_GRADIENT`.

    The rows of `a` have no gaps inside (a_column is 1).
    """
    p = record_at(i, LAYER_GRADIENT)
    layer, inputs, outputs, rows = segment(s, LAYER), p.inputs, p.outputs, p.rows
    a, gradient, weight = at(s, p.a), at(s, p.gradient), at(s, p.weight)
    if outputs < inputs and outputs < NARROW and p.a_row == inputs:
        zeros, scratch = segment(s, ZEROS), at(s, p.scratch)
        call(layer, (NONE, gradient, outputs, 1, outputs, rows, a, zeros, 0, inputs, scratch))
        read, written = f32(scratch, inputs * outputs), f32(weight, inputs * outputs)
        for m in range(outputs):
            for n in range(inputs):
                written[n * outputs + m] += read[m * inputs + n]
    else:
        call(layer, (NONE, a, inputs, 1, p.a_row, rows, gradient, weight, outputs, outputs, weight))
    add_rows(gradient, rows, outputs, at(s, p.bias))


@compiled
def add_rows(source: int, rows: int, columns: int, made: int) -> None:
    """Add the column sums of a matrix [rows, columns] to `made` [columns]."""
    total = f32(made, columns)
    for i in range(rows):
        row = f32(source + 4 * i * columns, columns)
        for j in range(columns):
            total[j] += row[j]


@inner
def norm(i: int, s: int) -> None:
    """Write the Euclidean norm of a vector."""
    p = record_at(i, FLAT)
    f32(at(s, p.out), 1)[0] = norm_of(at(s, p.a), p.size, at(s, p.scratch))


@inner
def follow(i: int, s: int) -> None:
    """Move target weights by a share towards others; by a share of 0, neither are read."""
    p = record_at(i, FOLLOW)
    share = number_at(s, p.share)
    if share != _ZERO:
        update_target(at(s, p.out), at(s, p.a), p.size, share)


@inner
def optimizer(i: int, s: int) -> None:
    """Make a step of an optimizer; see `OPTIMIZER`. A gradient that is not fine only counts as a step."""
    p = record_at(i, OPTIMIZER)
    if number_at(s, p.going) == _ZERO:
        return
    size, rule, weights, gradient = p.size, p.rule, at(s, p.weights), at(s, p.gradient)
    rate, factor = number_at(s, p.rate), number_at(s, p.factor)
    count = f32(at(s, p.count), 1)
    count[0] += _ONE
    if number_at(s, p.fine) == _ZERO:
        rate = factor = _ZERO
        f32(gradient, size)[:] = _ZERO
    decay, momentum = number_at(s, p.decay), number_at(s, p.momentum)
    if decay != _ZERO:
        if rule == ADAMW:
            shrink(weights, size, _ONE - rate * decay)
        else:
            add_penalty(gradient, weights, size, factor, decay)
            factor = _ONE
    first, second, epsilon = at(s, p.first), at(s, p.second), f64(at(s, p.epsilon), 1)[0]
    if rule in (ADAM, ADAMW):
        adam(weights, first, second, gradient, size, factor, rate, count[0], epsilon)
    elif rule == ADAMAX:
        adamax(weights, first, second, gradient, size, factor, rate, count[0], epsilon)
    elif rule == RMSPROP:
        rmsprop(weights, second, gradient, size, factor, rate, epsilon)
    elif rule == SGD and momentum != _ZERO:
        sgd_with_momentum(weights, first, gradient, size, factor, rate, momentum)
    elif rule == SGD:
        sgd(weights, gradient, size, factor, rate)


INSTRUCTIONS: dict[str, Any] = {
    "follow": follow, "layer_gradient": layer_gradient, "linear": linear, "norm": norm, "optimizer": optimizer,
}  # fmt: skip
