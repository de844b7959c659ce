"""Arguments of the compiled gradient step of Q-values."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.jit.compiling import compiled, program
from marltrain.jit.views import address_of
from marltrain.policies.backends.base import Backend, Optimizer, StackedNetwork
from marltrain.policies.compiled.array_checks import check_places, place_of
from marltrain.policies.compiled.q_kernel import METRICS, NORM, Q_STEP, step, step_at, update_targets
from marltrain.policies.compiled.q_networks import ROWS, QNetworks
from marltrain.policies.interface.algorithm import Algorithm
from marltrain.policies.learner.gradient_noise import noise_names, noise_rows
from marltrain.policies.learner.gradient_steps import GradientSteps
from marltrain.policies.learner.trained_team import ALONE, Columns
from marltrain.policies.optimizers import OPTIMIZER_NUMBERS

_COLUMNS = (*ROWS, "reward", "discount", "weight")


class QStep:
    """A `GradientStep` of Q-values in compiled code, in place on the arrays of the framework.

    record: [1] Q_STEP, the arguments of the kernel.  metrics: the names of the metrics.
    indices: field of the record -> index of the hyperparameter that it holds.
    errors: [K, B] float32, the rows' errors of the last step; None unless a prioritized memory needs them.
    """

    errors: Array | None = None

    def __init__(
        self, algorithm: Algorithm, backend: Backend, nets: Mapping[str, StackedNetwork],
        optimizers: Mapping[str, Optimizer], *, double: bool,
    ) -> None:  # fmt: skip
        """Write the constant fields of `record` for a phase that trains one network; see `gradient_steps.can_learn`.

        double: whether the online network chooses the next action, instead of the target network.
        """
        self.number, (self.phase,), self.backend = 0, algorithm.phases, backend
        self.names, (name,) = algorithm.numbers(), self.phase.trains
        self.name = name
        self.metrics: tuple[str, ...] = ("loss/total", "q_mean", f"grad_norm/{name}", f"grad_norm_clipped/{name}")
        self.measures = False
        self.record = np.zeros(1, Q_STEP)
        record = self.record[0]
        self._networks = QNetworks(record, nets, optimizers, name, algorithm.settings.optimizer, backend, double=double)
        self.agents, self.rows = self._networks.agents, 0
        self.prioritized = algorithm.prioritized
        read = {"limit": "max_grad_norm", "rate": algorithm.rate_name(name), **{n: n for n in OPTIMIZER_NUMBERS}}
        self.indices = {field: self.names.index(hyper) for field, hyper in read.items()}
        self._measured = np.zeros((METRICS, self.agents), np.float32)
        self.address = address_of(self.record)

    def __call__(self, columns: Columns, numbers: Mapping[str, Any], due: Array) -> Any:
        """Make a gradient step; see `GradientStep`."""
        own = columns[ALONE]
        arrays = {n: None if own[n] is None else self.backend.numpy(own[n]) for n in _COLUMNS}
        hyper, weight, order = self.backend.numpy(numbers[ALONE]), arrays["weight"], None
        if self.measures and weight is not None:
            order = parts_in_order(weight.shape[1])
            arrays = {n: None if array is None else array.take(order, 1) for n, array in arrays.items()}
        self.set_batch(due, **arrays)
        if self.prioritized:
            scale = self.backend.numpy(own["scale"])
            self.set_errors(scale, np.zeros((self.agents, self.rows), np.float32))
        check_places("actions", arrays["action"], self._networks.choices)
        record = self.record[0]
        for field, index in self.indices.items():
            record[field] = address_of(hyper[index])
        record["metrics"] = address_of(self._measured)
        _step()(self.address)
        measured = self._measured.copy()
        if order is not None and weight is not None:
            if self.errors is not None:
                self.errors = self.errors.take(np.argsort(order), 1)
            parts = weight[:, ::2], weight[:, 1::2]
            measured = np.concatenate([measured, noise_rows(parts, self._products, measured[None, NORM])])
        return self.backend.tensor(measured)

    def measure_noise(self, *, on: bool) -> None:
        """See `GradientStep`; the kernel's parts are halves, so every second row is placed first."""
        self.measures = on
        self._part = np.zeros(int(self.record[0]["size"]), np.float32)
        self._products = np.zeros((1, 2, self.agents))
        self.record[0]["part"] = address_of(self._part) if on else 0
        self.record[0]["products"] = address_of(self._products)
        self.metrics = (*self.metrics[:METRICS], *noise_names([self.name] if on else []))

    def set_batch(self, due: Array, **columns: Array | None) -> None:
        """Write which agents learn, [K] bool, and the addresses of the minibatch's columns, [K, B, ...]."""
        reward = columns["reward"]
        rows = 0 if reward is None or reward.ndim != 2 else reward.shape[1]
        shape = self.agents, rows
        places = {"reward": place_of("reward", reward, np.float32, shape), **self._networks.places(columns, rows)}
        for name, field in (("discount", "discount"), ("weight", "share")):
            places[field] = place_of(name, columns[name], np.float32, shape)
        if rows != self.rows:
            self._networks.allocate(rows, targets=rows)
            self.rows = rows
        self._networks.due[...] = due
        for field, place in places.items():
            self.record[field] = place

    def set_errors(self, scale: Array, errors: Array) -> None:
        """Write the addresses of the losses' factors [K] float32, and of the errors to write, [K, B] float32."""
        self.errors, self._kept = errors, (errors, scale)  # compiled code has only addresses
        self.record["scale"], self.record["errors"] = address_of(scale), address_of(errors)

    def update_targets(self, share: Array) -> None:
        """Move the target networks towards the online networks by shares [K]."""
        shares = share.astype(np.float32)
        _update_targets()(self.address, address_of(shares))


def parts_in_order(rows: int) -> Array:
    """Return the numbers of the rows, [B] int64: every second one, then the others."""
    numbers = np.arange(rows)
    return np.concatenate([numbers[::2], numbers[1::2]])


class QSteps(GradientSteps):
    """The single gradient step of a learner in compiled code, which also updates the target networks."""

    plannable = True
    steps: list[QStep]

    def update_targets(self, share: Array, of_team: float = 0.0) -> None:
        """See `GradientSteps`."""
        self.steps[0].update_targets(share)


@compiled
def step_once(address: int) -> None:
    """Make the gradient step of the Q_STEP at an address."""
    step(step_at(address))


@compiled
def update_targets_once(address: int, shares: int) -> None:
    """Update the target networks of the Q_STEP at an address."""
    update_targets(step_at(address), shares)


@functools.cache
def _step() -> Any:
    return program(step_once, Q_STEP)


@functools.cache
def _update_targets() -> Any:
    return program(update_targets_once, Q_STEP)
