"""Means of the metrics of gradient steps over an update."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.policies.backends.base import Backend
from marltrain.policies.backends.started import Started


class MeanMetrics:
    """Running means of metrics [K] over gradient steps; each agent's mean covers only its active steps."""

    def __init__(self, backend: Backend) -> None:
        """Start without values."""
        self.backend = backend
        self.seen: dict[Any, list[tuple[Any, Array]]] = {}  # step -> metrics and active agents [n, K] of n steps
        self._under_way: list[tuple[Started, list[tuple[Any, int]]]] = []  # passes, and the places of their steps

    def add(self, step: Any, values: Any, active: Array) -> None:
        """Add the metrics [M, K] of one step, a tensor or an array; only agents where `active` [K] is True count."""
        self.seen.setdefault(step, []).append((values, active[None]))

    def add_pass(self, started: Started | None, made: Sequence[tuple[Any, Array]]) -> None:
        """Add the metrics of the steps of a pass that has been started; they are read by `last` and `result`.

        made: (step, active [K] bool), whose metrics [M, K] follow one another; none without a pass.
        """
        if started is not None:
            self._under_way.append((started, [(step, len(self.seen.get(step, ()))) for step, _ in made]))
            for step, active in made:
                self.add(step, None, active)

    def add_steps(self, step: Any, values: Array, active: Array) -> None:
        """Add the metrics [P, M, K] of P steps; those without an `active` agent, [P, K], are left out."""
        made = active.any(1)
        if np.count_nonzero(made):
            self.seen.setdefault(step, []).append((values[made], active[made]))

    def _read(self) -> None:
        """Read the metrics that are still on the device: those of passes, and all others at once."""
        for started, places in self._under_way:
            values, start = started.result(), 0
            for step, i in places:
                end = start + len(step.metrics)
                self.seen[step][i] = values[start:end], self.seen[step][i][1]
                start = end
        self._under_way = []
        tensors = {
            f"{n} {i}": values
            for n, seen in enumerate(self.seen.values())
            for i, (values, _) in enumerate(seen)
            if not isinstance(values, np.ndarray)
        }
        if tensors:
            arrays = self.backend.arrays(tensors)
            for n, (step, seen) in enumerate(self.seen.items()):
                self.seen[step] = [(arrays.get(f"{n} {i}", v), active) for i, (v, active) in enumerate(seen)]

    def last(self) -> dict[str, Array]:
        """Return the metrics [K] of each phase's last step."""
        self._read()
        return {
            name: values
            for step, seen in self.seen.items()
            for name, values in zip(step.metrics, self._of_steps(*seen[-1])[-1], strict=True)
        }

    def result(self) -> dict[str, Array]:
        """Return the means [K]; NaN for an agent without an active step."""
        self._read()
        means_by_name: dict[str, Array] = {}
        for step, seen in self.seen.items():
            one, active = seen[0]
            if len(seen) == len(active) == 1 and np.count_nonzero(active) == active.size:  # the usual off-policy case
                means = self._of_steps(one, active)[0].astype(np.float64)
                means_by_name.update(zip(step.metrics, means, strict=True))
                continue
            values = np.concatenate([self._of_steps(*each) for each in seen]).astype(np.float64)
            active = np.concatenate([active for _, active in seen])[:, None]
            total, count = np.where(active, values, 0.0).sum(0), active.sum(0)
            means = np.where(count > 0, total / np.maximum(count, 1), np.nan)
            means_by_name.update(zip(step.metrics, means, strict=True))
        return means_by_name

    def _of_steps(self, values: Array, active: Array) -> Array:
        """Return metrics that have been read as an array [n, M, K]."""
        return values.reshape(len(active), -1, active.shape[1])

    def skipped(self, learn: Array) -> dict[str, Array]:
        """Return the agents that learn, but had no active step of a phase: metric name -> [K] bool.

        The phase is delayed (`Phase.every`), or the agent has no row in the batch.
        """
        missed: dict[str, Array] = {}
        for step, seen in self.seen.items():
            absent = learn
            for _, active in seen:
                absent = absent > (active[0] if len(active) == 1 else active.any(0))
            if np.count_nonzero(absent):
                missed.update(dict.fromkeys(step.metrics, absent))
        return missed
