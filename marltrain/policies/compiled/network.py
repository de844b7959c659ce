"""Networks of fully connected layers in compiled code: forward and backward passes."""

from __future__ import annotations

from dataclasses import fields
from itertools import pairwise
from typing import Any, TypeGuard

import numpy as np
from numba import float32

from marltrain.core.layout import VECTOR
from marltrain.jit.compiling import compiled
from marltrain.jit.views import call, f32
from marltrain.policies.backends.base import StackedNetwork
from marltrain.policies.compiled.layers import NONE, RELU, TANH, layer_entry
from marltrain.policies.networks.specs import MLP, Head, NetworkDefinition, Plan

ACTIVATIONS = {"tanh": TANH, "relu": RELU}
MOST_LAYERS = 9
"""Largest number of layers of a network, the output layer included."""
KNOWN_FIELDS: dict[type, set[str]] = {
    MLP: {"hidden", "activation"},
    NetworkDefinition: {"spec", "heads", "layout", "vectors", "members", "head_layers", "noisy", "burn_in"},
    Head: {"width", "gain", "free", "free_start"},
}
"""The fields of a network's description that `is_known` takes into account."""
_ONE = ("layer", "layers", "activation", "width", "choices", "size", "free")
NETWORK = [(name, np.int64) for name in _ONE] + [
    (name, np.int64, (MOST_LAYERS,)) for name in ("outputs", "weight_at", "bias_at")
]
"""Fields of a record that describe a network.

layer: the address of `layers.layer`.  layers, width, choices, size: the numbers of layers, inputs, outputs and weights.
free: the number of the head's trained constants, which are the last weights; `forward` leaves them out.
outputs, weight_at, bias_at: of each layer, the number of outputs, and the offsets of its weights and of its biases
among the network's weights.
"""


def is_known(network: object, *, free: bool = False, joined: bool = False) -> TypeGuard[StackedNetwork]:
    """Return whether compiled code supports a network: fully connected layers, tanh or ReLU, on one vector.

    A network with other fields or parameters than those that `write_network` writes is not supported.

    free: whether its head may have trained constants, such as log standard deviations.
    joined: whether it may read another vector than the observation, or beside it.
    """
    plan = getattr(network, "plan", None)
    return (
        type(plan) is Plan and _has_known_fields(plan) and plan.members == 1
        and (joined if plan.layout is None else list(plan.layout.shapes) == [VECTOR])
        and len(plan.definition.vectors) <= joined
        and plan.spec.activation in ACTIVATIONS and len(plan.spec.hidden) < MOST_LAYERS
        and len(plan.heads) == 1 and (free or not plan.heads[0].free) and not plan.definition.noisy
        and [parameter.shape for parameter in plan.parameters] == _written_shapes(plan)
    )  # fmt: skip


def _has_known_fields(plan: Plan) -> bool:
    """Return whether the description of a network consists of the classes of `KNOWN_FIELDS`, with these fields."""
    described: list[Any] = [plan.spec, plan.definition, *plan.heads]
    return all({field.name for field in fields(value)} == KNOWN_FIELDS.get(type(value)) for value in described)


def _written_shapes(plan: Plan) -> list[tuple[int, ...]]:
    """Return the shapes of the parameters that `write_network` expects: weights and biases in turn, then constants."""
    widths, (head,) = widths_of(plan), plan.heads
    shapes: list[tuple[int, ...]] = []
    for width, size in pairwise([plan.vector_width, *widths]):
        shapes += [(width, size), (size,)]
    return [*shapes, (head.free,)] if head.free else shapes


def write_network(record: Any, plan: Plan) -> None:
    """Write the description of a network that `is_known` to a record with the fields of NETWORK."""
    sizes = [parameter.size for parameter in plan.parameters]
    starts = np.cumsum([0, *sizes[:-1]])
    widths = widths_of(plan)
    record["layer"] = layer_entry()
    record["layers"], record["activation"] = len(widths), ACTIVATIONS[plan.spec.activation]
    record["width"], record["choices"], record["size"] = plan.vector_width, widths[-1], sum(sizes)
    record["free"] = plan.heads[0].free
    for i, width in enumerate(widths):
        record["outputs"][i], record["weight_at"][i], record["bias_at"][i] = width, starts[2 * i], starts[2 * i + 1]


def widths_of(plan: Plan) -> list[int]:
    """Return the number of outputs of each layer."""
    return [*plan.spec.hidden, plan.heads[0].width]


@compiled
def product(
    n: Any, activation: int, x: int, rows: int, inputs: int, weight: int, bias: int, outputs: int, y: int
) -> None:
    """Write the activation of x [rows, inputs] @ weight [inputs, outputs] + bias [outputs] to y."""
    call(n.layer, (activation, x, rows, inputs, 1, inputs, weight, bias, 0, outputs, y))


@compiled
def forward(n: Any, x: int, rows: int, weights: int, activations: int) -> int:
    """Compute a network on x [rows, width]; return the address of its outputs [rows, choices].

    activations: receives the outputs of all layers, one layer after another.
    """
    inputs, y = n.width, activations
    for i in range(n.layers):
        activation = NONE if i == n.layers - 1 else n.activation
        weight, bias = weights + 4 * n.weight_at[i], weights + 4 * n.bias_at[i]
        product(n, activation, x, rows, inputs, weight, bias, n.outputs[i], y)
        x, inputs = y, n.outputs[i]
        y += 4 * rows * inputs
    return x


@compiled
def outputs_at(n: Any, rows: int, activations: int) -> int:
    """Return the address of a network's outputs [rows, choices] among the outputs of all layers; see `forward`."""
    place = activations
    for i in range(n.layers - 1):
        place += 4 * rows * n.outputs[i]
    return place


@compiled
def transpose_weights(n: Any, weights: int, transposed: int) -> None:
    """Write the transposed weights of all layers, at the offsets of the weights; `backward` needs them."""
    inputs = n.width
    for i in range(n.layers):
        transpose(weights + 4 * n.weight_at[i], inputs, n.outputs[i], transposed + 4 * n.weight_at[i])
        inputs = n.outputs[i]


@compiled
def backward(
    n: Any, x: int, rows: int, transposed: int, activations: int, gradient: int, zeros: int, scratch: int
) -> None:
    """Add the gradient [size] of a loss with respect to the weights, summed over these rows, to `gradient`.

    transposed: the result of `transpose_weights`.  zeros: as many zeros as the widest layer or x has columns.
    scratch: work array; `largest` returns its size.
    activations: the result of `forward`, with the last layer's outputs replaced by the loss's gradient with respect
      to them. The outputs of the other layers are overwritten by their gradients.
    """
    output_grads = outputs_at(n, rows, activations)
    for behind in range(n.layers):
        i = n.layers - 1 - behind
        outputs, inputs = n.outputs[i], n.outputs[i - 1] if i else n.width
        below = output_grads - 4 * rows * inputs if i else x
        add_weight_gradient(
            n, below, rows, inputs, output_grads, outputs, gradient + 4 * n.weight_at[i], zeros, scratch
        )
        add_rows(output_grads, rows, outputs, gradient + 4 * n.bias_at[i])
        if i:
            product(n, NONE, output_grads, rows, outputs, transposed + 4 * n.weight_at[i], zeros, inputs, scratch)
            activation_backward(n.activation, below, scratch, rows * inputs)
        output_grads = below


@compiled
def add_weight_gradient(
    n: Any, x: int, rows: int, inputs: int, output_grads: int, outputs: int, made: int, zeros: int, scratch: int
) -> None:
    """Add x^T @ output_grads [inputs, outputs] to `made`; narrow results are computed as (output_grads^T @ x)^T.

    Tiles are filled by columns, so a narrow result would leave vector registers partly empty.
    """
    if outputs < inputs and outputs < 8:
        call(n.layer, (NONE, output_grads, outputs, 1, outputs, rows, x, zeros, 0, inputs, scratch))
        add_transpose(scratch, outputs, inputs, made)
    else:
        call(n.layer, (NONE, x, inputs, 1, inputs, rows, output_grads, made, outputs, outputs, made))


@compiled
def largest(rows: int, inputs: int, outputs: int) -> int:
    """Return the size of the work array that a layer's backward pass needs."""
    return max(inputs * outputs, rows * inputs)


@compiled
def transpose(source: int, rows: int, columns: int, made: int) -> None:
    """Write the transpose of a matrix [rows, columns] to `made`."""
    read, written = f32(source, rows * columns), f32(made, rows * columns)
    for i in range(rows):
        for j in range(columns):
            written[j * rows + i] = read[i * columns + j]


@compiled
def add_transpose(source: int, rows: int, columns: int, made: int) -> None:
    """Add the transpose of a matrix [rows, columns] to `made`."""
    read, written = f32(source, rows * columns), f32(made, rows * columns)
    for i in range(rows):
        for j in range(columns):
            written[j * rows + i] += read[i * columns + j]


@compiled
def add_rows(source: int, rows: int, columns: int, made: int) -> None:
    """Add the column sums of a matrix [rows, columns] to `made` [columns]."""
    total = f32(made, columns)
    for i in range(rows):
        row = f32(source + 4 * i * columns, columns)
        for j in range(columns):
            total[j] += row[j]


@compiled
def activation_backward(activation: int, y: int, upstream: int, size: int) -> None:
    """Overwrite an activation's outputs y with the gradients with respect to its inputs.

    upstream: the gradients with respect to the outputs; the activation's derivative multiplies them.
    """
    results, output_grads = f32(y, size), f32(upstream, size)
    if activation == RELU:
        for i in range(size):
            results[i] = output_grads[i] if results[i] > 0 else float32(0.0)
    else:
        for i in range(size):
            results[i] = output_grads[i] * (float32(1.0) - results[i] * results[i])
