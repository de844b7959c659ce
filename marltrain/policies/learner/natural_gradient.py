"""Natural gradient steps: conjugate gradients and a line search, for each agent by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from marltrain.core.errors import ConfigError
from marltrain.core.layout import Array
from marltrain.policies.backends.base import Forward
from marltrain.policies.batches.tensor_batch import TensorBatch
from marltrain.policies.interface.natural_gradient import NaturalGradient
from marltrain.policies.learner.fallback import NATURAL, fall_back
from marltrain.policies.learner.trained_team import ALONE, Columns, TrainedTeam

CONVERGED = 1e-10
"""Square of the residual, relative to that of the gradient, at which an agent's conjugate gradients stop."""


class NaturalGradientStep:
    """The step of a phase with `Phase.natural`, on all rows of a batch; see `NaturalGradient`.

    metrics: the names of the values that a call returns; empty before the first call. Beside those of the loss, before
      the step: "kl", the divergence of the accepted step, and "line_search", its size relative to the largest step;
      both are 0 if no step was accepted.
    """

    def __init__(self, number: int, natural: NaturalGradient, team: TrainedTeam) -> None:
        """Store the agents, which learn alone.  number: of the phase.

        Raises ConfigError for a setting that is no hyperparameter.
        """
        algorithm, backend = team.algorithm, team.backend
        self.team, self.number, self.natural, self.algorithm, self.backend = team, number, natural, algorithm, backend
        self.phase, self.nets = algorithm.phases[number], team.members[ALONE].weights.nets
        self.names, self.metrics = algorithm.numbers(), tuple[str, ...]()
        missing = [name for name in (natural.max_kl, natural.damping) if name not in self.names]
        if missing:
            raise ConfigError(
                f"{algorithm.name}: NaturalGradient of phase {self.phase.name!r} reads the settings {missing}, which "
                f"must be declared with per_row=True; declared are {', '.join(self.names)}"
            )
        made = partial(backend.function, compiled=backend.compiles_curvature)
        self._fixed, self._slope = made(self._fix), made(self._differentiate)
        self._product, self._measured = made(self._multiply), made(self._measure)
        self._falls_back = backend.runs_programs

    def __call__(self, columns: Columns, numbers: Mapping[str, Any], due: Array) -> Any:
        """Make one step for the agents where `due` [K] is True; returns metrics [M, K]; see `GradientStep`.

        An agent with a non-finite loss or gradient keeps its weights.
        """
        if self._falls_back:
            fall_back(self.team, self.phase, NATURAL)
            self._falls_back = False
        self.team.settle()
        ops, natural = self.backend.ops, self.natural
        numbers = numbers[ALONE]
        fixed = self._fixed(dict(columns[ALONE]), numbers)
        found = self._slope(fixed, numbers)
        gradient, metrics = found["gradient"], found["metrics"]
        norm = ops.sqrt(_dot(ops, gradient, gradient))[:, 0]
        fine = ops.isfinite(found["loss"] + norm)
        gradient = ops.where(fine[:, None], gradient, 0.0)

        def product(vector: Any) -> Any:
            return self._product(fixed, numbers, vector)

        direction = conjugate_gradient(ops, product, gradient, natural.iterations)
        curvature = _dot(ops, direction, product(direction))
        ahead = curvature > 0.0
        limit = found["limit"]
        size = ops.sqrt(2.0 * limit / ops.where(ahead, curvature, 1.0))
        searching = due & self.backend.numpy(fine) & self.backend.numpy(ahead)[:, 0]
        kl, share = self._search(fixed, numbers, -size * direction, limit, searching)
        metrics |= {"kl": kl, "line_search": share, f"grad_norm/{self.phase.name}": ops.where(fine, norm, np.nan)}
        self.metrics = tuple(metrics)
        return ops.stack(list(metrics.values()), 0)

    def _search(self, columns: Any, numbers: Any, step: Any, limit: Any, searching: Array) -> tuple[Any, Any]:
        """Change the weights by the first acceptable step of each agent; return its divergence and relative size, [K].

        step: [K, N], the largest step.  limit: [K, 1].  searching: [K] bool, the agents that may change.
        """
        backend, ops = self.backend, self.backend.ops
        start = ops.concat([self.nets[name].flat for name in self.phase.trains], -1)
        before = self._measured(columns, numbers)["loss"]
        chosen, share = start, 1.0
        kl = sizes = ops.zeros_like(before)
        for _ in range(self.natural.tries):
            if not np.count_nonzero(searching):
                break
            tried = ops.where(backend.tensor(searching)[:, None], start + share * step, chosen)
            self._assign(tried)
            now = self._measured(columns, numbers)
            taken = searching & backend.numpy((now["loss"] < before) & (now["divergence"] <= limit[:, 0]))
            accepted = backend.tensor(taken)
            chosen = ops.where(accepted[:, None], tried, chosen)
            kl, sizes = ops.where(accepted, now["divergence"], kl), ops.where(accepted, share, sizes)
            searching, share = searching & ~taken, share * self.natural.shrink
        self._assign(chosen)
        return kl, sizes

    def _assign(self, weights: Any) -> None:
        """Set the weights of the trained networks, joined to [K, N]."""
        nets = [self.nets[name] for name in self.phase.trains]
        for net, flat in zip(nets, self._split(weights), strict=True):
            net.assign(flat)
            net.discard_copies()

    def _split(self, joined: Any) -> Any:
        return self.backend.ops.split(joined, [int(self.nets[name].flat.shape[1]) for name in self.phase.trains])

    def _hyper(self, numbers: Any) -> dict[str, Any]:
        return dict(zip(self.names, self.backend.ops.unstack(numbers), strict=True))

    # functions of tensors, which a backend may trace

    def _fix(self, columns: dict[str, Any], numbers: Any) -> dict[str, Any]:
        """Return the columns that stay the same during the step: after `over_rows`, and with targets."""
        batch, ops = TensorBatch(**columns), self.backend.ops
        with self.backend.no_gradient():
            self.algorithm.over_rows(ops, batch)
            if self.phase.targets is not None:
                self.phase.targets(ops, self.nets, batch, self._hyper(numbers))
        return batch.columns

    def _differentiate(self, columns: dict[str, Any], numbers: Any) -> dict[str, Any]:
        """Return the loss [K], its gradient [K, N] and the metrics, at the current weights; and the limit of KL."""
        hyper = self._hyper(numbers)

        def loss(nets: Mapping[str, Forward], columns: Mapping[str, Any], hyper: Any) -> Any:
            value, metrics = self.phase.loss(self.backend.ops, nets, TensorBatch(**columns), hyper)
            return value, {**metrics, _LOSS: value}

        metrics, grads = self.backend.gradients(loss, self.nets, self.phase.trains, columns, hyper)
        value = metrics.pop(_LOSS)
        gradient, limit = self.backend.ops.concat(grads, -1), hyper[self.natural.max_kl]
        return {"loss": value, "gradient": gradient, "metrics": metrics, "limit": limit}

    def _multiply(self, columns: dict[str, Any], numbers: Any, vector: Any) -> Any:
        """Return (F + damping I) v for vectors [K, N], at the current weights."""
        hyper = self._hyper(numbers)
        vectors = self._split(vector)
        products = self.backend.curvature_product(
            self._divergence, self.nets, self.phase.trains, columns, hyper, vectors
        )
        return self.backend.ops.concat(products, -1) + hyper[self.natural.damping] * vector

    def _measure(self, columns: dict[str, Any], numbers: Any) -> dict[str, Any]:
        """Return the loss, with regularization, and the divergence, each [K], at the current weights."""
        hyper, batch, ops = self._hyper(numbers), TensorBatch(**columns), self.backend.ops
        with self.backend.no_gradient():
            loss, _ = self.phase.loss(ops, self.nets, batch, hyper)
            divergence = self.natural.divergence(ops, self.nets, TensorBatch(**columns), hyper)
            for name in self.phase.trains:
                if (added := self.nets[name].penalty()) is not None:
                    loss = loss + added
        return {"loss": loss, "divergence": divergence}

    def _divergence(self, nets: Mapping[str, Forward], columns: Mapping[str, Any], hyper: Any) -> Any:
        return self.natural.divergence(self.backend.ops, nets, TensorBatch(**columns), hyper)


_LOSS = "the loss itself"


def conjugate_gradient(ops: Any, product: Callable[[Any], Any], target: Any, iterations: int) -> Any:
    """Return x [K, N] with A_k x_k = target_k approximately, by the method of Hestenes and Stiefel (1952).

    product: x [K, N] -> A_k x_k [K, N], for symmetric positive definite matrices A_k.
    target: [K, N].  iterations: largest number of iterations; a row stops when it has converged.
    """
    x, residual, direction = ops.zeros_like(target), target, target
    squared = _dot(ops, residual, residual)
    enough = CONVERGED * squared
    for _ in range(iterations):
        along = product(direction)
        curvature = _dot(ops, direction, along)
        moves = ops.flag((squared > enough) & (curvature > 0.0))
        length = moves * squared / ops.where(moves > 0.0, curvature, 1.0)
        x, residual = x + length * direction, residual - length * along
        before, squared = squared, _dot(ops, residual, residual)
        direction = residual + squared / ops.where(before > 0.0, before, 1.0) * direction
    return x


def _dot(ops: Any, x: Any, y: Any) -> Any:
    """Return the scalar products of the rows of two arrays [K, N], as [K, 1]."""
    return ops.sum(x * y, -1)[:, None]
