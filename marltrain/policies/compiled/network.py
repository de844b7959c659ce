"""Networks of fully connected layers in compiled code."""

from __future__ import annotations

from dataclasses import fields
from itertools import pairwise
from typing import Any, TypeGuard

import numpy as np

from marltrain.core.layout import VECTOR
from marltrain.jit.compiling import compiled
from marltrain.jit.views import call
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


def is_known(network: object, *, free: bool = False) -> TypeGuard[StackedNetwork]:
    """Return whether compiled code supports a network: fully connected layers, tanh or ReLU, on the observation.

    A network with other fields or parameters than those that `write_network` writes is not supported.

    free: whether its head may have trained constants, such as log standard deviations.
    """
    plan = getattr(network, "plan", None)
    return (
        type(plan) is Plan and _has_known_fields(plan) and plan.members == 1
        and plan.layout is not None and list(plan.layout.shapes) == [VECTOR] and not plan.definition.vectors
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
