"""The PyTorch backend: networks, gradients and optimisers behind the names every backend has."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.random import mtrand
from torch import Tensor, nn

from marltrain.errors import ConfigError
from marltrain.layout import Array
from marltrain.policies.backends.torch import ops as torch_ops
from marltrain.policies.backends.torch.networks import ModuleNetwork, Network, StackedNetwork
from marltrain.policies.backends.torch.optimisers import OPTIMISERS, Optimiser
from marltrain.policies.networks import Head, NetworkSpec, Plan

BORROWED = np.random.MT19937(0)
"""What numpy's global functions draw from within `Backend.seeded`."""


class Backend:
    """Everything a learner asks of a framework."""

    name = "torch"
    ops: ModuleType = torch_ops

    def __init__(self, device: str = "auto") -> None:
        """Choose a device: "auto" takes a GPU when there is one; raises ConfigError for one that is not there."""
        chosen = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
        try:
            self.device = torch.device(chosen)
            torch.empty(0, device=self.device)
        except (RuntimeError, AssertionError) as error:
            raise ConfigError(f"device {device!r} cannot be used: {error}") from error

    def tensor(self, array: Any) -> Any:
        """Turn a numpy array, or a mapping of them, into tensors on the device (no copy on a CPU, if writable)."""
        if isinstance(array, dict):
            return {name: self.tensor(inner) for name, inner in array.items()}
        if array is None:
            return None
        contiguous = np.ascontiguousarray(array)
        return torch.from_numpy(contiguous if contiguous.flags.writeable else contiguous.copy()).to(self.device)

    def numpy(self, tensor: Tensor) -> Array:
        """Turn a tensor into a numpy array."""
        return tensor.detach().cpu().numpy()

    def no_gradient(self) -> Any:
        """Return a context in which nothing is recorded for gradients."""
        return torch.no_grad()

    def is_module(self, network: object) -> bool:
        """Say whether `network` is a user's own model of this framework."""
        return isinstance(network, nn.Module)

    def network(
        self, spec: Any, layout: Any, heads: Sequence[Head], rngs: Sequence[np.random.Generator] | None, rows: int
    ) -> Network:
        """Build K = `rows` networks: drawn from `rngs`, or zero until loaded when there are none.

        A user's own module is copied, so that every agent given it has one of its own; raises AgentError when it does
        not fit the observations or the heads.
        """
        if isinstance(spec, NetworkSpec):
            made = StackedNetwork(Plan(spec, layout, heads), rows, self.device)
            if rngs is not None:
                made.draw(rngs)
            return made
        own = ModuleNetwork(copy.deepcopy(spec), heads, self.device)
        own.try_out(layout)
        return own

    def optimiser(self, name: str, network: Network, epsilon: float) -> Optimiser:
        """Make the named optimiser for one network's weights."""
        return OPTIMISERS[name](network.flat, epsilon)

    def gradients(
        self, loss: Callable[[], tuple[Tensor, dict[str, Tensor]]], networks: Sequence[Network]
    ) -> tuple[Tensor, dict[str, Tensor], list[Tensor]]:
        """Return the loss [K], its metrics [K] and, per network, the gradient [K, N] of each row's own loss."""
        value, metrics = loss()
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
        return value.detach(), {name: metric.detach() for name, metric in metrics.items()}, made

    def clip(self, grads: Sequence[Tensor], limit: Tensor) -> tuple[Tensor, Tensor]:
        """Scale each row of the gradients in place to a joint norm of at most `limit` [K].

        Returns the networks' own norms before, [networks, K], and the factors [K].
        """
        norms = torch.stack([grad.norm(dim=1) for grad in grads])
        factor = (limit / (norms.norm(dim=0) + 1e-6)).clamp(max=1.0)
        for grad in grads:
            grad.mul_(factor.unsqueeze(1))
        return norms, factor

    def rows(self, value: Any, index: Tensor) -> Any:
        """Pick rows of [K, B, ...] by each agent's own index [K, N] -> [K, N, ...]."""
        if isinstance(value, dict):
            return {name: self.rows(inner, index) for name, inner in value.items()}
        if value is None:
            return None
        agents, batch = value.shape[:2]
        flat = (index + torch.arange(agents, device=index.device).unsqueeze(1) * batch).reshape(-1)
        return value.flatten(0, 1).index_select(0, flat).view(agents, -1, *value.shape[2:])

    def columns(self, value: Any, start: int, stop: int) -> Any:
        """Return the rows start to stop of [K, B, ...], as a view."""
        if isinstance(value, dict):
            return {name: inner[:, start:stop] for name, inner in value.items()}
        return None if value is None else value[:, start:stop]

    @contextmanager
    def seeded(self, rng: np.random.Generator) -> Iterator[None]:
        """Seed torch's and numpy's global generators from an agent's stream, and put them back afterwards."""
        seed, before = int(rng.integers(2**31)), mtrand.get_bit_generator()
        with torch.random.fork_rng():
            torch.default_generator.manual_seed(seed)  # torch.manual_seed takes 100 us, this 1 us
            if torch.cuda.is_initialized():
                torch.cuda.manual_seed_all(seed)
            mtrand.set_bit_generator(BORROWED)  # lent, so that no state has to be copied
            np.random.seed(seed)
            try:
                yield
            finally:
                mtrand.set_bit_generator(before)
