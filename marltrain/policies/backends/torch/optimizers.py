"""The state of optimizers as tensors, updated in place; `policies.optimizers` has the formulas."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import cast

import torch
from torch import Tensor

from marltrain.core.layout import Array
from marltrain.policies.backends import base
from marltrain.policies.optimizers import OPTIMIZERS, WEIGHTS, Numbers, UpdateOps, stepped


class Optimizer(base.Optimizer):
    """An optimizer whose state are tensors; see `base.Optimizer`."""

    def __init__(self, name: str, flat: Tensor, epsilon: float) -> None:
        """Start with zero moments for the weights `flat` [K, N]; name: of `OPTIMIZERS`."""
        self.name, self.epsilon = name, epsilon
        self.slots = {moment: torch.zeros_like(flat) for moment in OPTIMIZERS[name].moments}
        self.count = torch.zeros(flat.shape[0], 1, device=flat.device)

    def step(
        self, network: base.Network, grad: Tensor, rate: Tensor, due: Tensor | None, *,
        weight_decay: Tensor | None = None, momentum: Tensor | None = None,
    ) -> None:  # fmt: skip
        """See `base.Optimizer`; all agents are updated in place, or copies if not all of them learn."""
        state = {WEIGHTS: network.flat, **self.slots, "count": self.count}
        given = state if due is None else {name: value.clone() for name, value in state.items()}
        decay = None if weight_decay is None or not network.decays else weight_decay
        numbers = Numbers(rate.unsqueeze(1), self.epsilon, decay, momentum)
        after = stepped(OPS, self.name, given, grad, numbers)
        for name, value in state.items():
            if due is not None:
                value.copy_(torch.where(due.unsqueeze(1), after[name], value))
            elif after[name] is not value:
                value.copy_(after[name])

    def numbers(self) -> dict[str, Array]:
        """See `base.Optimizer`: on the same memory; on a GPU copies."""
        return {name: value.numpy(force=True) for name, value in self.state().items()}

    def arrays(self, row: int) -> dict[str, Array]:
        """See `base.Optimizer`."""
        return {name: slot[row].cpu().numpy().copy() for name, slot in self.state().items()}

    def load(self, row: int, arrays: Mapping[str, Array]) -> None:
        """See `base.Optimizer`."""
        slots = self.state()
        for name, values in self.checked(arrays).items():
            slots[name][row].copy_(torch.from_numpy(values))


def expm1(x: Tensor) -> Tensor:
    """Return exp(x) - 1 of a number of each agent [K, 1].

    A compiled step would otherwise compute it again for each of an agent's weights: torch fuses it with what is
    done to the weights, except through operations on strides.
    """
    return torch.expm1(x).as_strided(x.shape, x.stride())


def add_square_(x: Tensor, y: Tensor, factor: float) -> Tensor:
    """Return x + factor * y * y, in place."""
    return x.addcmul_(y, y, value=factor)


def maximum_(x: Tensor, y: Tensor) -> Tensor:
    """Return the larger of x and y, in place."""
    return torch.maximum(x, y, out=x)


OPS = cast(UpdateOps, SimpleNamespace(
    absolute=torch.abs, expm1=expm1, sqrt=torch.sqrt, sqrt_=torch.sqrt_, maximum_=maximum_, lerp_=Tensor.lerp_,
    addcmul=torch.addcmul, add_square_=add_square_, where=torch.where,
))  # fmt: skip
