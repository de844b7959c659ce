"""Means of the metrics of gradient steps over an update."""

from __future__ import annotations

from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.policies.backends.base import Backend


class MeanMetrics:
    """Running means of metrics [K] over gradient steps; each agent's mean covers only its active steps."""

    def __init__(self, backend: Backend) -> None:
        """Start without values."""
        self.backend = backend
        self.seen: dict[Any, list[tuple[Any, Array]]] = {}  # step -> metrics and active agents [n, K] of n steps

    def add(self, step: Any, values: Any, active: Array) -> None:
        """Add the metrics [M, K] of one step, a tensor or an array; only agents where `active` [K] is True count."""
        self.seen.setdefault(step, []).append((values, active[None]))

    def add_steps(self, step: Any, values: Array, active: Array) -> None:
        """Add the metrics [P, M, K] of P steps; those without an `active` agent, [P, K], are left out."""
        made = active.any(1)
        if np.count_nonzero(made):
            self.seen.setdefault(step, []).append((values[made], active[made]))

    def last(self) -> dict[str, Array]:
        """Return the metrics [K] of each phase's last step."""
        return {
            name: values
            for step, seen in self.seen.items()
            for name, values in zip(step.metrics, self._of_steps(*seen[-1])[-1], strict=True)
        }

    def result(self) -> dict[str, Array]:
        """Return the means [K]; NaN for an agent without an active step."""
        means_by_name: dict[str, Array] = {}
        for step, seen in self.seen.items():
            values = np.concatenate([self._of_steps(*each) for each in seen]).astype(np.float64)
            active = np.concatenate([active for _, active in seen])[:, None]
            if len(values) == 1 and np.count_nonzero(active) == active.size:  # the usual off-policy case
                means_by_name.update(zip(step.metrics, values[0], strict=True))
                continue
            total, count = np.where(active, values, 0.0).sum(0), active.sum(0)
            means = np.where(count > 0, total / np.maximum(count, 1), np.nan)
            means_by_name.update(zip(step.metrics, means, strict=True))
        return means_by_name

    def _of_steps(self, values: Any, active: Array) -> Array:
        """Return metrics as an array [n, M, K]."""
        values = values if isinstance(values, np.ndarray) else self.backend.numpy(values)
        return np.reshape(values, (len(active), -1, active.shape[1]))

    def skipped(self, learn: Array) -> dict[str, Array]:
        """Return the agents that learn, but had no active step of a phase: metric name -> [K] bool.

        The phase is delayed (`Phase.every`), or the agent has no row in the batch.
        """
        missed: dict[str, Array] = {}
        for step, seen in self.seen.items():
            absent = learn
            for _, active in seen:
                absent = absent & ~active.any(0)
            if np.count_nonzero(absent):
                missed.update(dict.fromkeys(step.metrics, absent))
        return missed
