"""The gradient of every operation with respect to each of its arguments, as further operations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from marltrain.policies.tape import ops
from marltrain.policies.tape.symbols import Node, RecordError, Symbol, recorded
from marltrain.policies.tape.views import whole

Rule = Callable[[Any, Symbol, Symbol], Symbol]
"""(x, y, g) -> the gradient of an argument, of its shape: x, the arguments; y, the result; g, its gradient."""


def argument_gradient(node: Node, number: int, gradient: Symbol) -> Symbol:
    """Return the gradient of an argument of a node, given the gradient of its result.

    Raises RecordError for an operation without a rule.
    """
    if node.op == "concat":
        return _part(node, number, gradient)
    rules = RULES.get(node.op, ())
    if number >= len(rules):
        raise RecordError(f"{node.op} has no rule for the gradient of its argument {number}")
    return rules[number](node.args, Symbol(node, whole(node.shape), node.dtype), gradient)


def _part(node: Node, number: int, gradient: Symbol) -> Symbol:
    """Return the part of the gradient of joined tensors that belongs to one of them."""
    (axis,) = node.attrs
    start = sum(arg.shape[axis] for arg in node.args[:number])
    return gradient[(slice(None),) * axis + (slice(start, start + node.args[number].shape[axis]),)]


def _along(y: Symbol, g: Symbol) -> Symbol:
    """Return a result, or its gradient, with the axis again over which the operation of y reduced."""
    return g.expanded(y.node.attrs[0])


def _of_largest(x: Any, y: Symbol, g: Symbol) -> Symbol:
    """Divide the gradient of the largest entry by the number of equal largest ones."""
    best = ops.flag(x[0] == _along(y, y))
    return best * _along(y, g / ops.sum(best, y.node.attrs[0]))


def _of_smaller(x: Symbol, other: Symbol, g: Symbol) -> Symbol:
    return recorded("minimum_gradient", x, other, g)


def _of_patches(x: Any, y: Symbol, g: Symbol) -> Symbol:
    images = x[0].shape
    return y.tape.node("patches_gradient", (g,), images, "float", (*images[2:], *y.node.attrs))


SMALLER: tuple[Rule, ...] = (lambda x, y, g: _of_smaller(x[0], x[1], g), lambda x, y, g: _of_smaller(x[1], x[0], g))
CLIPPED: tuple[Rule, ...] = (
    lambda x, y, g: ops.where((x[0] >= x[1]) & (x[0] <= x[2]), g, 0.0),
    lambda x, y, g: ops.where((x[0] < x[1]) & (x[1] < x[2]), g, 0.0),
    lambda x, y, g: ops.where((x[0] > x[2]) | (x[1] > x[2]), g, 0.0),
)
RULES: Mapping[str, tuple[Rule, ...]] = {
    "add": (lambda x, y, g: g, lambda x, y, g: g),
    "subtract": (lambda x, y, g: g, lambda x, y, g: -g),
    "multiply": (lambda x, y, g: g * x[1], lambda x, y, g: g * x[0]),
    "divide": (lambda x, y, g: g / x[1], lambda x, y, g: -(g * y / x[1])),
    "minimum": SMALLER,
    "maximum": SMALLER[::-1],
    "clip": CLIPPED,
    "where": (
        lambda x, y, g: g,  # never asked for: a condition has no gradient
        lambda x, y, g: ops.where(x[0], g, 0.0),
        lambda x, y, g: ops.where(x[0], 0.0, g),
    ),
    "negative": (lambda x, y, g: -g,),
    "exp": (lambda x, y, g: g * y,),
    "log": (lambda x, y, g: g / x[0],),
    "sqrt": (lambda x, y, g: g / (2.0 * y),),
    "square": (lambda x, y, g: g * (2.0 * x[0]),),
    "absolute": (lambda x, y, g: recorded("absolute_gradient", x[0], g),),
    "tanh": (lambda x, y, g: recorded("tanh_gradient", y, g),),
    "sigmoid": (lambda x, y, g: recorded("sigmoid_gradient", y, g),),
    "relu": (lambda x, y, g: recorded("relu_gradient", y, g),),
    "elu": (lambda x, y, g: recorded("elu_gradient", y, g),),
    "softplus": (lambda x, y, g: g * ops.sigmoid(x[0]),),
    "cos": (lambda x, y, g: -(g * ops.sin(x[0])),),
    "sin": (lambda x, y, g: g * ops.cos(x[0]),),
    "erf": (lambda x, y, g: g * (2.0 / math.sqrt(math.pi) * ops.exp(-ops.square(x[0]))),),
    "lgamma": (lambda x, y, g: g * ops.digamma(x[0]),),
    "digamma": (lambda x, y, g: g * recorded("trigamma", x[0]),),
    "copy": (lambda x, y, g: g,),
    "patches": (_of_patches,),
    "sum": (lambda x, y, g: _along(y, g).broadcast(x[0].shape),),
    "max": (_of_largest,),
    "logsumexp": (lambda x, y, g: _along(y, g) * ops.exp(x[0] - _along(y, y)),),
    "log_softmax": (lambda x, y, g: g - ops.exp(y) * ops.sum(g, -1)[..., None],),
    "take": (lambda x, y, g: y.tape.node("put", (g, x[1]), x[0].shape, "float", (x[0].shape[-1],)),),
}
"""Operation -> the rules of its arguments; those of a linear layer are in `derive`, since weights are summed apart."""
