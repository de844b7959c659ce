"""Optimizers over a flat buffer [K, N]: row k is agent k, with its own learning rate, moments and step count.

Rows that do not learn are skipped; a gradient of zero is not enough, since Adam still changes such a row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from marltrain.errors import SaveError
from marltrain.layout import Array
from marltrain.policies.backends.moments import checked
from marltrain.policies.backends.torch.networks import Network


class Optimiser:
    """An update rule with its state: arrays `slots` (name -> [K, N]) and `count` [K, 1]."""

    slot_names: tuple[str, ...] = ()

    def __init__(self, flat: Tensor, epsilon: float) -> None:
        """Start with zero moments for the weights `flat` [K, N]."""
        self.epsilon = epsilon
        self.slots = {name: torch.zeros_like(flat) for name in self.slot_names}
        self.count = torch.zeros(flat.shape[0], 1, device=flat.device)

    def step(self, network: Network, grad: Tensor, rate: Tensor, due: Tensor | None) -> None:
        """Update a network by gradients [K, N] at learning rates [K]; due: rows that learn, [K] bool (None: all)."""
        state = {"flat": network.flat, **self.state()}
        moved = state if due is None else {name: value.clone() for name, value in state.items()}
        moved["count"] += 1
        self._move(moved["flat"], grad, rate.unsqueeze(1), moved, moved["count"])
        if due is not None:
            for name, value in state.items():
                value.copy_(torch.where(due.unsqueeze(1), moved[name], value))

    def _move(self, flat: Tensor, grad: Tensor, rate: Tensor, slots: dict[str, Tensor], count: Tensor) -> None:
        raise TypeError(f"{type(self).__name__} is abstract: use one of {', '.join(OPTIMISERS)}")

    def state(self) -> dict[str, Tensor]:
        """Return moments [K, N] and step counts [K, 1] by name."""
        return {**self.slots, "count": self.count}

    def arrays(self, row: int) -> dict[str, Array]:
        """Return one agent's moments and step count."""
        return {name: slot[row].cpu().numpy().copy() for name, slot in self.state().items()}

    def load(self, row: int, arrays: Mapping[str, Array]) -> None:
        """Load one agent's moments and step count; raises SaveError if they are another optimizer's."""
        if set(arrays) != {*self.slots, "count"}:
            raise SaveError(f"optimiser state {sorted(arrays)} is not one of {type(self).__name__}")
        for name, slot in self.state().items():
            slot[row].copy_(torch.from_numpy(checked(name, arrays[name], tuple(slot.shape[1:]))))


class Adam(Optimiser):
    """Adam (Kingma and Ba 2015, arXiv:1412.6980) with betas 0.9 and 0.999."""

    slot_names = ("first", "second")

    def _move(self, flat: Tensor, grad: Tensor, rate: Tensor, slots: dict[str, Tensor], count: Tensor) -> None:
        first, second = slots["first"], slots["second"]
        first.lerp_(grad, 0.1)
        second.mul_(0.999).addcmul_(grad, grad, value=0.001)
        # 1 - beta**count by expm1: the plain difference loses digits in float32 while count is small
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
