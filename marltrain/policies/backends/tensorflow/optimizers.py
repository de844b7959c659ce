"""Optimizers over weights [K, N]: row k is agent k, with its own learning rate, moments and step count.

Rows that do not learn are skipped; a gradient of zero is not enough, since Adam still changes such a row.
The names of optimizers and of their moments are in `backends.base.OPTIMIZERS`, for both frameworks.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf
from tensorflow import Tensor

from marltrain.core.layout import Array
from marltrain.policies.backends import base

State = dict[str, Tensor]


class Optimizer(base.Optimizer):
    """An update rule whose moments are variables; see `base.Optimizer`."""

    slot_names: tuple[str, ...] = ()

    def __init__(self, flat: Tensor, epsilon: float, scope: Callable[[], AbstractContextManager[Any]]) -> None:
        """Start with zero moments for the weights `flat` [K, N], on the device of `scope`."""
        self.epsilon = epsilon
        with scope():
            self.slots = {name: tf.Variable(tf.zeros(flat.shape)) for name in self.slot_names}
            self.count = tf.Variable(tf.zeros([flat.shape[0], 1]))

    def step(
        self, network: base.Network, grad: Tensor, rate: Tensor, due: Tensor | None, *,
        weight_decay: Tensor | None = None, momentum: Tensor | None = None,
    ) -> None:  # fmt: skip
        """See `base.Optimizer`; it may be traced."""
        before = {name: slot.read_value() for name, slot in self.slots.items()}
        flat, count = network.flat, self.count.read_value()
        decayed, rates, slots = flat, rate[:, tf.newaxis], before
        if weight_decay is not None and network.decays:
            decayed, grad = self._decayed(flat, grad, rates, weight_decay)
        if momentum is not None:
            grad, slots = self._with_momentum(grad, before, momentum)
        weights, after = self._updated(decayed, grad, rates, slots, count + 1.0)

        def kept(new: Tensor, old: Tensor) -> Tensor:
            return new if due is None else tf.where(due[:, tf.newaxis], new, old)

        network.assign(kept(weights, flat))
        self.count.assign(kept(count + 1.0, count))
        for name, slot in self.slots.items():
            slot.assign(kept(after[name], before[name]))

    def _decayed(self, flat: Tensor, grad: Tensor, rate: Tensor, decay: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weights, and the gradient with the L2 penalty decay / 2 * |weights|^2; decay: [K, 1]."""
        return flat, grad + decay * flat

    def _with_momentum(self, grad: Tensor, slots: State, momentum: Tensor) -> tuple[Tensor, State]:
        """Return the gradient and the moments of a rule without momentum: unchanged."""
        return grad, slots

    @abstractmethod
    def _updated(self, flat: Tensor, grad: Tensor, rate: Tensor, slots: State, count: Tensor) -> tuple[Tensor, State]:
        """Return new weights and moments; rate: [K, 1].  count: [K, 1], including this step."""

    def arrays(self, row: int) -> dict[str, Array]:
        """See `base.Optimizer`."""
        return {name: slot.numpy()[row].copy() for name, slot in self.state().items()}

    def load(self, row: int, arrays: Mapping[str, Array]) -> None:
        """See `base.Optimizer`."""
        slots = self.state()
        for name, values in self.checked(arrays).items():
            whole = slots[name].numpy()
            whole[row] = values
            slots[name].assign(whole)


class Adam(Optimizer):
    """Adam (Kingma and Ba 2015, arXiv:1412.6980) with betas 0.9 and 0.999."""

    slot_names = ("first", "second")

    def _updated(self, flat: Tensor, grad: Tensor, rate: Tensor, slots: State, count: Tensor) -> tuple[Tensor, State]:
        first = slots["first"] + 0.1 * (grad - slots["first"])
        second = 0.999 * slots["second"] + 0.001 * tf.square(grad)
        # 1 - beta**count by expm1: the plain difference loses digits in float32 while count is small
        spread = tf.sqrt(second / -tf.math.expm1(count * math.log(0.999))) + self.epsilon
        weights = flat - first * (rate / -tf.math.expm1(count * math.log(0.9))) / spread
        return weights, {"first": first, "second": second}


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019, arXiv:1711.05101)."""

    def _decayed(self, flat: Tensor, grad: Tensor, rate: Tensor, decay: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weights shrunk by rate * decay, and the gradient unchanged."""
        return flat * (1.0 - rate * decay), grad


class Adamax(Optimizer):
    """Adamax (Kingma and Ba 2015, section 7.1) with betas 0.9 and 0.999; as in torch, epsilon is added to sizes."""

    slot_names = ("first", "largest")

    def _updated(self, flat: Tensor, grad: Tensor, rate: Tensor, slots: State, count: Tensor) -> tuple[Tensor, State]:
        first = slots["first"] + 0.1 * (grad - slots["first"])
        largest = tf.maximum(0.999 * slots["largest"], tf.abs(grad) + self.epsilon)
        weights = flat - first * (rate / -tf.math.expm1(count * math.log(0.9))) / largest
        return weights, {"first": first, "largest": largest}


class RMSprop(Optimizer):
    """RMSprop (Tieleman and Hinton 2012), decay 0.99."""

    slot_names = ("second",)

    def _updated(self, flat: Tensor, grad: Tensor, rate: Tensor, slots: State, count: Tensor) -> tuple[Tensor, State]:
        second = 0.99 * slots["second"] + 0.01 * tf.square(grad)
        return flat - grad * rate / (tf.sqrt(second) + self.epsilon), {"second": second}


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum (Polyak 1964) for the agents whose momentum is not 0."""

    slot_names = ("first",)

    def _with_momentum(self, grad: Tensor, slots: State, momentum: Tensor) -> tuple[Tensor, State]:
        """Return the decayed sum of gradients as gradient and moment; agents without momentum keep both."""
        moving = momentum != 0.0
        first = tf.where(moving, slots["first"] * momentum + grad, slots["first"])
        return tf.where(moving, first, grad), {"first": first}

    def _updated(self, flat: Tensor, grad: Tensor, rate: Tensor, slots: State, count: Tensor) -> tuple[Tensor, State]:
        return flat - grad * rate, slots


OPTIMIZERS: dict[str, type[Optimizer]] = {
    "adam": Adam, "adamw": AdamW, "adamax": Adamax, "rmsprop": RMSprop, "sgd": SGD,
}  # fmt: skip
