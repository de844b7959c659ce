"""Optimizers over weights [K, N]: row k is agent k, with its own learning rate, moments and step count.

Rows that do not learn are skipped; a gradient of zero is not enough, since Adam still changes such a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf
from tensorflow import Tensor

from marltrain.errors import SaveError
from marltrain.layout import Array
from marltrain.policies.backends.moments import checked
from marltrain.policies.backends.tensorflow.networks import Network

State = dict[str, Tensor]


class Optimiser:
    """An update rule with its state: variables `slots` (name -> [K, N]) and `count` [K, 1]."""

    slot_names: tuple[str, ...] = ()

    def __init__(self, network: Network, epsilon: float, scope: Callable[[], AbstractContextManager[Any]]) -> None:
        """Start with zero moments for a network's weights, on the device of `scope`."""
        self.epsilon = epsilon
        flat = network.flat
        with scope():
            self.slots = {name: tf.Variable(tf.zeros(flat.shape)) for name in self.slot_names}
            self.count = tf.Variable(tf.zeros([flat.shape[0], 1]))

    def step(self, network: Network, grad: Tensor, rate: Tensor, due: Tensor | None) -> None:
        """Update a network by gradients [K, N] at learning rates [K]; due: rows that learn, [K] bool (None: all)."""
        before = {name: slot.read_value() for name, slot in self.slots.items()}
        flat, count = network.flat, self.count.read_value()
        moved, after = self._move(flat, grad, rate[:, tf.newaxis], before, count + 1.0)

        def kept(new: Tensor, old: Tensor) -> Tensor:
            return new if due is None else tf.where(due[:, tf.newaxis], new, old)

        network.assign(kept(moved, flat))
        self.count.assign(kept(count + 1.0, count))
        for name, slot in self.slots.items():
            slot.assign(kept(after[name], before[name]))

    def _move(self, flat: Tensor, grad: Tensor, rate: Tensor, slots: State, count: Tensor) -> tuple[Tensor, State]:
        raise TypeError(f"{type(self).__name__} is abstract: use one of {', '.join(OPTIMISERS)}")

    def arrays(self, row: int) -> dict[str, Array]:
        """Return one agent's moments and step count."""
        return {name: slot.numpy()[row].copy() for name, slot in self.state().items()}

    def load(self, row: int, arrays: Mapping[str, Array]) -> None:
        """Load one agent's moments and step count; raises SaveError if they are another optimizer's."""
        if set(arrays) != {*self.slots, "count"}:
            raise SaveError(f"optimiser state {sorted(arrays)} is not one of {type(self).__name__}")
        for name, slot in self.state().items():
            whole = slot.numpy()
            whole[row] = checked(name, arrays[name], tuple(slot.shape[1:]))
            slot.assign(whole)

    def state(self) -> dict[str, tf.Variable]:
        """Return moments [K, N] and step counts [K, 1] by name."""
        return {**self.slots, "count": self.count}


class Adam(Optimiser):
    """Adam (Kingma and Ba 2015, arXiv:1412.6980) with betas 0.9 and 0.999."""

    slot_names = ("first", "second")

    def _move(self, flat: Tensor, grad: Tensor, rate: Tensor, slots: State, count: Tensor) -> tuple[Tensor, State]:
        first = slots["first"] + 0.1 * (grad - slots["first"])
        second = 0.999 * slots["second"] + 0.001 * tf.square(grad)
        # 1 - beta**count by expm1: the plain difference loses digits in float32 while count is small
        spread = tf.sqrt(second / -tf.math.expm1(count * math.log(0.999))) + self.epsilon
        moved = flat - first * (rate / -tf.math.expm1(count * math.log(0.9))) / spread
        return moved, {"first": first, "second": second}


class RMSprop(Optimiser):
    """RMSprop (Tieleman and Hinton 2012), decay 0.99."""

    slot_names = ("second",)

    def _move(self, flat: Tensor, grad: Tensor, rate: Tensor, slots: State, count: Tensor) -> tuple[Tensor, State]:
        second = 0.99 * slots["second"] + 0.01 * tf.square(grad)
        return flat - grad * rate / (tf.sqrt(second) + self.epsilon), {"second": second}


class SGD(Optimiser):
    """Plain stochastic gradient descent."""

    def _move(self, flat: Tensor, grad: Tensor, rate: Tensor, slots: State, count: Tensor) -> tuple[Tensor, State]:
        return flat - grad * rate, {}


OPTIMISERS: dict[str, type[Optimiser]] = {"adam": Adam, "rmsprop": RMSprop, "sgd": SGD}
