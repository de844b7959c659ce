"""The interface of a framework: stacked networks, optimizers, gradients, and conversions between arrays and tensors.

Axes: K agents, B rows, N weights of an agent, H hyperparameters. Floating point tensors are float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Literal, Protocol

import cloudpickle
import numpy as np

from marltrain.core.errors import SaveError
from marltrain.core.layout import Array, map_tree
from marltrain.policies.backends import numpy_ops
from marltrain.policies.backends.row_memory import RowMemory
from marltrain.policies.backends.started import Read, Start
from marltrain.policies.backends.strategies import Strategy
from marltrain.policies.backends.trials import Trial
from marltrain.policies.networks.specs import NetworkDefinition, Plan
from marltrain.policies.ops import FrameworkOps
from marltrain.storage.checks import finite, shaped, within

Tensor = Any
"""A tensor or variable of the framework."""
Tree = Any
"""A tensor, None, or a dict of trees; observations are a tensor or a dict of tensors."""
Forward = Callable[..., list[Any]]
"""(*inputs, row=None) -> the output of each head, as `Network.__call__`."""

JitCompile = bool | Literal["require"]
"""Whether gradient steps are compiled; `REQUIRE`: on a CPU by marltrain's own code, and never by the framework."""
REQUIRE: Literal["require"] = "require"
MOST_STEPS = 2**24
"""Largest step count of a float32: adding 1 to it has no effect."""


class Network(Protocol):
    """K networks of equal structure, or a user's model (K = 1); the optimizer updates all weights as one array.

    decays: whether weight decay applies; False for networks that are constants, such as a temperature.
    """

    decays: bool = True

    def __call__(self, *inputs: Tree, row: int | None = None) -> list[Tensor]:
        """Return the output of each head, [K, B, width], for the inputs of the `NetworkDefinition`, each [K, B, ...].

        row: compute only this agent's output [1, B, width], for inputs [1, B, ...].
        """

    @property
    def flat(self) -> Tensor:
        """The trainable weights, [K, N]."""

    def assign(self, flat: Tensor) -> None:
        """Replace the trainable weights by `flat` [K, N]; the caller calls `discard_copies` afterwards."""

    def discard_copies(self) -> None:
        """Discard cached copies of the weights; called after each change of their tensors."""

    def numbers(self) -> Array:
        """Return all weights of a NetworkSpec as a numpy array [K, N]: on a CPU, the same object in each call."""
        raise TypeError(f"{type(self).__name__} gives no array for compiled code")

    def numbers_changed(self) -> None:
        """Note that compiled code has changed the array that `numbers` returned last: the weights are its numbers."""
        return

    def settle(self) -> None:
        """Update the tensors by changed `numbers`; called before a graph reads them."""
        return

    def sources(self) -> Sequence[Tensor]:
        """Return the tensors or variables whose gradients are computed."""

    def joined(self, grads: Sequence[Tensor | None]) -> Tensor:
        """Return the gradients of `sources` as one array [K, N]; None counts as zero."""

    def penalty(self) -> Tensor | None:
        """Return the weight regularization that is added to the loss, [K]; None without regularizers."""
        return None

    def move_toward(self, online: Network, share: Tensor) -> None:
        """Move each agent's weights towards the online network's by its share [K]: 1 copies, 0 changes nothing."""

    def copy(self) -> Network:
        """Return an independent network with equal weights."""

    def in_numpy(self) -> Forward | None:
        """Return the same network over `numpy_ops`; None if that is not supported."""
        return None

    def structure(self) -> str:
        """Return a hash of the layers and shapes of a user's model; "" for networks of a NetworkSpec."""
        return ""

    def multiply_adds(self) -> int:
        """Return the number of multiplications of a forward pass over one row, of one agent."""

    def trial(self) -> Trial:
        """Return what a user's model does in training beside computing outputs; nothing for a NetworkSpec."""
        return Trial()

    def kept(self) -> dict[str, Array]:
        """Return the arrays of a user's model that are not among `flat` (buffers, frozen weights), by name."""
        return {}

    def keep(self, arrays: Mapping[str, Array]) -> None:
        """Set the arrays that `kept` of an equal network returned."""
        raise TypeError(f"{type(self).__name__} keeps no arrays beside its weights")

    def arrays(self, row: int) -> dict[str, Array]:
        """Return one agent's weights by name."""

    def load(self, row: int, arrays: Mapping[str, Array]) -> None:
        """Load one agent's weights; raises SaveError if names or shapes differ."""

    def fitting(self, row: int, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Return saved weights in the order of one agent's; raises SaveError if names or shapes differ."""
        now = self.arrays(row)
        if sorted(arrays) != sorted(now):
            raise SaveError(f"weights {sorted(arrays)} do not fit a network with {sorted(now)}")
        return {name: shaped(f"weight {name}", arrays[name], own.dtype, own.shape) for name, own in now.items()}


class StackedNetwork(Network, Protocol):
    """K networks, or K ensembles of M, of one `NetworkSpec`.

    The weights of an agent [N] are the parameters, one after another, of each member of its ensemble.

    plan: parameters and forward pass.  num_agents: K.  on_cpu: whether the weights are in the memory of the CPU.
    """

    plan: Plan
    num_agents: int
    on_cpu: bool

    @property
    def decays(self) -> bool:  # type: ignore[override]
        """See `Network`."""
        return self.plan.definition.has_inputs

    def multiply_adds(self) -> int:
        """See `Network`."""
        return self.plan.multiply_adds

    def numpy_weights(self) -> list[Array]:
        """Return the weights of each parameter as a numpy array [K * M, *shape]."""

    def write(self, row: int, weights: Array) -> None:
        """Replace one agent's weights by an array [N]."""

    def draw(self, rngs: Sequence[np.random.Generator]) -> None:
        """Draw initial weights, those of each agent from its own generator."""
        for row, rng in enumerate(rngs):
            self.write(row, self.plan.draw(rng))

    def in_numpy(self) -> Forward | None:
        """See `Network`; None for images and on a GPU, which the framework computes."""
        return self._forward_in_numpy if self.on_cpu and not self.plan.images else None

    def _forward_in_numpy(self, *inputs: Any, row: int | None = None) -> list[Array]:
        weights = self.numpy_weights()
        return self.plan.forward(numpy_ops, weights if row is None else self.members_of(weights, row), *inputs)

    def members_of(self, weights: Sequence[Any], row: int) -> list[Any]:
        """Return the part [M, *shape] of one agent of weights [K * M, *shape]."""
        members = self.plan.members
        return [weight[row * members : (row + 1) * members] for weight in weights]

    def arrays(self, row: int) -> dict[str, Array]:
        """See `Network`; the arrays of an ensemble have a leading axis M."""
        own = self.members_of(self.numpy_weights(), row)
        alone = self.plan.members == 1
        return {p.name: (w[0] if alone else w).copy() for p, w in zip(self.plan.parameters, own, strict=True)}

    def load(self, row: int, arrays: Mapping[str, Array]) -> None:
        """See `Network`; raises SaveError for values that are not finite, too."""
        fitting, members = self.fitting(row, arrays).items(), self.plan.members
        checked = [finite(f"weight {name}", array).reshape(members, -1) for name, array in fitting]
        self.write(row, np.concatenate(checked, 1).reshape(-1))


class Optimizer(Protocol):
    """The state of an optimizer of weights [K, N]; row k has its own learning rate, moments and step count.

    name: of `policies.optimizers.OPTIMIZERS`.  epsilon: added to the denominator of a step.
    slots: name of a moment -> [K, N].  count: [K, 1], steps so far.
    """

    name: str
    epsilon: float
    slots: Mapping[str, Tensor]
    count: Tensor

    def step(
        self, network: Network, grad: Tensor, rate: Tensor, due: Tensor | None, *,
        weight_decay: Tensor | None = None, momentum: Tensor | None = None,
    ) -> None:  # fmt: skip
        """Update a network by gradients [K, N] at learning rates [K], as the optimizer of this name in torch does.

        due: [K] bool, the agents that learn; the state of the others does not change. None: all agents learn.
        weight_decay: [K, 1]; decoupled from the gradient in AdamW, added to it by the other optimizers. None: all 0.
            It has no effect on a network without `decays`.
        momentum: [K, 1], read by SGD. None: all 0.
        """

    def state(self) -> dict[str, Tensor]:
        """Return moments [K, N] and step counts [K, 1] by name."""
        return {**self.slots, "count": self.count}

    def numbers(self) -> dict[str, Array]:
        """Return `state` as numpy arrays: on a CPU, the same objects in each call."""

    def numbers_changed(self) -> None:
        """Note that compiled code has changed the arrays that `numbers` returned last: the state is their numbers."""
        return

    def discard_copies(self) -> None:
        """Discard cached copies of the state; called after each change of its tensors."""
        return

    def settle(self) -> None:
        """Update the tensors by changed `numbers`; called before a graph reads them."""
        return

    def arrays(self, row: int) -> dict[str, Array]:
        """Return one agent's moments and step count."""

    def load(self, row: int, arrays: Mapping[str, Array]) -> None:
        """Load one agent's moments and step count; raises SaveError if they are another optimizer's."""

    def checked(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Return one agent's saved moments and step count; raises SaveError for impossible values."""
        slots = self.state()
        if set(arrays) != set(slots):
            raise SaveError(f"optimizer state {sorted(arrays)} is not one of {self.name}")
        return {name: _checked(name, arrays[name], tuple(slot.shape[1:])) for name, slot in slots.items()}


def _checked(name: str, values: Array, shape: tuple[int, ...]) -> Array:
    """Return one agent's moments, or its step count, as float32; raises SaveError for impossible values."""
    what = f"optimizer state {name!r}"
    array = np.ascontiguousarray(finite(what, shaped(what, values, np.float32, shape)))
    if name in ("second", "largest", "count"):  # squares, sizes and a number of steps: none is negative
        within(what, array, 0, MOST_STEPS if name == "count" else np.inf)
    return array


Loss = Callable[[Mapping[str, Any], dict[str, Tree], Any], tuple[Tensor, dict[str, Tensor]]]
"""(networks, columns, hyperparameters) -> (loss [K], metrics: name -> [K])."""
Divergence = Callable[[Mapping[str, Any], dict[str, Tree], Any], Tensor]
"""(networks, columns, hyperparameters) -> [K]."""


class Backend(Protocol):
    """The operations of a framework that a learner needs.

    name: name of the framework.  ops: array operations for algorithms.  device: where it computes.
    on_gpu: whether a GPU computes, or a CPU in its place.  jit_compile: whether gradient steps are compiled.
    runs_programs: whether they are programs of the tape where they can be recorded: on a CPU, if they are compiled.
    shares_memory: whether a tensor and the array that `numpy` returns for it share memory.
    strategy: distributes gradient steps over devices or processes; set by `make_backend`.
    compiles_curvature: whether `curvature_product` may be part of a compiled function.
    captures: whether calls of functions are captured, and their arguments may be arrays, see `argument`.
    compiles_passes: whether all phases of an off-policy pass are compiled as one function (`GradientPass`).
    """

    name: str
    ops: FrameworkOps
    device: Any
    jit_compile: JitCompile
    runs_programs: bool = False
    on_gpu: bool = False
    shares_memory: bool = False
    strategy: Strategy | None = None
    compiles_curvature: bool = True
    captures: bool = False
    compiles_passes: bool = False

    def tensor(self, array: Tree) -> Tree:
        """Convert an array, or a dict of arrays, to tensors on the device; None stays None."""

    def numpy(self, tensor: Tensor) -> Array:
        """Convert a tensor, or a column of the result of `rows`, to a writable numpy array."""

    def arrays(self, tree: Tree) -> Tree:
        """Convert the tensors of a tree to writable arrays; None stays None."""
        return map_tree(self.numpy, tree)

    def overwrite(self, old: Tensor, new: Array) -> None:
        """Copy an array into a tensor or variable."""

    def network(self, definition: NetworkDefinition, rngs: Sequence[np.random.Generator] | None, rows: int) -> Network:
        """Build K = `rows` networks, with initial weights drawn from `rngs`, or zero weights without `rngs`.

        A user's model is copied. Raises AgentError if it does not fit the inputs or the heads.
        """

    def is_module(self, network: object) -> bool:
        """Return whether `network` is a user's model of this framework, or a function that makes a model."""

    def optimizer(self, name: str, network: Network, epsilon: float) -> Optimizer:
        """Make the named optimizer for the weights of a network."""

    def function(self, step: Callable[..., Tensor], *, compiled: bool = True) -> Callable[..., Tensor]:
        """Return a function of trees, as a graph or compiled if the backend supports it.

        compiled: False: not compiled, even with `jit_compile`.
        """

    def captured(self, function: Callable[..., Tree]) -> Callable[..., Tree]:
        """Return a function of trees whose operations a GPU starts by one call, if the backend captures calls.

        This is the function itself on a CPU, without `jit_compile`, and in TensorFlow.
        """
        return function

    def argument(self, tree: Tree) -> Tree:
        """Convert an array, or a dict of arrays, to arguments of what the methods above and `starting` return.

        These are tensors, or the arrays themselves if the backend captures calls: all arrays of a call are then copied
        to the device at once.
        """
        return self.tensor(tree)

    def starting(self, function: Callable[..., Tree], *, compiled: bool = False) -> Start:
        """Return a function of trees that starts a function whose results are read as arrays.

        compiled: as `function` compiles, else as `captured` does.
        """
        call = self.function(function) if compiled else self.captured(function)
        return lambda *trees: Read(partial(self.arrays, call(*trees)))

    def gradients(
        self, loss: Loss, nets: Mapping[str, Network], trains: Sequence[str], columns: dict[str, Tree], hyper: Any
    ) -> tuple[dict[str, Tensor], list[Tensor]]:
        """Return the metrics [K] and, for each network in `trains`, the gradients [K, N] of the agents' losses."""

    def curvature_product(
        self,
        divergence: Divergence,
        nets: Mapping[str, Network],
        trains: Sequence[str],
        columns: dict[str, Tree],
        hyper: Any,
        vectors: Sequence[Tensor],
    ) -> list[Tensor]:
        """Return, for each network in `trains`, the products of second derivatives and vectors, [K, N].

        The matrix of agent k is the second derivative of its divergence with respect to its weights of all networks in
        `trains`; it is not formed.  vectors: [K, N] for each of these networks.
        """

    def clip(self, grads: list[Tensor], limit: Tensor) -> tuple[list[Tensor], Any, Tensor]:
        """Scale each row of the gradients, possibly in place, to a joint norm of at most `limit` [K].

        Returns the gradients, the norm of each network's gradient before scaling [networks, K], and the factors [K].
        """

    def no_gradient(self) -> AbstractContextManager[Any]:
        """Return a context in which no gradients are recorded."""

    def rows(self, columns: Mapping[str, Tree], index: Array, batch: int) -> dict[str, Tree]:
        """Select rows of columns [K, B, ...], B = `batch`, by each agent's indices [K, N] -> [K, N, ...]."""

    def row_memory(self) -> RowMemory | None:
        """Return the memory of the device for rows to learn from; None if batches are gathered in that of the CPU."""
        return None

    def threads(self) -> int:
        """Return the number of threads that an operation may use."""

    def pickled(self, value: Any) -> bytes:
        """Return a value, with the classes and functions of the user's script, as bytes for `cloudpickle.loads`."""
        return bytes(cloudpickle.dumps(value))

    def seeded(self, rng: np.random.Generator) -> AbstractContextManager[None]:
        """Return a context in which the global random generators are seeded, and restored afterwards."""
