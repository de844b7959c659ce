"""One phase of a gradient step as a function of tensors, which a backend can trace, compile or split by rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from marltrain.layout import Array
from marltrain.policies.algorithms.base import Algorithm, Phase, TensorBatch
from marltrain.policies.learner.weights import Weights

TOTAL = "the loss itself"
"""Key of the differentiated loss among the metrics."""


class GradientStep:
    """Moves the networks of one phase: targets, loss and gradients, clipping, optimisers.

    numbers: the agents' settings, in the order of `names`, are one array: a compiled call is paid by argument.
    metrics: the names of the values that a call returns; known after the first call.
    """

    def __init__(
        self, phase: Phase, algorithm: Algorithm, backend: Any, nets: Mapping[str, Any], optimisers: Mapping[str, Any]
    ) -> None:
        """Bind the parts of a learner; `nets` holds the targets too."""
        self.phase, self.algorithm, self.backend = phase, algorithm, backend
        self.nets, self.optimisers = nets, optimisers
        self.names = algorithm.numbers()
        self.metrics: tuple[str, ...] = ()
        self._function = backend.function(self._step)

    def __call__(self, columns: Mapping[str, Any], numbers: Any, due: Array) -> Any:
        """Make one pass for the agents that are `due` [K] bool; the others stay as they are. Returns metrics [M, K].

        numbers: [H, K, 1], the agents' settings. An agent whose loss or gradient is not finite keeps its weights.
        """
        measured = self._function(
            dict(columns), numbers, None if np.count_nonzero(due) == len(due) else self.backend.tensor(due)
        )
        for name in self.phase.trains:
            self.nets[name].moved()
        return measured

    def _step(self, columns: dict[str, Any], numbers: Any, due: Any) -> Any:
        backend, batch = self.backend, TensorBatch(**columns)
        hyper = dict(zip(self.names, backend.ops.unstack(numbers), strict=True))
        self._over_rows(batch)
        measured, grads = backend.gradients(self._losses, self.nets, self.phase.trains, vars(batch), hyper)
        ops, (grads, norms, factor) = backend.ops, backend.clip(grads, hyper["max_grad_norm"][:, 0])
        fine = ops.isfinite(measured.pop(TOTAL) + sum(norms))
        for name, norm, grad in zip(self.phase.trains, norms, grads, strict=True):
            measured[f"grad_norm/{name}"] = ops.where(fine, norm, np.nan)  # so that it is seen, whatever the cause
            measured[f"grad_norm_clipped/{name}"] = norm * factor
            rate = hyper[self.algorithm.rate_name(name)][:, 0]
            safe, rate = ops.where(fine[:, None], grad, 0.0), ops.where(fine, rate, 0.0)
            self.optimisers[name].step(self.nets[name], safe, rate, due)
        self.metrics = tuple(measured)
        return backend.ops.stack(list(measured.values()), 0)

    def _over_rows(self, batch: TensorBatch) -> None:
        with self.backend.no_gradient():
            self.algorithm.over_rows(self.backend.ops, batch)

    def _losses(self, nets: Mapping[str, Any], columns: Mapping[str, Any], hyper: Mapping[str, Any]) -> Any:
        """Return the loss [K] and metrics of some rows: over parts of the rows they add up."""
        backend, batch = self.backend, TensorBatch(**columns)
        if self.phase.targets is not None:
            with backend.no_gradient():
                self.phase.targets(backend.ops, nets, batch, hyper)
        loss, metrics = self.phase.loss(backend.ops, nets, batch, hyper)
        return loss, {**metrics, TOTAL: loss}


class PartialGradientStep(GradientStep):
    """The pass of a replica, which is given part of the rows: what needs all was done before they were parted."""

    def _over_rows(self, batch: TensorBatch) -> None:
        pass


class GradientSteps:
    """A learner's passes, one a phase, in order: made where the learner is. `Replicas` has others make them.

    native: whether compiled code makes them, and can do so amid batch steps.
    at_once: whether there is one that makes all passes over a rollout at once: (columns, dealt, numbers, due [P, K])
      -> metrics [P, M, K].
    """

    native = False
    at_once = False

    def __init__(self, made: Sequence[Any]) -> None:
        """Hold what is called for each phase, (columns, numbers, due) -> metrics [M, K], or what makes all at once."""
        self.made = list(made)

    def __iter__(self) -> Iterator[Any]:
        """Go through the phases."""
        return iter(self.made)

    def begin(self, weights: Weights) -> None:
        """Get ready for the passes of an update."""

    def networks(self, nets: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the networks that a rollout is prepared with."""
        return nets

    def end(self, weights: Weights) -> None:
        """Give the weights what the passes of an update have moved."""

    def follow(self, weights: Weights, share: Array) -> None:
        """Have the targets follow by their `share` [K]."""
        weights.follow(share)

    def outdated(self) -> None:
        """Take note that the learner was loaded."""

    def close(self) -> None:
        """End what was started; a later update starts it anew."""
