"""A recorded loss with its gradient: what an executor gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from marltrain.policies.tape.symbols import Symbol, Tape


@dataclass(frozen=True)
class LayerGradient:
    """The gradient of a layer, to be added to that of the weights of a network.

    network: its name.  weight: [K, N, M] and bias: [K, M], views of its leaf.
    inputs: [K, B, N].  gradient: [K, B, M], of the outputs.
    The gradient of the weight is inputs^T @ gradient, [K, N, M]; that of the bias is the sum of `gradient` over B.
    """

    network: str
    weight: Symbol
    bias: Symbol
    inputs: Symbol
    gradient: Symbol


@dataclass(frozen=True)
class AddedGradient:
    """A gradient that is to be added to that of some weights of a network.

    network: its name.  view: a view of its leaf, each place at most once.  gradient: of the shape of the view.
    """

    network: str
    view: Symbol
    gradient: Symbol


Contribution = LayerGradient | AddedGradient


@dataclass(frozen=True)
class Recording:
    """A list of operations, its results, and the gradients to sum.

    tape: the operations, each after its arguments.  outputs: name -> result, of any type.
    gradients: their sum is the gradient of the networks' weights [K, N]; without a contribution, it is 0.
    """

    tape: Tape
    outputs: Mapping[str, Symbol]
    gradients: tuple[Contribution, ...]
