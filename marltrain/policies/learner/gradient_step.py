"""Gradient steps: one phase as a function of tensors, which a backend can trace, compile or split by rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from marltrain.core.layout import Array, map_tree
from marltrain.policies.backends.base import OPTIMIZER_NUMBERS, Backend, Forward, Network, Optimizer
from marltrain.policies.batches.row_draws import Draw
from marltrain.policies.batches.tensor_batch import TensorBatch
from marltrain.policies.interface.algorithm import Algorithm, Phase
from marltrain.policies.learner.weights import Weights

GRADIENT_NOISE, GRADIENT_SIGNAL, GRADIENT_ROWS = "gradient_noise", "gradient_signal", "gradient_rows"
"""Metrics of `GradientStep.measure_noise`; the first two are followed by "/" and the name of a network."""
SMALL = 1e-12
TOTAL, ERRORS = "the loss itself", "the rows' errors"
"""Keys of the differentiated loss and of the rows' errors [K, B] among the metrics."""


class GradientStep:
    """Training step of one phase's networks: targets, loss and gradients, clipping, optimizers.

    names: order of the agents' settings in the array `numbers`. One array is cheaper, because a compiled call has a
      cost per argument.
    metrics: the names of the values that a call returns; empty before the first call.
    measures: whether the gradient noise is measured.
    errors: [K, B], the rows' errors of the update's call; None unless a prioritized memory needs them.
    """

    errors: Array | None = None

    def __init__(
        self, phase: Phase, algorithm: Algorithm, backend: Backend, nets: Mapping[str, Network],
        optimizers: Mapping[str, Optimizer],
    ) -> None:  # fmt: skip
        """Store the parts of a learner; `nets` includes the target networks."""
        self.phase, self.algorithm, self.backend = phase, algorithm, backend
        self.nets, self.optimizers = nets, optimizers
        self.names = algorithm.numbers()
        self.metrics: tuple[str, ...] = ()
        self.measures = False
        self._numbers: Any = None
        self._extra: dict[str, Any] = {}  # those of `_numbers` that the optimizers read
        self._scaled = algorithm.prioritized  # the importance weights of a batch have a scale
        self._row_error = phase.row_error if self._scaled else None
        self._function = backend.function(self.compute)

    def __call__(self, columns: Mapping[str, Any], numbers: Any, due: Array) -> Any:
        """Make one gradient step for the agents where `due` [K] is True; returns metrics [M, K].

        The other agents do not change.  numbers: [H, K, 1], the agents' settings.
        An agent with a non-finite loss or gradient keeps its weights.
        """
        all_due = np.count_nonzero(due) == len(due)
        measured = self._function(
            dict(columns), numbers, None if all_due else self.backend.tensor(due), self.optimizer_numbers(numbers)
        )
        for name in self.phase.trains:
            self.nets[name].discard_copies()
        return measured if self._row_error is None else self._without_errors(self.backend.numpy(measured))

    def _without_errors(self, measured: Array) -> Any:
        """Keep the errors among the values [K, M + B] of a step; return its metrics [M, K]."""
        own = len(self.metrics)
        self.errors = errors = measured[:, own:]
        if self.measures:  # those of every second row come first
            self.errors = np.empty_like(errors)
            self.errors[:, ::2], self.errors[:, 1::2] = np.split(errors, [(errors.shape[1] + 1) // 2], 1)
        return self.backend.tensor(measured[:, :own].T)

    def measure_noise(self, *, on: bool) -> None:
        """Measure the gradient noise of each network from now on, or no longer.

        The gradient is then computed as the sum of those of two parts of the rows, which are every second row. Let a
        and b be the means of the gradients of their n_a and n_b rows. "gradient_signal" is a.b, an estimate of the
        squared norm |G|^2 of the exact gradient, and "gradient_noise" |a - b|^2 / (1 / n_a + 1 / n_b), an estimate of
        the trace of the covariance of a row's gradient: those of McCandlish et al. 2018 (arXiv:1812.06162, appendix
        A.1), with the parts as the small batches and all rows as the large one. Rows may have weights w: n is
        (sum w)^2 / sum w^2. "gradient_rows" is n of all rows. Noise and signal are 0 where a part has no rows.
        """
        self.measures = on
        self._function = self.backend.function(self.compute)

    def _gradients_of_parts(self, columns: Mapping[str, Any], hyper: Mapping[str, Any]) -> tuple[Any, list[Any]]:
        """Return the metrics of `_losses` and of `measure_noise`, and the gradients of all rows."""
        ops, result, weights = self.backend.ops, [], []
        for first in range(2):
            part = {name: map_tree(partial(_every_second, first), column) for name, column in columns.items()}
            result.append(self.backend.gradients(self._losses, self.nets, self.phase.trains, part, hyper))
            weights.append(part["weight"])
        totals, squares = [ops.sum(w, -1) for w in weights], [ops.sum(ops.square(w), -1) for w in weights]
        noise = 1.0 / (squares[0] / (totals[0] + SMALL) ** 2 + squares[1] / (totals[1] + SMALL) ** 2 + SMALL)
        both = (totals[0] > 0.0) & (totals[1] > 0.0)
        (measured, grads), (others, more) = result
        errors = {name: ops.concat([measured.pop(name), others[name]], -1) for name in (ERRORS,) if name in measured}
        measured = {name: value + others[name] for name, value in measured.items()} | errors
        measured[GRADIENT_ROWS] = (totals[0] + totals[1]) ** 2 / (squares[0] + squares[1] + SMALL)
        for name, grad, other in zip(self.phase.trains, grads, more, strict=True):
            a, b = (each / (total[:, None] + SMALL) for each, total in zip((grad, other), totals, strict=True))
            measured[f"{GRADIENT_SIGNAL}/{name}"] = ops.where(both, ops.sum(a * b, -1), 0.0)
            measured[f"{GRADIENT_NOISE}/{name}"] = ops.where(both, noise * ops.sum(ops.square(a - b), -1), 0.0)
        return measured, [grad + other for grad, other in zip(grads, more, strict=True)]

    def optimizer_numbers(self, numbers: Any) -> dict[str, Any]:
        """Return the numbers of OPTIMIZER_NUMBERS that are not 0 for all agents, by name, each [K, 1].

        A learner passes the same tensor until a hyperparameter changes, so the values are rarely copied from a device.
        """
        if numbers is not self._numbers:
            values, places = self.backend.numpy(numbers), {name: i for i, name in enumerate(self.names)}
            used = [name for name in OPTIMIZER_NUMBERS if name in places and np.count_nonzero(values[places[name]])]
            self._numbers, self._extra = numbers, {name: numbers[places[name]] for name in used}
        return self._extra

    def compute(self, columns: dict[str, Any], numbers: Any, due: Any, extra: dict[str, Any]) -> Any:
        """Make the step as a function of tensors; due: [K] bool, or None for all agents.  extra: optimizer numbers."""
        backend, batch = self.backend, TensorBatch(**columns)
        hyper = dict(zip(self.names, backend.ops.unstack(numbers), strict=True))
        self._over_rows(batch)
        if self.measures:
            measured, grads = self._gradients_of_parts(batch.columns, hyper)
        else:
            measured, grads = backend.gradients(self._losses, self.nets, self.phase.trains, batch.columns, hyper)
        errors = measured.pop(ERRORS, None)
        ops, (grads, norms, factor) = backend.ops, backend.clip(grads, hyper["max_grad_norm"][:, 0])
        fine = ops.isfinite(measured.pop(TOTAL) + sum(norms))
        if self.algorithm.ends_update is not None:
            going = ~self.algorithm.ends_update(measured, {name: number[:, 0] for name, number in hyper.items()})
            due = going if due is None else due & going
        for name, norm, grad in zip(self.phase.trains, norms, grads, strict=True):
            measured[f"grad_norm/{name}"] = ops.where(fine, norm, np.nan)  # reports a non-finite loss, too
            measured[f"grad_norm_clipped/{name}"] = norm * factor
            rate = hyper[self.algorithm.rate_name(name)][:, 0]
            safe, rate = ops.where(fine[:, None], grad, 0.0), ops.where(fine, rate, 0.0)
            self.optimizers[name].step(self.nets[name], safe, rate, due, **extra)
        self.metrics = tuple(measured)
        if errors is None:
            return backend.ops.stack(list(measured.values()), 0)
        return ops.concat([ops.stack(list(measured.values()), 1), errors], -1)  # compiled functions return one tensor

    def _over_rows(self, batch: TensorBatch) -> None:
        with self.backend.no_gradient():
            self.algorithm.over_rows(self.backend.ops, batch)

    def _losses(self, nets: Mapping[str, Forward], columns: Mapping[str, Any], hyper: Mapping[str, Any]) -> Any:
        """Return the loss [K] and the metrics of some rows; the sums over parts of the rows give the total."""
        backend, batch = self.backend, TensorBatch(**columns)
        if self.phase.targets is not None:
            with backend.no_gradient():
                self.phase.targets(backend.ops, nets, batch, hyper)
        loss, metrics = self.phase.loss(backend.ops, nets, batch, hyper)
        if self._row_error is not None:
            metrics[ERRORS] = self._row_error(backend.ops, batch)
        if self._scaled:
            loss = loss * batch.scale
        return loss, {**metrics, TOTAL: loss}


def _every_second(first: int, column: Any) -> Any:
    """Return every second row of a column [K, B, ...] from row `first` on; other tensors unchanged."""
    return column[:, first::2] if len(column.shape) > 1 else column


def noise_rows(weights: Sequence[Array], products: Array, norm: Array) -> Array:
    """Return the metrics of `GradientStep.measure_noise`: rows, and signal and noise of each of N networks.

    weights: those of the two parts, each [K, b].  norm: [N, K], of the gradient of all rows.
    products: [N, 2, K] float64, of the gradient of the first part: with the gradient of all rows, and with itself.
    Returns [1 + 2 N, K] float32, in the order of `noise_names`.
    """
    totals, squares = (np.array([(w.astype(np.float64) ** power).sum(-1) for w in weights]) for power in (1, 2))
    both, (first, second) = (totals > 0).all(0), np.maximum(totals, SMALL)
    with_all, own = products[:, 0], products[:, 1]
    across = with_all - own
    rest = np.square(norm.astype(np.float64)) - 2 * across - own
    distance = own / first**2 - 2 * across / (first * second) + rest / second**2
    noise = distance / ((squares / np.maximum(totals, SMALL) ** 2).sum(0) + SMALL)
    pairs = np.where(both, np.stack([across / (first * second), noise], 1), 0.0)
    rows = totals.sum(0) ** 2 / (squares.sum(0) + SMALL)
    return np.concatenate([rows[None], *pairs]).astype(np.float32)


def noise_names(networks: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the metrics of `noise_rows`; none without networks."""
    each = tuple(f"{what}/{name}" for name in networks for what in (GRADIENT_SIGNAL, GRADIENT_NOISE))
    return (GRADIENT_ROWS, *each) if each else ()


class PartialGradientStep(GradientStep):
    """The gradient step of a replica on its part of the rows; `over_rows` has run on all rows before the split."""

    def _over_rows(self, batch: TensorBatch) -> None:
        pass


class GradientPass:
    """The gradient steps of all phases on the same rows, then the step of the target networks, in a single call.

    For small networks, a call of a compiled function costs about as much as its computation
    (`benchmarks/continuous.py`).
    """

    def __init__(self, steps: Sequence[GradientStep], weights: Weights) -> None:
        """Store the steps of the phases, in order, and the weights that they train."""
        self.steps, self._weights, self._backend = list(steps), weights, weights.backend
        self.retrace()

    def retrace(self) -> None:
        """Trace the steps anew, because they measure other quantities."""
        self._function = self._backend.function(self._pass)

    def __call__(
        self, columns: Mapping[str, Any], weight: Array, numbers: Any, active: Array, passes: Array, share: Array,
        draw: Callable[[Draw, Array], dict[str, Any]],
    ) -> Iterator[tuple[GradientStep, Array, Array]]:  # fmt: skip
        """Make the pass; return an iterator over (step, metrics [M, K], due [K] bool) of the phases that were due.

        weight: [K, B], the weights of the rows.  numbers: see `GradientStep`.  active: [K] bool.  passes: [K], numbers
        of earlier passes, see `Phase.every`.  share: [K], see `Weights.update_targets`.  draw: (`Phase.draw`, weights
        [K, B]) -> random numbers of the rows.
        """
        due: dict[str, Array] = {}
        rows: dict[str, Any] = {}
        drawn: dict[str, dict[str, Any]] = {}
        for step in self.steps:
            name, every = step.phase.name, step.phase.every
            learning = active if every == 1 else active & (passes % every == 0)
            if not (count := np.count_nonzero(learning)):
                continue
            everyone = count == len(learning)
            due[name], rows[name] = learning, None if everyone else self._backend.tensor(learning)
            if step.phase.draw is not None:
                drawn[name] = draw(step.phase.draw, weight if everyone else weight * learning[:, None])
        if not due:
            self._weights.update_targets(share)
            return
        moved = self._backend.tensor(share.astype(np.float32)) if np.count_nonzero(share) else None
        extra = self.steps[0].optimizer_numbers(numbers)
        measured = self._backend.numpy(self._function(dict(columns), drawn, numbers, rows, moved, extra))
        start = 0
        for step in self.steps:
            if step.phase.name in due:
                stop = start + len(step.metrics)
                yield step, measured[start:stop], due[step.phase.name]
                start = stop

    def _pass(
        self, columns: dict[str, Any], drawn: Mapping[str, dict[str, Any]], numbers: Any, due: Mapping[str, Any],
        share: Any, extra: dict[str, Any],
    ) -> Any:  # fmt: skip
        measured = [
            step.compute({**columns, **drawn.get(step.phase.name, {})}, numbers, due[step.phase.name], extra)
            for step in self.steps
            if step.phase.name in due
        ]
        if share is not None:
            self._weights.move_targets(share)
        return self._backend.ops.concat(measured, 0)


class GradientSteps:
    """The gradient steps of a learner, one per phase, in order, in the learner's process; see also `Replicas`.

    plannable: whether compiled code can make updates with them between batch steps; see `CompiledUpdates`.
    solving: the steps of the phases that solve for a natural gradient; iteration leaves them out.
    at_once: whether a single call makes all gradient steps over a rollout: (columns, dealt, numbers, due [P, K])
      -> metrics [P, M, K].
    whole: makes all gradient steps of an off-policy pass and moves the target networks in a single call, or None.
    """

    plannable = False
    at_once = False
    whole: GradientPass | None = None

    def __init__(self, steps: Sequence[Any], solving: Sequence[Any] = ()) -> None:
        """Store the function of each phase, (columns, numbers, due) -> metrics [M, K], or the one of `at_once`."""
        self.steps, self.solving = list(steps), list(solving)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the functions of the phases that follow a gradient."""
        return iter(self.steps)

    def measure_noise(self, *, on: bool) -> None:
        """Measure the gradient noise in all phases from now on, or no longer; see `GradientStep.measure_noise`."""
        for step in self:
            step.measure_noise(on=on)
        if self.whole is not None:
            self.whole.retrace()

    def errors(self) -> Array | None:
        """Return the rows' errors [K, B] of the update's gradient pass, from the first due phase that gives any.

        None if there is none, or without a prioritized memory.
        """
        return next((step.errors for step in self.steps if step.errors is not None), None)

    def begin(self, weights: Weights) -> None:
        """Prepare the gradient steps of an update; errors of earlier rows are forgotten."""
        for step in self.steps:
            step.errors = None

    def networks(self, nets: Mapping[str, Network]) -> Mapping[str, Forward]:
        """Return the networks that `Algorithm.prepare` uses."""
        return nets

    def end(self, weights: Weights) -> None:
        """Copy the results of an update's gradient steps into the weights."""

    def update_targets(self, weights: Weights, share: Array) -> None:
        """Move the target networks towards the online networks by `share` [K]."""
        weights.update_targets(share)

    def outdated(self) -> None:
        """Mark the state of the gradient steps as outdated, because the learner has loaded an agent."""

    def close(self) -> None:
        """End the started processes or threads; a later update starts them again."""


class MeanMetrics:
    """Running means of metrics [K] over gradient steps; each agent's mean covers only its active steps."""

    def __init__(self, backend: Backend) -> None:
        """Start without values."""
        self.backend = backend
        self.seen: dict[Any, list[tuple[Any, Array]]] = {}

    def add(self, step: Any, values: Any, active: Array) -> None:
        """Add the metrics [M, K] of one step, a tensor or an array; only agents where `active` [K] is True count."""
        self.seen.setdefault(step, []).append((values, active))

    def last(self) -> dict[str, Array]:
        """Return the metrics [K] of each phase's last step."""
        return {
            name: values
            for step, seen in self.seen.items()
            for name, values in zip(step.metrics, self._array(seen[-1][0]), strict=True)
        }

    def result(self) -> dict[str, Array]:
        """Return the means [K]; NaN for an agent without an active step."""
        means_by_name: dict[str, Array] = {}
        for step, seen in self.seen.items():
            if len(seen) == 1 and np.count_nonzero(seen[0][1]) == len(seen[0][1]):  # the usual off-policy case
                means_by_name.update(zip(step.metrics, self._array(seen[0][0]).astype(np.float64), strict=True))
                continue
            values = np.stack([self._array(value) for value, _ in seen]).astype(np.float64)
            active = np.stack([active for _, active in seen])[:, None]
            total, count = np.where(active, values, 0.0).sum(0), active.sum(0)
            means = np.where(count > 0, total / np.maximum(count, 1), np.nan)
            means_by_name.update(zip(step.metrics, means, strict=True))
        return means_by_name

    def _array(self, values: Any) -> Array:
        return values if isinstance(values, np.ndarray) else self.backend.numpy(values)

    def skipped(self, learn: Array) -> dict[str, Array]:
        """Return the agents that learn, but had no active step of a phase: metric name -> [K] bool.

        The phase is delayed (`Phase.every`), or the agent has no row in the batch.
        """
        missed: dict[str, Array] = {}
        for step, seen in self.seen.items():
            absent = learn
            for _, active in seen:
                absent = absent & ~active
            if np.count_nonzero(absent):
                missed.update(dict.fromkeys(step.metrics, absent))
        return missed
