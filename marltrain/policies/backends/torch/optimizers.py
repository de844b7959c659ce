"""Optimizers over a flat buffer [K, N]: row k is agent k, with its own learning rate, moments and step count.

Rows that do not learn are skipped; a gradient of zero is not enough, since Adam still changes such a row.
The names of optimizers and of their moments are in `backends.base.OPTIMIZERS`, for both frameworks.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor

from marltrain.core.layout import Array
from marltrain.policies.backends import base


class Optimizer(base.Optimizer):
    """An update rule whose moments are tensors; see `base.Optimizer`."""

    slot_names: tuple[str, ...] = ()

    def __init__(self, flat: Tensor, epsilon: float) -> None:
        """Start with zero moments for the weights `flat` [K, N]."""
        self.epsilon = epsilon
        self.slots = {name: torch.zeros_like(flat) for name in self.slot_names}
        self.count = torch.zeros(flat.shape[0], 1, device=flat.device)

    def step(
        self, network: base.Network, grad: Tensor, rate: Tensor, due: Tensor | None, *,
        weight_decay: Tensor | None = None, momentum: Tensor | None = None,
    ) -> None:  # fmt: skip
        """See `base.Optimizer`; all agents are updated in place, or copies if not all of them learn."""
        state = {"flat": network.flat, **self.slots, "count": self.count}
        after = state if due is None else {name: value.clone() for name, value in state.items()}
        after["count"] += 1
        flat, rates = after["flat"], rate.unsqueeze(1)
        if weight_decay is not None and network.decays:
            grad = self._decayed(flat, grad, rates, weight_decay)
        if momentum is not None:
            grad = self._with_momentum(grad, after, momentum)
        self._update(flat, grad, rates, after, after["count"])
        if due is not None:
            for name, value in state.items():
                value.copy_(torch.where(due.unsqueeze(1), after[name], value))

    def _decayed(self, flat: Tensor, grad: Tensor, rate: Tensor, decay: Tensor) -> Tensor:
        """Return the gradient of the loss with the L2 penalty decay / 2 * |weights|^2; decay: [K, 1]."""
        return torch.addcmul(grad, flat, decay)

    def _with_momentum(self, grad: Tensor, slots: dict[str, Tensor], momentum: Tensor) -> Tensor:
        """Return the gradient of a rule without momentum: unchanged."""
        return grad

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


def once(number: Tensor) -> Tensor:
    """Return a number of each agent [K, 1], unchanged.

    A compiled step would otherwise compute it again for each of an agent's weights: torch fuses it with what is
    done to the weights, except through operations on strides.
    """
    return number.as_strided(number.shape, number.stride())


class Adam(Optimizer):
    """Adam (Kingma and Ba 2015, arXiv:1412.6980) with betas 0.9 and 0.999."""

    slot_names = ("first", "second")

    def _update(self, flat: Tensor, grad: Tensor, rate: Tensor, slots: dict[str, Tensor], count: Tensor) -> None:
        first, second = slots["first"], slots["second"]
        first.lerp_(grad, 0.1)
        second.mul_(0.999).addcmul_(grad, grad, value=0.001)
        # 1 - beta**count by expm1: the plain difference loses digits in float32 while count is small
        unbiased = second / once(-torch.expm1(count * math.log(0.999)))
        flat.sub_(first.mul(once(rate / -torch.expm1(count * math.log(0.9)))).div_(unbiased.sqrt_().add_(self.epsilon)))


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019, arXiv:1711.05101)."""

    def _decayed(self, flat: Tensor, grad: Tensor, rate: Tensor, decay: Tensor) -> Tensor:
        """Shrink the weights in place by rate * decay; return the gradient unchanged."""
        flat.mul_(1 - rate * decay)
        return grad


class Adamax(Optimizer):
    """Adamax (Kingma and Ba 2015, section 7.1) with betas 0.9 and 0.999; as in torch, epsilon is added to sizes."""

    slot_names = ("first", "largest")

    def _update(self, flat: Tensor, grad: Tensor, rate: Tensor, slots: dict[str, Tensor], count: Tensor) -> None:
        first, largest = slots["first"], slots["largest"]
        first.lerp_(grad, 0.1)
        torch.maximum(largest.mul_(0.999), grad.abs().add_(self.epsilon), out=largest)
        flat.sub_(first.mul(once(rate / -torch.expm1(count * math.log(0.9)))).div_(largest))


class RMSprop(Optimizer):
    """RMSprop (Tieleman and Hinton 2012), decay 0.99."""

    slot_names = ("second",)

    def _update(self, flat: Tensor, grad: Tensor, rate: Tensor, slots: dict[str, Tensor], count: Tensor) -> None:
        second = slots["second"]
        second.mul_(0.99).addcmul_(grad, grad, value=0.01)
        flat.sub_(grad.mul(rate).div_(second.sqrt().add_(self.epsilon)))


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum (Polyak 1964) for the agents whose momentum is not 0."""

    slot_names = ("first",)

    def _with_momentum(self, grad: Tensor, slots: dict[str, Tensor], momentum: Tensor) -> Tensor:
        """Return the decayed sum of gradients, and the gradient itself for agents without momentum."""
        first, moving = slots["first"], momentum != 0
        first.copy_(torch.where(moving, first * momentum + grad, first))
        return torch.where(moving, first, grad)

    def _update(self, flat: Tensor, grad: Tensor, rate: Tensor, slots: dict[str, Tensor], count: Tensor) -> None:
        flat.sub_(grad.mul(rate))


OPTIMIZERS: dict[str, type[Optimizer]] = {
    "adam": Adam, "adamw": AdamW, "adamax": Adamax, "rmsprop": RMSprop, "sgd": SGD,
}  # fmt: skip
