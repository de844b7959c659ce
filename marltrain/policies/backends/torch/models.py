"""A user's torch module with its losses and torch optimizers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from marltrain.core.errors import AgentError
from marltrain.core.layout import Array, map_tree
from marltrain.policies.backends import own
from marltrain.policies.backends.frameworks import named
from marltrain.policies.backends.own import Loss, OwnPhase
from marltrain.policies.backends.torch.randomness import seeded
from marltrain.policies.backends.torch.state import checked, packed, unpacked
from marltrain.policies.backends.torch.trials import statistics_of


class OwnModel(own.OwnModel):
    """A torch module with its losses and optimizers; see `own.OwnModel`."""

    framework = "torch"

    def _prepare(self) -> None:
        """See `own.OwnModel`."""
        if not any(True for _ in self.model.parameters()):
            kind = type(self.model).__name__
            raise AgentError(f"CustomAgent: model {kind} has no parameters: there is nothing to train")
        if self.jit_compile:
            raise AgentError("CustomAgent: jit_compile is for Keras models; give torch.compile(model) as the model")

    def _paired(self, losses: Mapping[str, Loss], optimizers: Any) -> list[OwnPhase]:
        """See `own.OwnModel`."""
        model = self.model
        given = optimizers if isinstance(optimizers, list | tuple | Mapping) else [optimizers]
        mine = {id(parameter) for parameter in model.parameters()}
        phases: list[OwnPhase] = []
        for place, name, loss, optimizer in own.one_each(losses, given):
            if not isinstance(optimizer, torch.optim.Optimizer):
                raise AgentError(
                    f"CustomAgent: {place} must be a torch optimizer, since {type(model).__name__} is a torch module, "
                    f"got {named(optimizer)}"
                )
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            shapes = [tuple(p.shape) for p in parameters if id(p) not in mine]
            if shapes:
                raise own.strangers(place, type(optimizer).__name__, "parameters", shapes, model)
            phases.append(OwnPhase(name, loss, optimizer, [p for p in parameters if p.requires_grad]))
        if isinstance(given, Mapping):
            own.check_parts(phases, {n: [*part.parameters()] for n, part in model.named_children() if n in given})
        return phases

    @property
    def device(self) -> torch.device:
        """Device of the first parameter."""
        return next(self.model.parameters()).device

    def tensors(self, tree: Any) -> Any:
        """See `own.OwnModel`."""
        device = self.device
        return map_tree(lambda array: torch.as_tensor(np.array(array), device=device), tree)

    def numpy(self, value: Any) -> Array:
        """See `own.OwnModel`."""
        return value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)

    @contextmanager
    def acting(self) -> Iterator[None]:
        """See `own.OwnModel`; the model is in evaluation mode."""
        with torch.no_grad(), _mode(self.model, training=False):
            yield

    @contextmanager
    def learning(self) -> Iterator[None]:
        """See `own.OwnModel`; the model is in training mode."""
        with _mode(self.model, training=True):
            yield

    def outputs(self, obs: Any) -> Any:
        """See `own.OwnModel`."""
        out = self.model(obs)
        return self.numpy(out) if isinstance(out, Tensor) else out

    def statistics(self) -> str | None:
        """See `own.OwnModel`."""
        return statistics_of(self.model)

    def sent(self) -> Callable[[], OwnModel]:
        """See `own.OwnModel`."""
        return partial(_given, self)

    def losses_of(self, parts: Sequence[dict[str, Any]]) -> list[list[float]]:
        """See `own.OwnModel`; the model is in evaluation mode."""
        batches = [self.batch_type(**map_tree(self.tensors, part)) for part in parts]
        with seeded(np.random.default_rng(0)), _mode(self.model, training=False):
            return [[float(self._loss(phase, batch)[0].detach()) for batch in batches] for phase in self.phases]

    def _steps(self, columns: Mapping[str, Any], share: float) -> Sequence[tuple[float, float, float, float]]:
        batch, self.errors = self.batch_type(**columns), None
        return [self._phase_step(phase, batch, share) for phase in self.phases]

    def _phase_step(self, phase: OwnPhase, batch: Any, share: float) -> tuple[float, float, float, float]:
        loss, errors = self._loss(phase, batch)
        if errors is not None:
            self.errors = self.numpy(errors)
        if not loss.requires_grad:
            raise own.no_gradient(phase, "parameters")
        for parameter in phase.variables:
            parameter.grad = None
        # only these parameters get gradients. `torch.autograd.grad` may return one tensor for two parameters, or one
        # number for a whole parameter (`expand`), which cannot be clipped in place
        loss.backward(inputs=phase.variables)
        grads: Sequence[Tensor | None] = [parameter.grad for parameter in phase.variables]
        if all(grad is None for grad in grads):
            raise own.no_gradient(phase, "parameters")
        if self.sums is not None:
            loss, grads = self._summed(loss, grads, phase.variables, share)
            for parameter, grad in zip(phase.variables, grads, strict=True):
                parameter.grad = grad
        limit = float("inf") if self.limit is None else self.limit
        norm = float(nn.utils.clip_grad_norm_(phase.variables, limit))
        phase.optimizer.step()
        phase.optimizer.zero_grad(set_to_none=True)
        return float(loss.detach()), norm, min(norm, limit), float(phase.optimizer.param_groups[0]["lr"])

    def _loss(self, phase: OwnPhase, batch: Any) -> tuple[Tensor, Any]:
        """Return the scalar and the rows' errors of a phase's loss; raises AgentError if it is no scalar."""
        loss, errors = own.parted(phase.loss(self.model, batch))
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            came = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"a {type(loss).__name__}"
            raise own.no_scalar(phase, came)
        return loss, errors

    def _summed(
        self, loss: Tensor, grads: Sequence[Tensor | None], variables: Sequence[Tensor], share: float
    ) -> tuple[Tensor, list[Tensor | None]]:
        """Return the loss and the gradients over the rows of all processes; None where no process has a gradient."""
        has = loss.new_tensor([grad is not None for grad in grads])
        given = [torch.zeros_like(v) if g is None else g * share for g, v in zip(grads, variables, strict=True)]
        whole, some, *summed = self.sums.summed([loss.detach() * share, has, *given])
        return whole, [grad if count else None for grad, count in zip(summed, some.tolist(), strict=True)]

    def frozen(self) -> OwnModel:
        """See `own.OwnModel`."""
        return copy.deepcopy(self)

    def state(self, arrays: dict[str, Array]) -> dict[str, Any]:
        """See `own.OwnModel`; the weights include the buffers."""
        optimizers = [phase.optimizer.state_dict() for phase in self.phases]
        return {
            "weights": packed(dict(self.model.state_dict()), "weights", arrays),
            "optimizers": packed(optimizers, "optimizers", arrays),
        }

    def load(self, info: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        """See `own.OwnModel`."""
        self.model.load_state_dict(checked(unpacked(info["weights"], arrays), self.model.state_dict(), "weights"))
        optimizers = [phase.optimizer for phase in self.phases]
        for i, (optimizer, saved) in enumerate(zip(optimizers, unpacked(info["optimizers"], arrays), strict=True)):
            optimizer.load_state_dict(checked(saved, optimizer.state_dict(), f"optimizers/{i}"))


def _given(model: OwnModel) -> OwnModel:
    return model


@contextmanager
def _mode(model: nn.Module, *, training: bool) -> Iterator[None]:
    """Set a model to training or evaluation mode, and restore its mode afterwards."""
    before = model.training
    model.train(training)
    try:
        yield
    finally:
        model.train(before)
