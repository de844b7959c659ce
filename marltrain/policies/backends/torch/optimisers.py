"""Optimisers over a flat buffer [K, N]: row k is agent k, with its own learning rate, moments and step count.

Rows that do not learn are skipped, not multiplied by zero: Adam moves a row whose gradient is zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from marltrain.errors import SaveError
from marltrain.layout import Array


class Optimiser:
    """State arrays `slots` (name -> [K, N]) and `count` [K], and one rule to move weights."""

    slot_names: tuple[str, ...] = ()

    def __init__(self, flat: Tensor, epsilon: float) -> None:
        """Start with zero moments for the weights `flat` [K, N]."""
        self.epsilon = epsilon
        self.slots = {name: torch.zeros_like(flat) for name in self.slot_names}
        self.count = torch.zeros(flat.shape[0], 1, device=flat.device)

    def step(self, flat: Tensor, grad: Tensor, rate: Tensor, rows: Tensor | None) -> None:
        """Move weights [K, N] by gradients [K, N] at rates [K]; `rows` (indices, None for all) are those that learn."""
        rate = rate.unsqueeze(1)
        if rows is None:
            self.count += 1
            self._move(flat, grad, rate, self.slots, self.count)
            return
        if not len(rows):
            return
        part = {name: slot[rows] for name, slot in self.slots.items()}
        weights, count = flat[rows], self.count[rows] + 1
        self._move(weights, grad[rows], rate[rows], part, count)
        flat[rows], self.count[rows] = weights, count
        for name, slot in self.slots.items():
            slot[rows] = part[name]

    def _move(self, flat: Tensor, grad: Tensor, rate: Tensor, slots: dict[str, Tensor], count: Tensor) -> None:
        raise TypeError(f"{type(self).__name__} is abstract: use one of {', '.join(OPTIMISERS)}")

    def arrays(self, row: int) -> dict[str, Array]:
        """Return one agent's moments and step count."""
        made = {name: slot[row].cpu().numpy().copy() for name, slot in self.slots.items()}
        return {**made, "count": self.count[row].cpu().numpy().copy()}

    def load(self, row: int, arrays: Mapping[str, Array]) -> None:
        """Take over one agent's moments; raises SaveError when they are another optimiser's."""
        if set(arrays) != {*self.slots, "count"}:
            raise SaveError(f"optimiser state {sorted(arrays)} is not one of {type(self).__name__}")
        for name, slot in (*self.slots.items(), ("count", self.count)):
            value = torch.from_numpy(np.ascontiguousarray(arrays[name]))
            if value.shape != slot.shape[1:]:
                raise SaveError(f"optimiser state {name!r} has shape {tuple(value.shape)}, not {tuple(slot.shape[1:])}")
            slot[row].copy_(value)


class Adam(Optimiser):
    """Adam (Kingma and Ba 2015, arXiv:1412.6980) with betas 0.9 and 0.999."""

    slot_names = ("first", "second")

    def _move(self, flat: Tensor, grad: Tensor, rate: Tensor, slots: dict[str, Tensor], count: Tensor) -> None:
        first, second = slots["first"], slots["second"]
        first.lerp_(grad, 0.1)
        second.mul_(0.999).addcmul_(grad, grad, value=0.001)
        # 1 - beta**count, without the digits that the difference loses in float32 while count is small
        spread = (second / -torch.expm1(count * math.log(0.999))).sqrt_().add_(self.epsilon)
        flat.sub_(first.mul(rate / -torch.expm1(count * math.log(0.9))).div_(spread))


class RMSprop(Optimiser):
    """RMSprop (Tieleman and Hinton 2012), decay 0.99."""

    slot_names = ("second",)

    def _move(self, flat: Tensor, grad: Tensor, rate: Tensor, slots: dict[str, Tensor], count: Tensor) -> None:
        second = slots["second"]
        second.mul_(0.99).addcmul_(grad, grad, value=0.01)
        flat.sub_(grad.mul(rate).div_(second.sqrt().add_(self.epsilon)))


class SGD(Optimiser):
    """Plain stochastic gradient descent."""

    def _move(self, flat: Tensor, grad: Tensor, rate: Tensor, slots: dict[str, Tensor], count: Tensor) -> None:
        flat.sub_(grad.mul(rate))


OPTIMISERS: dict[str, type[Optimiser]] = {"adam": Adam, "rmsprop": RMSprop, "sgd": SGD}
