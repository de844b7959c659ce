"""The state of optimizers as variables; `policies.optimizers` has the formulas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any, cast

import tensorflow as tf
from tensorflow import Tensor

from marltrain.core.layout import Array
from marltrain.policies.backends import base
from marltrain.policies.backends.tensorflow.shared import SharedVariable
from marltrain.policies.optimizers import OPTIMIZERS, WEIGHTS, Numbers, UpdateOps, stepped


class Optimizer(base.Optimizer):
    """An optimizer whose state are variables; see `base.Optimizer`."""

    def __init__(
        self, name: str, flat: Tensor, epsilon: float, scope: Callable[[], AbstractContextManager[Any]]
    ) -> None:
        """Start with zero moments for the weights `flat` [K, N], on the device of `scope`; name: of `OPTIMIZERS`."""
        self.name, self.epsilon = name, epsilon
        with scope():
            self.slots = {moment: tf.Variable(tf.zeros(flat.shape)) for moment in OPTIMIZERS[name].moments}
            self.count = tf.Variable(tf.zeros([flat.shape[0], 1]))
        self._shared = {moment: SharedVariable(variable) for moment, variable in super().state().items()}

    def state(self) -> dict[str, Any]:
        """Return the variables of the moments and step counts."""
        return {name: shared.variable() for name, shared in self._shared.items()}

    def numbers(self) -> dict[str, Array]:
        """See `base.Optimizer`."""
        return {name: shared.array() for name, shared in self._shared.items()}

    def numbers_changed(self) -> None:
        """See `base.Optimizer`."""
        for shared in self._shared.values():
            shared.array_changed()

    def settle(self) -> None:
        """See `base.Optimizer`."""
        self.state()

    def discard_copies(self) -> None:
        """See `base.Optimizer`."""
        for shared in self._shared.values():
            shared.variable_changed()

    def step(
        self, network: base.Network, grad: Tensor, rate: Tensor, due: Tensor | None, *,
        weight_decay: Tensor | None = None, momentum: Tensor | None = None,
    ) -> None:  # fmt: skip
        """See `base.Optimizer`; it may be traced."""
        variables = self.state()
        before = {WEIGHTS: network.flat, **{name: value.read_value() for name, value in variables.items()}}
        decay = None if weight_decay is None or not network.decays else weight_decay
        numbers = Numbers(rate[:, tf.newaxis], self.epsilon, decay, momentum)
        after = stepped(OPS, self.name, before, grad, numbers)
        if due is not None:
            after = {name: tf.where(due[:, tf.newaxis], after[name], value) for name, value in before.items()}
        network.assign(after[WEIGHTS])
        for name, value in variables.items():
            value.assign(after[name])

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
        self.discard_copies()


OPS = cast(UpdateOps, SimpleNamespace(
    absolute=tf.abs, expm1=tf.math.expm1, sqrt=tf.sqrt, sqrt_=tf.sqrt, maximum_=tf.maximum, where=tf.where,
    lerp_=lambda x, y, share: x + share * (y - x), addcmul=lambda x, y, z: x + y * z,
    add_square_=lambda x, y, factor: x + factor * tf.square(y),
))  # fmt: skip
