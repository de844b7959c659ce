"""The PyTorch backend: networks, gradients and optimizers behind the interface common to all backends."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain, islice
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from marltrain.core.errors import ConfigError
from marltrain.core.layout import Array, map_tree
from marltrain.policies.backends import base
from marltrain.policies.backends.base import Divergence, Loss
from marltrain.policies.backends.frameworks import made_by, makes_models
from marltrain.policies.backends.started import Start
from marltrain.policies.backends.torch import ops as torch_ops
from marltrain.policies.backends.torch.captures import Captured, Starting, capture_on
from marltrain.policies.backends.torch.networks import ModuleNetwork, Network, StackedNetwork
from marltrain.policies.backends.torch.optimizers import Optimizer
from marltrain.policies.backends.torch.places import on_cpu
from marltrain.policies.backends.torch.randomness import seeded
from marltrain.policies.backends.torch.row_memory import RowMemory
from marltrain.policies.backends.torch.transfers import fetched, sent
from marltrain.policies.networks.specs import NetworkDefinition, Plan
from marltrain.policies.ops import FrameworkOps


def gpu() -> str | None:
    """Return the name of the first GPU that torch can use, None without one."""
    return "cuda" if torch.cuda.is_available() else None


class Backend(base.Backend):
    """PyTorch on one device; see `base.Backend`."""

    name = "torch"
    ops: FrameworkOps = torch_ops

    def __init__(self, device: str = "auto", *, jit_compile: base.JitCompile = False) -> None:
        """Raise ConfigError for a device that is missing; "auto" is a GPU if there is one.

        jit_compile: on a GPU, capture gradient steps and acting as CUDA graphs, see `captures`. On a CPU, marltrain
            compiles them itself, see `policies.learner.make_steps`.
        """
        self.jit_compile, self.compiles_passes = jit_compile, bool(jit_compile)
        chosen = (gpu() or "cpu") if device == "auto" else device
        try:
            self.device = torch.device(chosen)
            torch.empty(0, device=self.device)
        except (RuntimeError, AssertionError) as error:
            raise ConfigError(f"device {device!r} cannot be used: {error}") from error
        self.shares_memory = on_cpu(self.device)
        self.on_gpu = not self.shares_memory
        self.runs_programs = self.shares_memory and bool(jit_compile)
        self.captures = bool(jit_compile) and not self.shares_memory
        self.compiles_curvature = self.captures

    def tensor(self, array: Any) -> Any:
        """See `base.Backend`; on a CPU a tensor shares the memory of a writable array."""
        return map_tree(_tensor, array) if self.shares_memory else sent(array, self.device)

    def numpy(self, tensor: Tensor) -> Array:
        """See `base.Backend`."""
        if isinstance(tensor, np.ndarray):
            return tensor
        return tensor.numpy(force=True) if self.shares_memory else fetched(tensor)

    def arrays(self, tree: Any) -> Any:
        """See `base.Backend`."""
        return map_tree(self.numpy, tree) if self.shares_memory else fetched(tree)

    def overwrite(self, old: Tensor, new: Array) -> None:
        """See `base.Backend`."""
        old.copy_(_tensor(new))

    def function(self, step: Callable[..., Tensor], *, compiled: bool = True) -> Callable[..., Tensor]:
        """Return the function; with `jit_compile` and `compiled`, captured on a GPU."""
        return self.captured(step) if compiled else step

    def captured(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """See `base.Backend`."""
        return Captured(function, capture_on(self.device)) if self.captures else function

    def argument(self, tree: Any) -> Any:
        """See `base.Backend`."""
        return tree if self.captures else self.tensor(tree)

    def starting(self, function: Callable[..., Any], *, compiled: bool = False) -> Start:
        """See `base.Backend`."""
        return Starting(function, capture_on(self.device)) if self.captures else super().starting(function)

    def row_memory(self) -> RowMemory | None:
        """See `base.Backend`."""
        return None if self.shares_memory else RowMemory(self.device)

    def threads(self) -> int:
        """See `base.Backend`."""
        return torch.get_num_threads()

    def no_gradient(self) -> AbstractContextManager[Any]:
        """See `base.Backend`."""
        return torch.no_grad()

    def is_module(self, network: object) -> bool:
        """See `base.Backend`."""
        return isinstance(network, nn.Module) or makes_models(network)

    def network(self, definition: NetworkDefinition, rngs: Sequence[np.random.Generator] | None, rows: int) -> Network:
        """See `base.Backend`; raises ConfigError for a user's module with `jit_compile`."""
        if not self.is_module(definition.spec):
            stacked = StackedNetwork(Plan(definition), rows, self.device)
            if rngs is not None:
                stacked.draw(rngs)
            return stacked
        if self.jit_compile:
            raise ConfigError(
                f"jit_compile={self.jit_compile!r} compiles passes over networks that are NetworkSpecs (MLP(...), "
                "CNN(...)). Leave it out, and compile a model of your own with torch.compile"
            )
        with self.seeded(rngs[0] if rngs is not None else np.random.default_rng(0)):
            own = ModuleNetwork(_own_module(definition.spec), definition, self.device)
        own.try_out()
        return own

    def optimizer(self, name: str, network: base.Network, epsilon: float) -> Optimizer:
        """See `base.Backend`."""
        return Optimizer(name, network.flat, epsilon)

    def gradients(
        self, loss: Loss, nets: Mapping[str, base.Network], trains: Sequence[str], columns: Any, hyper: Any
    ) -> tuple[dict[str, Tensor], list[Tensor]]:
        """See `base.Backend`."""
        value, metrics = loss(nets, columns, hyper)
        networks = [nets[name] for name in trains]
        sources = [network.sources() for network in networks]
        grads = iter(torch.autograd.grad(value.sum(), list(chain(*sources)), allow_unused=True))
        joined = [network.joined(list(islice(grads, len(own)))) for network, own in zip(networks, sources, strict=True)]
        return {name: metric.detach() for name, metric in metrics.items()}, joined

    def curvature_product(
        self,
        divergence: Divergence,
        nets: Mapping[str, base.Network],
        trains: Sequence[str],
        columns: Any,
        hyper: Any,
        vectors: Sequence[Tensor],
    ) -> list[Tensor]:
        """See `base.Backend`."""
        networks = [nets[name] for name in trains]
        sources = [network.sources() for network in networks]
        every = list(chain(*sources))

        def joined(grads: Sequence[Tensor | None]) -> list[Tensor]:
            rest = iter(grads)
            return [
                network.joined(list(islice(rest, len(own)))) for network, own in zip(networks, sources, strict=True)
            ]

        total = divergence(nets, columns, hyper).sum()
        first = joined(torch.autograd.grad(total, every, create_graph=True, allow_unused=True))
        along = torch.stack([(grad * vector).sum() for grad, vector in zip(first, vectors, strict=True)]).sum()
        return joined(torch.autograd.grad(along, every, allow_unused=True))

    def clip(self, grads: list[Tensor], limit: Tensor) -> tuple[list[Tensor], Tensor, Tensor]:
        """See `base.Backend`; the gradients are scaled in place."""
        norms = torch.stack([grad.norm(dim=1) for grad in grads])
        factor = (limit / (norms.norm(dim=0) + 1e-6)).clamp(max=1.0)
        for grad in grads:
            grad.mul_(factor.unsqueeze(1))
        return grads, norms, factor

    def rows(self, columns: Mapping[str, Any], index: Array, batch: int) -> dict[str, Any]:
        """See `base.Backend`."""
        agents = len(index)
        flat = self.tensor((index + np.arange(agents)[:, None] * batch).reshape(-1))
        return {
            name: map_tree(lambda t: t.flatten(0, 1).index_select(0, flat).view(agents, -1, *t.shape[2:]), value)
            for name, value in columns.items()
        }

    def seeded(self, rng: np.random.Generator) -> AbstractContextManager[None]:
        """See `base.Backend` and `randomness.seeded`."""
        return seeded(rng)


def _tensor(array: Array) -> Tensor:
    """Return an array as a tensor of the CPU, on the same memory if it is writable."""
    contiguous = np.ascontiguousarray(array)
    return torch.from_numpy(contiguous if contiguous.flags.writeable else contiguous.copy())


def _own_module(given: Any) -> nn.Module:
    """Return a copy of a user's module, or of the module that a user's function makes.

    Raises AgentError if the function makes something else.
    """
    return copy.deepcopy(given if isinstance(given, nn.Module) else made_by(given, nn.Module, "torch.nn.Module"))
