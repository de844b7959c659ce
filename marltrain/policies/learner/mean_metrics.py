"""Means of the metrics of an update."""

from __future__ import annotations

from typing import Any

import numpy as np

from marltrain.layout import Array
from marltrain.policies.learner.gradient_step import GradientStep


class MeanMetrics:
    """Running means of metrics [K] over gradient passes; each agent's mean covers only its active passes."""

    def __init__(self, backend: Any) -> None:
        """Start without values."""
        self.backend = backend
        self.seen: dict[GradientStep, list[tuple[Any, Array]]] = {}

    def add(self, made_by: GradientStep, values: Any, active: Array) -> None:
        """Add the metrics [M, K] of one pass; only agents where `active` [K] is True count."""
        self.seen.setdefault(made_by, []).append((values, active))

    def result(self) -> dict[str, Array]:
        """Return the means [K]; NaN for an agent without an active pass."""
        made: dict[str, Array] = {}
        for one, seen in self.seen.items():
            if len(seen) == 1 and np.count_nonzero(seen[0][1]) == len(seen[0][1]):  # the usual off-policy case
                made.update(zip(one.metrics, self.backend.numpy(seen[0][0]).astype(np.float64), strict=True))
                continue
            values = np.stack([self.backend.numpy(value) for value, _ in seen]).astype(np.float64)
            active = np.stack([active for _, active in seen])[:, None]
            total, count = np.where(active, values, 0.0).sum(0), active.sum(0)
            means = np.where(count > 0, total / np.maximum(count, 1), np.nan)
            made.update(zip(one.metrics, means, strict=True))
        return made
