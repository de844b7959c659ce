"""K networks whose weights are one flat buffer, and the same interface for a user's own module."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from marltrain.core.errors import AgentError, SaveError
from marltrain.core.layout import Array, arrays_of, map_tree
from marltrain.policies.backends import base
from marltrain.policies.backends.frameworks import trial
from marltrain.policies.backends.own import structure_of
from marltrain.policies.backends.torch import ops
from marltrain.policies.backends.torch.places import on_cpu
from marltrain.policies.backends.torch.trials import trial as trial_of
from marltrain.policies.backends.trials import Trial, two_batches
from marltrain.policies.networks.specs import NetworkDefinition, Plan


class Network(base.Network):
    """K networks whose `weights` are views of one buffer [K, N]; see `base.Network`."""

    weights: list[Tensor]
    rows: int
    """Number of networks: K, or K * M of K ensembles."""
    _flat: Tensor

    @property
    def flat(self) -> Tensor:
        """The buffer."""
        return self._flat

    def assign(self, flat: Tensor) -> None:
        """See `base.Network`."""
        self._flat.copy_(flat)

    def discard_copies(self) -> None:
        """See `base.Network`; there are none, since all views share their memory."""

    def sources(self) -> list[Tensor]:
        """Return the weights."""
        return self.weights

    def joined(self, grads: Sequence[Tensor | None]) -> Tensor:
        """See `base.Network`."""
        pieces = [torch.zeros_like(w) if g is None else g for w, g in zip(self.weights, grads, strict=True)]
        return torch.cat([piece.reshape(self.rows, -1) for piece in pieces], 1).view_as(self._flat)

    def move_toward(self, online: base.Network, share: Tensor) -> None:
        """See `base.Network`."""
        if not on_cpu(self._flat.device):  # no number is read from a tensor
            moved = self._flat.lerp(online.flat, share.unsqueeze(1))
            self._flat.copy_(torch.where(share.unsqueeze(1) != 0, moved, self._flat))
            return
        rows, flat = torch.nonzero(share).flatten(), self._flat
        if len(rows) == share.numel():
            flat.lerp_(online.flat, share.unsqueeze(1))
        elif len(rows):
            flat[rows] = flat[rows].lerp(online.flat[rows], share[rows].unsqueeze(1))


class StackedNetwork(Network, base.StackedNetwork):
    """A `Plan` with weights [K, *shape] for K agents."""

    def __init__(self, plan: Plan, num_agents: int, device: torch.device) -> None:
        """Allocate zero weights; `draw` or `load` fills them."""
        self.plan, self.num_agents, self.device = plan, num_agents, device
        self.rows = num_agents * plan.members
        self._sizes = [parameter.size for parameter in plan.parameters]
        self._shapes = [(self.rows, *parameter.shape) for parameter in plan.parameters]
        self._flat = torch.zeros(num_agents, plan.members * plan.size, device=device)
        self.weights = [view.detach().requires_grad_() for view in self._views(self._flat)]
        self.on_cpu = on_cpu(device)
        self._numbers = self._flat.numpy() if self.on_cpu else None
        self._numpy_weights = [weight.detach().numpy() for weight in self.weights] if self.on_cpu else None

    def _views(self, flat: Tensor) -> list[Tensor]:
        pieces = flat.view(self.rows, -1).split(self._sizes, 1)
        return [piece.view(shape) for piece, shape in zip(pieces, self._shapes, strict=True)]

    def write(self, row: int, weights: Array) -> None:
        """See `base.StackedNetwork`."""
        self._flat[row].copy_(torch.from_numpy(weights))

    def __call__(self, *inputs: Any, row: int | None = None) -> list[Tensor]:
        """See `base.Network`."""
        return self.plan.forward(ops, self.weights if row is None else self.members_of(self.weights, row), *inputs)

    def numbers(self) -> Array:
        """See `base.Network`: on the same memory; on a GPU a copy."""
        return self._flat.cpu().numpy() if self._numbers is None else self._numbers

    def numpy_weights(self) -> list[Array]:
        """See `base.StackedNetwork`: on the same memory; on a GPU copies."""
        return self._numpy_weights or [weight.detach().cpu().numpy() for weight in self.weights]

    def copy(self) -> StackedNetwork:
        """See `base.Network`."""
        twin = StackedNetwork(self.plan, self.num_agents, self.device)
        twin.assign(self._flat)
        return twin


class ModuleNetwork(Network):
    """A user's `torch.nn.Module` for one agent (K = 1), its trainable parameters moved into the flat buffer.

    The module is in evaluation mode while no gradients are recorded (acting, targets), else in training mode.
    """

    rows = 1

    def __init__(self, module: nn.Module, definition: NetworkDefinition, device: torch.device) -> None:
        """Wrap the module: its parameters become views of the buffer."""
        if any(is_lazy(parameter) for parameter in module.parameters()):
            raise AgentError(
                f"module {type(module).__name__} has parameters without a shape yet (nn.LazyLinear and the like). "
                "Call it once on a batch of observations beforehand, or use layers that name the width of their input"
            )
        self.module, self.definition, self.device = module.to(device), definition, device
        self.weights = [parameter for parameter in module.parameters() if parameter.requires_grad]
        if not self.weights:
            raise AgentError(f"module {type(module).__name__} has no parameters that learn: there is nothing to train")
        self._flat = torch.cat([p.detach().reshape(-1).to(torch.float32) for p in self.weights]).unsqueeze(0)
        start = 0
        for parameter in self.weights:
            parameter.data = self._flat[0, start : start + parameter.numel()].view(parameter.shape)
            start += parameter.numel()

    def __call__(self, *inputs: Any, row: int | None = None) -> list[Tensor]:
        """Return the module's output, split by the heads' widths, with the leading axis K = 1 restored."""
        if self.module.training != torch.is_grad_enabled():
            self.module.train(torch.is_grad_enabled())
        rows = [map_tree(lambda tensor: tensor[0], given) for given in inputs]
        out = self.module(*rows)
        widths, members = self.definition.widths, self.definition.members
        batch, width = len(arrays_of(rows[0])[0]), members * sum(widths)
        if not isinstance(out, Tensor) or out.shape != (batch, width):
            came = f"an output of shape {tuple(out.shape)}" if isinstance(out, Tensor) else f"a {type(out).__name__}"
            raise AgentError(
                f"module {type(self.module).__name__} returned {came} for {batch} rows, expected a tensor of shape "
                f"({batch}, {width})"
            )
        return heads_of(out, self.definition)

    def structure(self) -> str:
        """See `base.Network`."""
        return structure_of(self.module)

    def try_out(self) -> None:
        """Run the module once on inputs of zeros; raises AgentError if it fails or its output does not fit."""
        errors = RuntimeError, TypeError, ValueError, LookupError, AttributeError
        with trial(f"module {type(self.module).__name__}", self.definition, errors), torch.no_grad():
            self(*self.definition.empty((1, 2), self._zeros))

    def _zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return torch.from_numpy(np.zeros(shape, dtype)).to(self.device)

    def multiply_adds(self) -> int:
        """See `base.Network`; counted by torch during a call with zeros."""
        from torch.utils.flop_counter import FlopCounterMode  # slow to import

        rows = 2
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            self(*self.definition.empty((1, rows), self._zeros))
        return int(counter.get_total_flops()) // (2 * rows)  # an addition and a multiplication are two operations

    def trial(self) -> Trial:
        """See `base.Network`."""
        batches = two_batches(self.definition, lambda array: torch.from_numpy(array).to(self.device))
        return trial_of(self.module, batches)

    def kept(self) -> dict[str, Array]:
        """See `base.Network`: the buffers, and the parameters that do not learn."""
        return {name: value.detach().cpu().numpy().copy() for name, value in self._kept()}

    def keep(self, arrays: Mapping[str, Array]) -> None:
        """See `base.Network`."""
        for name, value in self._kept():
            value.detach().copy_(torch.from_numpy(arrays[name]))

    def _kept(self) -> list[tuple[str, Tensor]]:
        frozen = [(name, value) for name, value in self.module.named_parameters() if not value.requires_grad]
        return [*self.module.named_buffers(), *frozen]

    def arrays(self, row: int) -> dict[str, Array]:
        """Return the module's parameters and buffers by name."""
        return {name: value.detach().cpu().numpy().copy() for name, value in self.module.state_dict().items()}

    def load(self, row: int, arrays: Mapping[str, Array]) -> None:
        """See `base.Network`; the buffers are loaded, too."""
        try:
            self.module.load_state_dict({name: torch.from_numpy(np.array(a)) for name, a in arrays.items()})
        except RuntimeError as error:
            raise SaveError(f"weights do not fit module {type(self.module).__name__}: {error}") from error

    def move_toward(self, online: base.Network, share: Tensor) -> None:
        """Move the weights towards the online network; copy the buffers (running statistics) if any share is not 0."""
        super().move_toward(online, share)
        if isinstance(online, ModuleNetwork) and bool(share.any()):
            for mine, theirs in zip(self.module.buffers(), online.module.buffers(), strict=True):
                mine.copy_(theirs)

    def copy(self) -> ModuleNetwork:
        """Return an independent copy of the module."""
        return ModuleNetwork(copy.deepcopy(self.module), self.definition, self.device)


def heads_of(out: Tensor, definition: NetworkDefinition) -> list[Tensor]:
    """Return the output of a user's module, [B, members * sum of widths], as those of the heads with axis K = 1."""
    if definition.members > 1:
        out = out.unflatten(-1, (definition.members, -1)).transpose(0, 1)
    return list(out.unsqueeze(0).split(definition.widths, -1))
