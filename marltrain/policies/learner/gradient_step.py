"""GradientStep: one phase as a function of tensors, which a backend can trace, compile or split by rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import numpy as np

from marltrain.core.layout import Array
from marltrain.policies.backends.base import Forward
from marltrain.policies.batches.tensor_batch import TensorBatch
from marltrain.policies.learner.gradient_noise import gradients_of_halves
from marltrain.policies.learner.trained_team import ALONE, OF_TEAM, Columns, TrainedTeam
from marltrain.policies.optimizers import OPTIMIZER_NUMBERS

TOTAL, ERRORS = "the loss itself", "the rows' errors"
"""Keys of the differentiated loss and of the rows' errors [K, B] among the metrics."""


class Computing(Protocol):
    """The operations by which a loss is computed: those of a backend, or those of a tape.

    ops: see `marltrain.policies.ops.Ops`.
    """

    @property
    def ops(self) -> Any:
        """The operations."""

    def no_gradient(self) -> AbstractContextManager[Any]:
        """Return a context in which no gradients are recorded."""


class Clipped(NamedTuple):
    """Gradients after clipping.

    grads, norms: [K_i, N] and [K_i] of each trained network; norms are those before clipping.
    factors, fine: of each member: the scale of its gradients, and whether they and the loss are finite.
    """

    grads: list[Any]
    norms: list[Any]
    factors: dict[str, Any]
    fine: dict[str, Any]


class GradientStep:
    """Training step of one phase of a team: targets, loss and gradients, clipping, optimizers.

    number: of the phase.  trains: the names of the trained networks of the team.
    metrics: the names of the values that a call returns; empty before the first call.
    measures: whether the gradient noise is measured.
    errors: [K, B], the rows' errors of the update's call; None unless a prioritized memory needs them.
    """

    errors: Array | None = None

    def __init__(self, number: int, team: TrainedTeam) -> None:
        """Store the agents that are trained."""
        self.number, self.team, self.backend = number, team, team.backend
        self.phase = team.algorithm.phases[number]
        self.trains = team.trained_by(self.phase)
        self.metrics: tuple[str, ...] = ()
        self.measures = False
        self._read: dict[str, tuple[Any, dict[str, Any]]] = {}  # member -> numbers, and those that optimizers read
        self._scaled = team.algorithm.prioritized  # the importance weights of a batch have a scale
        self._row_error = self.phase.row_error if self._scaled else None
        self._function = self.backend.function(self.compute)

    def __call__(self, columns: Columns, numbers: Mapping[str, Any], due: Array) -> Any:
        """Make one gradient step for the agents where `due` [K] is True; returns metrics [M, K].

        The other agents do not change.  numbers: member -> [H, K_i, 1], the agents' settings.
        After a loss or a gradient that is not finite, no weight of an agent alone changes, and none of a team with one
        loss.
        """
        copies = not self.backend.shares_memory  # programs change arrays, the framework tensors
        if copies:
            self.team.settle()
        measured = self._function(
            {key: dict(own) for key, own in columns.items()}, dict(numbers), self.due(due),
            self.optimizer_numbers(numbers),
        )  # fmt: skip
        for name in self.trains if copies else ():
            self.team.nets[name].discard_copies()
            self.team.optimizers[name].discard_copies()
        return measured if self._row_error is None else self._without_errors(self.backend.numpy(measured))

    def _without_errors(self, measured: Array) -> Any:
        """Keep the errors among the values [K, M + B] of a step; return its metrics [M, K]."""
        own = len(self.metrics)
        self.errors = errors = measured[:, own:]
        if self.measures:  # those of every second row come first
            self.errors = np.empty_like(errors)
            self.errors[:, ::2], self.errors[:, 1::2] = np.split(errors, [(errors.shape[1] + 1) // 2], 1)
        metrics: Array = measured[:, :own].T
        return metrics

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

    def due(self, due: Array) -> dict[str, Any]:
        """Return the agents of each member that learn, [K_i] bool arguments, from [K] bool; None: all of them."""
        result: dict[str, Any] = {OF_TEAM: None}
        for key, own in self.team.by_member(due).items():
            result[key] = None if np.count_nonzero(own) == own.size else self.backend.argument(own)
        return result

    def optimizer_numbers(self, numbers: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Return the numbers of OPTIMIZER_NUMBERS of each member that are not 0 for all agents, by name, each [K_i, 1].

        A learner passes the same tensors until a hyperparameter changes, so the values are rarely copied from a device.
        """
        for key, own in numbers.items():
            if key not in self._read or own is not self._read[key][0]:
                names = {name: i for i, name in enumerate(self.team.members[key].algorithm.numbers())}
                values = self.backend.numpy(own)
                used = [n for n in OPTIMIZER_NUMBERS if n in names and np.count_nonzero(values[names[n]])]
                self._read[key] = own, {name: own[names[name]] for name in used}
        read = {key: own for key, (_, own) in self._read.items()}
        return {**read, OF_TEAM: {name: number[:1] for name, number in read[ALONE].items()}}

    def compute(self, columns: Columns, numbers: Mapping[str, Any], due: Mapping[str, Any], extra: Any) -> Any:
        """Make the step as a function of tensors.

        due: see the method of this name.  extra: see `optimizer_numbers`.
        """
        ops, hyper = self.backend.ops, self.team.hyper(numbers)
        measured, grads = self._gradients(self._over_rows(columns), hyper)
        errors, loss = measured.pop(ERRORS, None), measured.pop(TOTAL)
        clipped = self._clipped(grads, loss, hyper, due)
        due = self.going(measured, hyper, due)
        for name, grad in zip(self.trains, clipped.grads, strict=True):
            key, network = name.split("/")
            rate, fine = self._rate(key, network, hyper), clipped.fine[key]
            safe, rate = ops.where(fine[:, None], grad, 0.0), ops.where(fine, rate, 0.0)
            self.team.optimizers[name].step(self.team.nets[name], safe, rate, due[key], **extra[key])
        measured |= self.norms(ops, clipped)
        self.metrics = tuple(measured)
        if errors is None:
            return ops.stack(self._of_all(list(measured.values())), 0)
        return ops.concat([ops.stack(list(measured.values()), 1), errors], -1)  # compiled functions return one tensor

    def _over_rows(self, columns: Columns) -> Columns:
        if self.team.is_joint:
            return columns
        batch = TensorBatch(**columns[ALONE])
        with self.backend.no_gradient():
            self.team.algorithm.over_rows(self.backend.ops, batch)
        return {ALONE: batch.columns}

    def _gradients(self, columns: Columns, hyper: Any) -> tuple[dict[str, Any], list[Any]]:
        def gradients(columns: Any) -> tuple[dict[str, Any], list[Any]]:
            return self.backend.gradients(self._losses, self.team.nets, self.trains, columns, hyper)

        if self.measures:
            return gradients_of_halves(self.backend.ops, gradients, columns, self.phase.trains)
        return gradients(columns)

    def _losses(self, nets: Mapping[str, Forward], columns: Columns, hyper: Mapping[str, Mapping[str, Any]]) -> Any:
        return self.losses(self.backend, nets, columns, hyper)

    def losses(self, computed_by: Computing, nets: Mapping[str, Any], columns: Columns, hyper: Any) -> Any:
        """Return the loss, [1] or [K], and the metrics of some rows; the sums over parts of the rows give the total.

        computed_by: the backend, or a tape that records the operations.
        """
        ops = computed_by.ops
        given = self.team.arguments(ops, nets, columns, hyper)
        if self.phase.targets is not None:
            with computed_by.no_gradient():
                self.phase.targets(ops, *given)
        loss, metrics = self.phase.loss(ops, *given)
        if self._row_error is not None:
            metrics[ERRORS] = self._row_error(ops, given[1])
        if self._scaled and not self.team.is_joint:
            loss = loss * given[1].scale
        joined = {
            name: ops.concat(value, 0) if isinstance(value, list) else value
            for name, value in {**metrics, TOTAL: loss}.items()
        }
        return joined[TOTAL], joined

    def _clipped(self, grads: Sequence[Any], loss: Any, hyper: Mapping[str, Any], due: Mapping[str, Any]) -> Clipped:
        """Clip the gradients of each agent by its own norm, or those of a team with one loss by their common norm.

        loss: [K] of each agent, or [1].
        """
        if self.team.is_joint:
            return self._clipped_in_team(grads, loss, hyper, due)
        clipped, norms, factor = self.backend.clip(list(grads), hyper[ALONE]["max_grad_norm"][:, 0])
        return Clipped(clipped, list(norms), {ALONE: factor}, {ALONE: self.backend.ops.isfinite(loss + sum(norms))})

    def _clipped_in_team(self, grads: Sequence[Any], loss: Any, hyper: Any, due: Mapping[str, Any]) -> Clipped:
        ops, keys = self.backend.ops, [name.split("/")[0] for name in self.trains]
        grads = [
            grad if due[key] is None else ops.where(due[key][:, None], grad, 0.0)
            for key, grad in zip(keys, grads, strict=True)
        ]
        squares = [ops.sum(ops.square(grad), -1) for grad in grads]
        factors, fine = self.factors(ops, squares, loss, hyper)
        scaled = [grad * factors[key][:, None] for key, grad in zip(keys, grads, strict=True)]
        return Clipped(scaled, [ops.sqrt(square) for square in squares], factors, fine)

    def factors(
        self, ops: Any, squares: Sequence[Any], loss: Any, hyper: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return `Clipped.factors` and `Clipped.fine`, [K_i] of each member, or [1] of a team with one loss.

        squares: [K_i], the square of the gradient's norm of each trained network.  loss: see `_clipped`.
        """
        own: dict[str, Any] = {}  # (a compiler cannot trace dict[str, Any]())
        for name, square in zip(self.trains, squares, strict=True):
            key = name.split("/")[0]
            own[key] = own.get(key, 0.0) + square
        if self.team.is_joint and not self.phase.apart:
            norm = ops.sqrt(sum(ops.sum(square, -1) for square in own.values()))
            norms, limits = dict.fromkeys(own, norm), dict.fromkeys(own, hyper[ALONE]["max_grad_norm"][:1, 0])
            losses = dict.fromkeys(own, loss)
        else:
            norms = {key: ops.sqrt(square) for key, square in own.items()}
            limits = {key: hyper[key]["max_grad_norm"][:, 0] for key in own}
            parts = ops.split(loss, self.team.agents) if self.team.is_joint else [loss]
            losses = dict(zip(own, parts, strict=True))
        factors = {key: ops.clip(limits[key] / (norm + 1e-6), 0.0, 1.0) for key, norm in norms.items()}
        return factors, {key: ops.isfinite(losses[key] + norm) for key, norm in norms.items()}

    def going(self, measured: Mapping[str, Any], hyper: Mapping[str, Any], due: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return `due` without the agents whose update ends here, see `Algorithm.ends_update`."""
        ends = self.team.algorithm.ends_update
        if ends is None:
            return due
        going = ~ends(measured, {name: number[:, 0] for name, number in hyper[ALONE].items()})
        return {**due, ALONE: going if due[ALONE] is None else due[ALONE] & going}

    def _rate(self, key: str, network: str, hyper: Mapping[str, Any]) -> Any:
        """Return the learning rates of a network, [K_i], or [1] of the team: that of its first agent."""
        member, name = self.rate_of(key, network)
        rate = hyper[member][name][:, 0]
        return rate[:1] if key == OF_TEAM else rate

    def rate_of(self, key: str, network: str) -> tuple[str, str]:
        """Return the member and the setting that give the learning rates of a network of a member, or of the team."""
        member = ALONE if key == OF_TEAM else key
        return member, self.team.members[member].algorithm.rate_name(network)

    def norms(self, ops: Any, clipped: Clipped) -> dict[str, Any]:
        """Return the metrics of the gradients' norms of each network of a phase, before and after clipping."""
        measured = {}
        for network in (*self.phase.trains, *self.phase.team_trains):
            before, after = [], []
            for name, norm in zip(self.trains, clipped.norms, strict=True):
                key, own_name = name.split("/")
                if own_name == network:
                    before.append(ops.where(clipped.fine[key], norm, np.nan))  # reports a non-finite loss, too
                    after.append(norm * clipped.factors[key])
            measured[f"grad_norm/{network}"] = _joined(ops, before)
            measured[f"grad_norm_clipped/{network}"] = _joined(ops, after)
        return measured

    def _of_all(self, values: list[Any]) -> list[Any]:
        """Return metrics [K] of all agents; those of a team are [1]."""
        if not self.team.is_joint:
            return values
        like = self.backend.ops.tensor_like
        return [value + like(value, [0.0] * self.team.num_agents) for value in values]


class PartialGradientStep(GradientStep):
    """The gradient step of a replica on its part of the rows; `over_rows` has run on all rows before the split."""

    def _over_rows(self, columns: Columns) -> Columns:
        return columns


def _joined(ops: Any, parts: Sequence[Any]) -> Any:
    return parts[0] if len(parts) == 1 else ops.concat(parts, 0)
