"""Reverse mode: the gradient of a recorded loss, as further operations of the same tape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from marltrain.policies.tape import ops
from marltrain.policies.tape.recording import AddedGradient, Contribution, LayerGradient
from marltrain.policies.tape.rules import argument_gradient
from marltrain.policies.tape.symbols import Node, Symbol, Tape
from marltrain.policies.tape.views import View, whole


def derive(loss: Symbol, leaves: Mapping[str, Symbol]) -> tuple[Contribution, ...]:
    """Record the gradient of the sum of a loss [...] with respect to the weights of networks.

    leaves: name of a trained network -> its weights, see `RecordedNetwork.leaf`.
    Returns the contributions, whose sum it is. Raises RecordError for an operation without a rule.
    """
    return _Reverse(loss.tape, leaves).from_loss(loss)


class _Reverse:
    """The gradients of the nodes of a tape while it is read backwards.

    reached: numbers of the nodes through which gradients flow to the weights.
    parts: number of a node -> the gradients of views of its result, so far.
    """

    def __init__(self, tape: Tape, leaves: Mapping[str, Symbol]) -> None:
        self.tape, self.forward = tape, list(tape.nodes)
        self.leaves = {leaf.node.index: name for name, leaf in leaves.items()}
        self.reached = set(self.leaves)
        for node in self.forward:
            if node.depends and any(self.needs(arg) for arg in node.args):
                self.reached.add(node.index)
        self.parts: dict[int, list[tuple[View, Symbol]]] = {}
        self.found: list[Contribution] = []

    def needs(self, symbol: Symbol) -> bool:
        """Return whether the gradient of a symbol is needed."""
        return symbol.depends and symbol.node.index in self.reached

    def from_loss(self, loss: Symbol) -> tuple[Contribution, ...]:
        self.add(loss, self.tape.constant(1.0).broadcast(loss.shape))
        for node in reversed(self.forward):
            if node.index not in self.parts:
                continue
            gradient = summed(node, self.parts.pop(node.index))
            if node.op == "linear":
                self.through_layer(node, gradient)
                continue
            for number, arg in enumerate(node.args):
                if self.needs(arg):
                    self.add(arg, argument_gradient(node, number, gradient))
        return tuple(self.found)

    def add(self, symbol: Symbol, gradient: Symbol) -> None:
        """Add to the gradient of a symbol; that of repeated entries is the sum over the repetitions."""
        if not self.needs(symbol) or gradient.number == 0:
            return
        for axis in symbol.view.repeated:
            gradient = ops.sum(gradient, axis).expanded(axis)
        once = symbol.view.once()
        if (name := self.leaves.get(symbol.node.index)) is not None:
            self.found.append(AddedGradient(name, symbol.viewed(once), gradient))
        else:
            self.parts.setdefault(symbol.node.index, []).append((once, gradient))

    def through_layer(self, node: Node, gradient: Symbol) -> None:
        """Add the gradients of the weights and of the inputs of a layer; of joined inputs, of those that need one."""
        x, weight, bias = node.args
        if (name := self.parameters_of(weight, bias)) is not None:
            self.found.append(LayerGradient(name, weight, bias, x, gradient))
        else:
            if self.needs(weight):
                self.add(weight, weight.tape.node("linear_weight", (x, gradient), weight.shape))
            if self.needs(bias):
                self.add(bias, ops.sum(gradient, 1))
        if x.node.op != "concat" or x.node.attrs != (2,) or x.view != whole(x.node.shape):
            if self.needs(x):
                self.add(x, _inputs_gradient(weight, gradient))
            return
        start = 0
        for part in x.node.args:
            stop = start + part.shape[2]
            if self.needs(part) and self.needs(x):
                self.add(part, _inputs_gradient(weight[:, start:stop], gradient))
            start = stop

    def parameters_of(self, weight: Symbol, bias: Symbol) -> str | None:
        """Return the trained network whose parameters a weight and a bias are; None for others."""
        if not self.needs(weight) or bias.node is not weight.node or bias.detached:
            return None
        in_order = (
            weight.strides[1:] == whole(weight.shape[1:]).strides and bias.strides[1:] == whole(bias.shape[1:]).strides
        )
        return self.leaves.get(weight.node.index) if in_order and not weight.view.repeated else None


def summed(node: Node, parts: Sequence[tuple[View, Symbol]]) -> Symbol:
    """Return the gradient of a node, [its shape], from those of views of its result."""
    full: Symbol | None = None
    others: dict[View, Symbol] = {}
    for view, gradient in parts:
        if view.size == node.size and view == whole(view.shape):
            gradient = gradient.reshape(node.shape)
            full = gradient if full is None else full + gradient
        else:
            others[view] = others[view] + gradient if view in others else gradient
    if others:
        attrs = _cover(node, others), tuple(others)
        scattered = node.tape.node("scatter", tuple(others.values()), node.shape, "float", attrs)
        full = scattered if full is None else full + scattered
    if full is None:
        raise ValueError(f"{node!r} has no gradient")
    return full


def _cover(node: Node, views: Iterable[View]) -> str:
    """Return how many of the views each number of a node is in; see `scatter`."""
    counts = np.zeros(node.size, np.int32)
    for view in views:
        strides = [counts.itemsize * stride for stride in view.strides]
        np.lib.stride_tricks.as_strided(counts[view.offset :], view.shape, strides)[...] += 1
    if counts.max() > 1:
        return "several"
    return "one" if counts.min() == 1 else "at most one"


def _inputs_gradient(weight: Symbol, gradient: Symbol) -> Symbol:
    """Return the gradient of the inputs of a layer: [K, N, M], [K, B, M] -> [K, B, N]."""
    agents, rows, _ = gradient.shape
    return weight.tape.node("linear_inputs", (gradient, weight), (agents, rows, weight.shape[1]))
