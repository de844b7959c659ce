"""Optimizers: weights and moments after a step, from a gradient; written once, for both frameworks.

Row k of an array [K, N] is agent k, with its own learning rate, moments and step count. A framework stores the results.
The instruction `optimizer` of programs (`tape/interpreter/learning.py`) fuses these formulas; a test holds it against
them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

Tensor = Any
State = dict[str, Tensor]
"""WEIGHTS and the moments, each [K, N], and COUNT [K, 1], the steps so far."""
WEIGHTS, COUNT = "weights", "count"
OPTIMIZER_NUMBERS = ("weight_decay", "momentum")
"""Settings that a step of an optimizer reads beside the learning rate; a number of 0 has no effect."""


class UpdateOps(Protocol):
    """Operations of optimizers.

    Those whose names end with an underscore may overwrite x, as `x += y` may; the formulas do not use it afterwards.
    """

    def absolute(self, x: Tensor, /) -> Tensor:
        """Return the size of x."""

    def expm1(self, x: Tensor, /) -> Tensor:
        """Return exp(x) - 1, without loss of digits near 0."""

    def sqrt(self, x: Tensor, /) -> Tensor:
        """Return the square root of x."""

    def sqrt_(self, x: Tensor, /) -> Tensor:
        """Return the square root of x."""

    def maximum_(self, x: Tensor, y: Tensor, /) -> Tensor:
        """Return the larger of x and y."""

    def lerp_(self, x: Tensor, y: Tensor, share: float, /) -> Tensor:
        """Return x + share * (y - x)."""

    def addcmul(self, x: Tensor, y: Tensor, z: Tensor, /) -> Tensor:
        """Return x + y * z."""

    def add_square_(self, x: Tensor, y: Tensor, factor: float, /) -> Tensor:
        """Return x + factor * y * y."""

    def where(self, condition: Tensor, x: Tensor, y: Tensor, /) -> Tensor:
        """Return x where the condition is True, y elsewhere."""


class Numbers(NamedTuple):
    """Numbers of a step.

    rate, weight_decay, momentum: [K, 1]; None: 0 for all agents.  epsilon: added to the denominator of a step.
    """

    rate: Tensor
    epsilon: float
    weight_decay: Tensor | None = None
    momentum: Tensor | None = None


class Rule(NamedTuple):
    """An optimizer.

    step: (ops, state, gradient, numbers) -> state, whose COUNT includes this step.
    moments: "first" is a mean of gradients, or their decayed sum (sgd with momentum); "second" is a mean of their
      squares; "largest" is the largest of their decayed sizes. The last two must not be negative.
    decoupled: whether weight decay shrinks the weights; else it is added to the gradient.
    """

    step: Callable[[UpdateOps, State, Tensor, Numbers], State]
    moments: tuple[str, ...]
    decoupled: bool = False


def stepped(ops: UpdateOps, name: str, state: State, grad: Tensor, numbers: Numbers) -> State:
    """Return the state after a step of an optimizer, as the optimizer of this name in torch makes it.

    state: it may be overwritten.  grad: [K, N].
    """
    rule, state = OPTIMIZERS[name], {**state}
    state[COUNT] += 1.0
    if numbers.weight_decay is not None and rule.decoupled:
        state[WEIGHTS] *= 1.0 - numbers.rate * numbers.weight_decay
    elif numbers.weight_decay is not None:  # the gradient of decay / 2 * |weights|^2
        grad = ops.addcmul(grad, state[WEIGHTS], numbers.weight_decay)
    return rule.step(ops, state, grad, numbers)


def adam(ops: UpdateOps, state: State, grad: Tensor, numbers: Numbers) -> State:
    """Adam (Kingma and Ba 2015, arXiv:1412.6980) with betas 0.9 and 0.999.

    With decoupled weight decay it is AdamW (Loshchilov and Hutter 2019, arXiv:1711.05101).
    """
    state["first"] = ops.lerp_(state["first"], grad, 0.1)
    state["second"] *= 0.999
    state["second"] = ops.add_square_(state["second"], grad, 0.001)
    spread = ops.sqrt_(state["second"] / _correction(ops, state, 0.999))
    spread += numbers.epsilon
    step = state["first"] * (numbers.rate / _correction(ops, state, 0.9))
    step /= spread
    state[WEIGHTS] -= step
    return state


def adamax(ops: UpdateOps, state: State, grad: Tensor, numbers: Numbers) -> State:
    """Adamax (Kingma and Ba 2015, section 7.1) with betas 0.9 and 0.999; as in torch, epsilon is added to sizes."""
    state["first"] = ops.lerp_(state["first"], grad, 0.1)
    state["largest"] *= 0.999
    state["largest"] = ops.maximum_(state["largest"], _size(ops, grad, numbers.epsilon))
    step = state["first"] * (numbers.rate / _correction(ops, state, 0.9))
    step /= state["largest"]
    state[WEIGHTS] -= step
    return state


def rmsprop(ops: UpdateOps, state: State, grad: Tensor, numbers: Numbers) -> State:
    """RMSprop (Tieleman and Hinton 2012), decay 0.99."""
    state["second"] *= 0.99
    state["second"] = ops.add_square_(state["second"], grad, 0.01)
    spread = ops.sqrt(state["second"])
    spread += numbers.epsilon
    step = grad * numbers.rate
    step /= spread
    state[WEIGHTS] -= step
    return state


def sgd(ops: UpdateOps, state: State, grad: Tensor, numbers: Numbers) -> State:
    """Stochastic gradient descent, with momentum (Polyak 1964) for the agents whose momentum is not 0."""
    if numbers.momentum is not None:
        moving = numbers.momentum != 0.0
        state["first"] = ops.where(moving, state["first"] * numbers.momentum + grad, state["first"])
        grad = ops.where(moving, state["first"], grad)
    state[WEIGHTS] -= grad * numbers.rate
    return state


def _size(ops: UpdateOps, grad: Tensor, epsilon: float) -> Tensor:
    """Return |gradient| + epsilon; a function, so that its memory is free for what follows."""
    size = ops.absolute(grad)
    size += epsilon
    return size


def _correction(ops: UpdateOps, state: State, beta: float) -> Tensor:
    """Return 1 - beta^count, [K, 1]; the plain difference loses digits in float32 while the count is small."""
    return -ops.expm1(state[COUNT] * math.log(beta))


OPTIMIZERS = {
    "adam": Rule(adam, ("first", "second")),
    "adamw": Rule(adam, ("first", "second"), decoupled=True),
    "adamax": Rule(adamax, ("first", "largest")),
    "rmsprop": Rule(rmsprop, ("second",)),
    "sgd": Rule(sgd, ("first",)),
}
