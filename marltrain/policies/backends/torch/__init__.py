"""The PyTorch backend: networks, gradients and optimizers behind the interface common to all backends."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from marltrain.errors import AgentError, ConfigError
from marltrain.layout import Array
from marltrain.policies.backends.frameworks import makes_models
from marltrain.policies.backends.shapes import rounded_up
from marltrain.policies.backends.torch import ops as torch_ops
from marltrain.policies.backends.torch.graphs import Graph
from marltrain.policies.backends.torch.networks import ModuleNetwork, Network, StackedNetwork
from marltrain.policies.backends.torch.optimisers import OPTIMISERS, Optimiser
from marltrain.policies.backends.torch.randomness import seeded
from marltrain.policies.networks import Head, NetworkSpec, Plan

Loss = Callable[[Mapping[str, Any], Any, Any], tuple[Tensor, dict[str, Tensor]]]


class Backend:
    """The operations of a framework that a learner needs.

    shares_memory: whether a tensor and the array that `numpy` returns for it share memory.
    """

    name = "torch"
    ops: ModuleType = torch_ops
    strategy: Any = None
    """The strategy that distributes gradient steps over devices or processes, set by `make_backend`."""

    def __init__(self, device: str = "auto", *, jit_compile: bool = False) -> None:
        """Choose a device: "auto" takes a GPU if there is one; raises ConfigError for a device that is missing.

        jit_compile: compile gradient steps by `torch.compile`, which takes long at the first call of each shape.
            marltrain compiles some gradient steps itself instead, see `policies.compiled.gradient_steps`.
        """
        self.jit_compile = jit_compile
        chosen = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
        try:
            self.device = torch.device(chosen)
            torch.empty(0, device=self.device)
        except (RuntimeError, AssertionError) as error:
            raise ConfigError(f"device {device!r} cannot be used: {error}") from error
        self.shares_memory = self.device.type == "cpu"

    def tensor(self, array: Any) -> Any:
        """Convert a numpy array, or a mapping of arrays, to tensors on the device (no copy on a CPU, if writable)."""
        if isinstance(array, dict):
            return {name: self.tensor(inner) for name, inner in array.items()}
        if array is None:
            return None
        contiguous = np.ascontiguousarray(array)
        return torch.from_numpy(contiguous if contiguous.flags.writeable else contiguous.copy()).to(self.device)

    def numpy(self, tensor: Tensor) -> Array:
        """Convert a tensor to a numpy array."""
        return tensor.detach().cpu().numpy()

    def overwrite(self, old: Tensor, new: Array) -> None:
        """Copy a numpy array into a tensor."""
        old.copy_(torch.from_numpy(new))

    def function(self, step: Any) -> Callable[..., Tensor]:
        """Return a bound method over tensors, compiled if `jit_compile` is set."""
        return Graph(step) if self.jit_compile else step

    def width(self, rows: int) -> int:
        """Round up the number of rows of a minibatch, so that minibatches of similar sizes share a compiled graph."""
        return rounded_up(rows) if self.jit_compile else rows

    def threads(self) -> int:
        """Return the number of threads that an operation may use."""
        return torch.get_num_threads()

    def no_gradient(self) -> Any:
        """Return a context in which no gradients are recorded."""
        return torch.no_grad()

    def is_module(self, network: object) -> bool:
        """Return whether `network` is a user's model of this framework, or a function that makes a model."""
        return isinstance(network, nn.Module) or makes_models(network)

    def network(
        self, spec: Any, layout: Any, heads: Sequence[Head], rngs: Sequence[np.random.Generator] | None, rows: int
    ) -> Network:
        """Build K = `rows` networks, with initial weights drawn from `rngs`, or zero weights without `rngs`.

        A user's module is copied, and a user's function is called, so that every agent has its own module.
        Raises AgentError if a module does not fit the observations or the heads, ConfigError for a module with
        `jit_compile`.
        """
        if isinstance(spec, NetworkSpec):
            made = StackedNetwork(Plan(spec, layout, heads), rows, self.device)
            if rngs is not None:
                made.draw(rngs)
            return made
        if self.jit_compile:
            raise ConfigError(
                "jit_compile=True compiles passes over networks that are NetworkSpecs (MLP(...), CNN(...)). Leave it "
                "out, and compile a model of your own with torch.compile"
            )
        with self.seeded(rngs[0] if rngs is not None else np.random.default_rng(0)):
            own = ModuleNetwork(_own_module(spec), heads, self.device)
        own.try_out(layout)
        return own

    def optimiser(self, name: str, network: Network, epsilon: float) -> Optimiser:
        """Make the named optimizer for the weights of a network."""
        return OPTIMISERS[name](network.flat, epsilon)

    def gradients(
        self, loss: Loss, nets: Mapping[str, Network], trains: Sequence[str], columns: Any, hyper: Any
    ) -> tuple[dict[str, Tensor], list[Tensor]]:
        """Return the metrics [K] and, for each network in `trains`, the gradients [K, N] of the agents' losses.

        loss: (nets, columns, hyper) -> (loss [K], metrics).
        """
        if torch.compiler.is_compiling():
            return _pure_gradients(loss, nets, trains, columns, hyper)
        value, metrics = loss(nets, columns, hyper)
        networks = [nets[name] for name in trains]
        leaves = [weight for network in networks for weight in network.weights]
        grads = torch.autograd.grad(value.sum(), leaves, allow_unused=True)
        made, start = [], 0
        for network in networks:
            rows = network.flat.shape[0]
            pieces = [
                (torch.zeros_like(w) if g is None else g).reshape(rows, -1)
                for w, g in zip(network.weights, grads[start : start + len(network.weights)], strict=True)
            ]
            made.append(torch.cat(pieces, 1))
            start += len(network.weights)
        return {name: metric.detach() for name, metric in metrics.items()}, made

    def clip(self, grads: Sequence[Tensor], limit: Tensor) -> tuple[Sequence[Tensor], Tensor, Tensor]:
        """Scale each row of the gradients (in place) to a joint norm of at most `limit` [K].

        Returns the gradients, the norm of each network's gradient before scaling [networks, K], and the factors [K].
        """
        norms = torch.stack([grad.norm(dim=1) for grad in grads])
        factor = (limit / (norms.norm(dim=0) + 1e-6)).clamp(max=1.0)
        for grad in grads:
            grad.mul_(factor.unsqueeze(1))
        return grads, norms, factor

    def rows(self, columns: Mapping[str, Any], index: Array, batch: int) -> dict[str, Any]:
        """Select rows of columns [K, B, ...], B = `batch`, by each agent's indices [K, N] -> [K, N, ...]."""
        agents = len(index)
        flat = self.tensor((index + np.arange(agents)[:, None] * batch).reshape(-1))
        return {name: _picked(value, flat, agents) for name, value in columns.items()}

    def columns(self, value: Any, start: int, stop: int) -> Any:
        """Return the rows from `start` to `stop` of [K, B, ...], as views."""
        if isinstance(value, dict):
            return {name: inner[:, start:stop] for name, inner in value.items()}
        return None if value is None else value[:, start:stop]

    def seeded(self, rng: np.random.Generator) -> AbstractContextManager[None]:
        """Return a context in which the global random generators are seeded; see `randomness.seeded`."""
        return seeded(rng)


def _picked(value: Any, flat: Tensor, agents: int) -> Any:
    """Select rows of [K, B, ...], K = `agents`, by their indices `flat` [K * N] among all K * B.

    A recursive function inside `rows` would be a reference cycle. It would keep `flat` alive until the next garbage
    collection, by then after about a hundred calls.
    """
    if isinstance(value, dict):
        return {name: _picked(inner, flat, agents) for name, inner in value.items()}
    if value is None:
        return None
    return value.flatten(0, 1).index_select(0, flat).view(agents, -1, *value.shape[2:])


def _own_module(given: Any) -> nn.Module:
    """Return a copy of a user's module, or of the module that a user's function makes.

    Raises AgentError if the function makes something else.
    """
    made = given if isinstance(given, nn.Module) else given()
    if not isinstance(made, nn.Module):
        name = getattr(given, "__name__", type(given).__name__)
        raise AgentError(f"{name} was given as a network: it must make a torch.nn.Module, it made {made!r}")
    return copy.deepcopy(made)


def _pure_gradients(
    loss: Loss, nets: Mapping[str, Any], trains: Sequence[str], columns: Any, hyper: Any
) -> tuple[dict[str, Tensor], list[Tensor]]:
    """Return metrics and gradients by a pure function of the flat weights, so that `torch.compile` makes one graph."""

    def total(*flats: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        given = {name: partial(nets[name].at, flat) for name, flat in zip(trains, flats, strict=True)}
        value, metrics = loss({**nets, **given}, columns, hyper)
        return value.sum(), metrics

    places = tuple(range(len(trains)))
    grads, (_, metrics) = torch.func.grad_and_value(total, argnums=places, has_aux=True)(
        *(nets[name].flat for name in trains)
    )
    return metrics, list(grads)
