"""A user's model with its losses and optimizers: the interface, and the code common to both frameworks."""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, ClassVar

from marltrain.core.errors import AgentError
from marltrain.core.layout import Array, map_tree

Loss = Callable[[Any, Any], Any]
UNEQUAL = 1e-3
"""Largest relative difference between the loss of some rows and the mean over their parts."""


@dataclass
class OwnPhase:
    """A loss, its optimizer and the variables that this optimizer updates."""

    name: str
    loss: Loss
    optimizer: Any
    variables: list[Any]


class OwnModel(ABC):
    """Interface between a `CustomAgent` and its model's framework; each backend implements it in `models.OwnModel`.

    framework: the backend's name.  model: the user's model.  phases: in the order in which a gradient step runs them.
    errors: [B], the rows' errors that a loss of the last gradient step returned beside its scalar; None without any.
    sums: the backend of a strategy, which sums losses and gradients over parts of the rows; None: no strategy.
    draws: whether layers of the model hold states of random generators.
    """

    framework: ClassVar[str]
    errors: Array | None = None
    sums: Any = None
    draws: bool = False

    def __init__(
        self,
        model: Any,
        losses: Mapping[str, Loss],
        optimizers: Any,
        *,
        batch_type: Callable[..., Any],
        max_grad_norm: float | None = None,
        jit_compile: bool = False,
    ) -> None:
        """Pair losses (name -> function of model and batch) with optimizers: a list in the same order, or by name.

        batch_type: makes the losses' batch from named columns.
        max_grad_norm: largest norm of a phase's gradient; None: not clipped.
        jit_compile: compile each gradient step for the exact shapes of its batch (Keras only).
        Raises AgentError for a model that cannot be trained, and for optimizers of another model's weights.
        """
        self.model, self.batch_type, self.limit, self.jit_compile = model, batch_type, max_grad_norm, jit_compile
        self._prepare()
        self.phases = self._paired(losses, optimizers)

    @abstractmethod
    def _prepare(self) -> None:
        """Prepare the calls of the model; raises AgentError for a model that cannot be trained."""

    @abstractmethod
    def _paired(self, losses: Mapping[str, Loss], optimizers: Any) -> list[OwnPhase]:
        """Pair losses with optimizers; raises AgentError if that is impossible or ambiguous."""

    @property
    @abstractmethod
    def device(self) -> Any:
        """Device of the model."""

    @abstractmethod
    def tensors(self, tree: Any) -> Any:
        """Copy a numpy array, or a mapping of arrays, to tensors on the model's device; None stays None."""

    @abstractmethod
    def numpy(self, value: Any) -> Array:
        """Convert a tensor, or any other array-like value, to a numpy array."""

    @abstractmethod
    def acting(self) -> AbstractContextManager[Any]:
        """Return a context for acting, in which no gradients are recorded."""

    @abstractmethod
    def learning(self) -> AbstractContextManager[Any]:
        """Return a context for gradient steps."""

    @abstractmethod
    def outputs(self, obs: Any) -> Any:
        """Return model(obs), as a numpy array if it is a single tensor. obs: tensors [B, *O]."""

    def structure(self) -> str:
        """Return the model's `structure_of`."""
        return structure_of(self.model)

    def step(self, columns: Mapping[str, Any], share: float = 1.0) -> dict[str, float]:
        """Make a gradient step of each phase, in order; return metrics.

        Each phase uses the weights that the previous phase has updated. Its gradient is clipped by its norm and updates
        only the variables of its own optimizer.
        columns: tensors of a batch's rows by name.  share: share of all rows, if a process has only a part of them.
        Raises AgentError for a loss that is no scalar or does not depend on these variables.
        """
        measured = self._steps(columns, share)
        metrics: dict[str, float] = {}
        for phase, (loss, norm, clipped, rate) in zip(self.phases, measured, strict=True):
            metrics[f"loss/{phase.name}"], metrics[f"grad_norm/{phase.name}"] = loss, norm
            metrics[f"grad_norm_clipped/{phase.name}"], metrics[f"learning_rate/{phase.name}"] = clipped, rate
        metrics["loss/total"] = sum(loss for loss, *_ in measured)
        return metrics

    @abstractmethod
    def statistics(self) -> str | None:
        """Return `Trial.couples` for a layer of the framework that keeps statistics over a batch."""

    @abstractmethod
    def sent(self) -> Callable[[], OwnModel]:
        """Return a function that makes an equal model with losses and optimizers; `Backend.pickled` can pickle it."""

    @abstractmethod
    def losses_of(self, parts: Sequence[dict[str, Any]]) -> list[list[float]]:
        """Return each phase's loss of the rows of each part, arrays by name; no state of the model changes."""

    @abstractmethod
    def _steps(self, columns: Mapping[str, Any], share: float) -> Sequence[tuple[float, float, float, float]]:
        """Make the gradient steps; return each phase's loss, gradient norm before and after clipping, learning rate."""

    @abstractmethod
    def frozen(self) -> OwnModel:
        """Return a copy that acts with the current weights; later gradient steps do not affect it."""

    @abstractmethod
    def state(self, arrays: dict[str, Array]) -> dict[str, Any]:
        """Return the state of "weights" and "optimizers" as JSON values; add its arrays to `arrays`."""

    @abstractmethod
    def load(self, info: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        """Load a result of `state`; raises ValueError, KeyError or RuntimeError if it does not fit."""


def check_mean(model: OwnModel, columns: Mapping[str, Any], strategy: str) -> None:
    """Raise AgentError for a loss that is no mean over rows, by the losses of two parts of the rows.

    A loss that draws random numbers, and therefore differs between two calls, is not checked.
    columns: arrays of at least two rows by name.  strategy: the strategy that needs a mean, for the error.
    """
    rows = len(columns["reward"])
    first = max(rows // 3, 1)
    slices = slice(None), slice(None), slice(first), slice(first, None)
    parts = [map_tree(itemgetter(part), dict(columns)) for part in slices]
    for phase, (whole, again, one, other) in zip(model.phases, model.losses_of(parts), strict=True):
        mean = (first * one + (rows - first) * other) / rows
        size = max(abs(whole), abs(one), abs(other))
        if whole == again and abs(whole - mean) > UNEQUAL * (size + UNEQUAL):
            raise AgentError(
                f"CustomAgent: loss {phase.name!r} is {whole:.6g} for {rows} rows, and {mean:.6g} as the mean over two "
                f"parts of them; {strategy} needs a loss that is a mean over rows, such as "
                "(batch.weight * errors).mean(). Sums, weights divided by their sum, advantages normalized in the "
                "batch and losses over sequences are none: change the loss, or leave strategy= out"
            )


def one_each(losses: Mapping[str, Loss], optimizers: Any) -> list[tuple[str, str, Loss, Any]]:
    """Return (place, name, loss, optimizer) of each phase; raises AgentError unless each loss has one optimizer.

    optimizers: a list, or a mapping by the losses' names.  place: the name of the optimizer's argument, for messages.
    """
    if isinstance(optimizers, Mapping):
        if set(losses) != set(optimizers):
            raise AgentError(
                f"CustomAgent: loss_fn has the names {', '.join(losses)}, and optimizers has {', '.join(optimizers)}: "
                "give one optimizer a loss, by the same name"
            )
        return [(f"optimizers[{name!r}]", name, loss, optimizers[name]) for name, loss in losses.items()]
    if len(losses) != len(optimizers) or not losses:
        raise AgentError(f"CustomAgent: {len(losses)} losses and {len(optimizers)} optimizers were given: one each")
    pairs = zip(losses.items(), optimizers, strict=True)
    return [(f"optimizers[{i}]", name, loss, optimizer) for i, ((name, loss), optimizer) in enumerate(pairs)]


def check_parts(phases: Sequence[OwnPhase], parts: Mapping[str, Sequence[Any]]) -> None:
    """Raise AgentError for a named optimizer of another part's weights, or without weights of its own part.

    parts: name -> the weights of the model's part of this name.
    """
    held = {name: {id(weight) for weight in weights} for name, weights in parts.items()}
    for phase in phases:
        stepped, mine = {id(variable) for variable in phase.variables}, held.get(phase.name)
        place = f"CustomAgent: optimizers[{phase.name!r}] ({type(phase.optimizer).__name__})"
        if mine is not None and not stepped & mine:
            raise AgentError(f"{place} steps no weights of the model's part {phase.name!r}: make it from these")
        for name, weights in held.items():
            if name != phase.name and stepped & (weights - (mine or set())):
                raise AgentError(f"{place} steps weights of the model's part {name!r}, which belong to the optimizer "
                                 "of that name")  # fmt: skip


def parted(result: Any) -> tuple[Any, Any]:
    """Return the scalar and the rows' errors of a loss's result; None for errors that it did not return."""
    return result if isinstance(result, tuple) and len(result) == 2 else (result, None)


def no_scalar(phase: OwnPhase, came: str) -> AgentError:
    """Return the error for a loss that is no scalar."""
    return AgentError(f"CustomAgent: loss {phase.name!r} must return a scalar tensor, got {came}")


def no_gradient(phase: OwnPhase, variables: str) -> AgentError:
    """Return the error for a loss without a gradient for its phase; variables: the framework's term for weights."""
    return AgentError(f"CustomAgent: loss {phase.name!r} depends on none of its optimizer's {variables}")


def strangers(place: str, optimizer: str, variables: str, shapes: list[tuple[int, ...]], model: Any) -> AgentError:
    """Return the error for an optimizer of weights that are not the model's."""
    return AgentError(
        f"CustomAgent: {place} ({optimizer}) steps {variables} that are not the model's, of shapes "
        f"{shapes}: make it from {variables} of this {type(model).__name__}"
    )


def structure_of(model: Any) -> str:
    """Return a hash that is equal for two models of a framework if and only if their layers and shapes are equal."""
    if hasattr(model, "named_modules"):
        layers = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(model))
        shapes = [tuple(parameter.shape) for parameter in model.parameters()]
    else:
        layers = str([(type(layer).__name__, _activation(layer)) for layer in layers_of(model)])
        shapes = [tuple(weight.shape) for weight in model.weights]
    return hashlib.sha256(f"{layers} {shapes}".encode()).hexdigest()[:16]


def layers_of(model: Any) -> Iterator[Any]:
    """Yield the layers of a Keras model, including those of nested models."""
    for layer in getattr(model, "layers", ()):
        yield layer
        yield from layers_of(layer)


def _activation(layer: Any) -> str:
    return str(getattr(getattr(layer, "activation", None), "__name__", ""))
