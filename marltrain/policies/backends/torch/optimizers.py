"""Optimizers over a flat buffer [K, N]: row k is agent k, with its own learning rate, moments and step count.

Rows that do not learn are skipped; a gradient of zero is not enough, since Adam still changes such a row.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor

from marltrain.layout import Array
from marltrain.policies.backends import base


class Optimizer(base.Optimizer):
    """An update rule whose moments are tensors; see `base.Optimizer`."""

    slot_names: tuple[str, ...] = ()

    def __init__(self, flat: Tensor, epsilon: float) -> None:
        """Start with zero moments for the weights `flat` [K, N]."""
        self.epsilon = epsilon
        self.slots = {name: torch.zeros_like(flat) for name in self.slot_names}
        self.count = torch.zeros(flat.shape[0], 1, device=flat.device)

    def step(self, network: base.Network, grad: Tensor, rate: Tensor, due: Tensor | None) -> None:
        """See `base.Optimizer`; all agents are updated in place, or copies if not all of them learn."""
        state = {"flat": network.flat, **self.slots, "count": self.count}
        after = state if due is None else {name: value.clone() for name, value in state.items()}
        after["count"] += 1
        self._update(after["flat"], grad, rate.unsqueeze(1), after, after["count"])
        if due is not None:
            for name, value in state.items():
                value.copy_(torch.where(due.unsqueeze(1), after[name], value))

    @abstractmethod
    def _update(self, flat: Tensor, grad: Tensor, rate: Tensor, slots: dict[str, Tensor], count: Tensor) -> None:
        """Update weights `flat` and moments in place; rate: [K, 1].  count: [K, 1], including this step."""

    def arrays(self, row: int) -> dict[str, Array]:
        """See `base.Optimizer`."""
        return {name: slot[row].cpu().numpy().copy() for name, slot in self.state().items()}

    def load(self, row: int, arrays: Mapping[str, Array]) -> None:
        """See `base.Optimizer`."""
        slots = self.state()
        for name, values in self.checked(arrays).items():
            slots[name][row].copy_(torch.from_numpy(values))


class Adam(Optimizer):
    """Adam (Kingma and Ba 2015, arXiv:1412.6980) with betas 0.9 and 0.999."""

    slot_names = ("first", "second")

    def _update(self, flat: Tensor, grad: Tensor, rate: Tensor, slots: dict[str, Tensor], count: Tensor) -> None:
        first, second = slots["first"], slots["second"]
        first.lerp_(grad, 0.1)
        second.mul_(0.999).addcmul_(grad, grad, value=0.001)
        # 1 - beta**count by expm1: the plain difference loses digits in float32 while count is small
        spread = (second / -torch.expm1(count * math.log(0.999))).sqrt_().add_(self.epsilon)
        flat.sub_(first.mul(rate / -torch.expm1(count * math.log(0.9))).div_(spread))


class RMSprop(Optimizer):
    """RMSprop (Tieleman and Hinton 2012), decay 0.99."""

    slot_names = ("second",)

    def _update(self, flat: Tensor, grad: Tensor, rate: Tensor, slots: dict[str, Tensor], count: Tensor) -> None:
        second = slots["second"]
        second.mul_(0.99).addcmul_(grad, grad, value=0.01)
        flat.sub_(grad.mul(rate).div_(second.sqrt().add_(self.epsilon)))


class SGD(Optimizer):
    """Plain stochastic gradient descent."""

    def _update(self, flat: Tensor, grad: Tensor, rate: Tensor, slots: dict[str, Tensor], count: Tensor) -> None:
        flat.sub_(grad.mul(rate))


OPTIMIZERS: dict[str, type[Optimizer]] = {"adam": Adam, "rmsprop": RMSprop, "sgd": SGD}
