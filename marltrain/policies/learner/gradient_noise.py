"""The gradient noise of a minibatch, from the gradients of two parts of its rows: every second row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from marltrain.core.layout import map_tree
from marltrain.policies.learner.trained_team import ALONE

GRADIENT_NOISE, GRADIENT_SIGNAL, GRADIENT_ROWS = "gradient_noise", "gradient_signal", "gradient_rows"
"""Metrics of `GradientStep.measure_noise`; the first two are followed by "/" and the name of a network."""
SMALL = 1e-12
Gradients = tuple[dict[str, Any], list[Any]]
"""Metrics by name, and the gradients of the trained networks."""


class Part(NamedTuple):
    """One of the two parts of the rows of K agents.

    grads: [K, N] of each trained network.  total, squares: [K], the sums of the weights and of their squares.
    """

    grads: Sequence[Any]
    total: Any
    squares: Any


def gradients_of_halves(
    ops: Any, gradients: Callable[[Mapping[str, Any]], Gradients], columns: Mapping[str, Any], networks: Sequence[str]
) -> Gradients:
    """Return the metrics and the gradients of all rows of agents alone, with the metrics of the gradient noise.

    gradients: columns of rows -> metrics [K], or [K, b] of single rows, and gradients [K, N].  networks: those that are
    trained.  Metrics of single rows are those of the first part, then those of the second.
    """
    metrics, parts = [], []
    for half in halves(columns):
        measured, grads = gradients(half)
        metrics.append(measured)
        parts.append(Part(grads, *sizes_of(ops, half[ALONE]["weight"])))
    first, second = parts
    measured = joined(metrics, lambda a, b: ops.concat([a, b], -1)) | noise_of(ops, first, second, networks)
    return measured, [grad + other for grad, other in zip(first.grads, second.grads, strict=True)]


def halves(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the columns of the two parts of the rows of agents alone; the first part has the first row."""
    return [
        {ALONE: {name: map_tree(partial(_every_second, first), column) for name, column in columns[ALONE].items()}}
        for first in range(2)
    ]


def _every_second(first: int, column: Any) -> Any:
    """Return every second row of a column [K, B, ...] from row `first` on; other tensors unchanged."""
    return column[:, first::2] if len(column.shape) > 1 else column


def sizes_of(ops: Any, weight: Any) -> tuple[Any, Any]:
    """Return the sums [K] of the weights [K, B] of rows, and of their squares."""
    return ops.sum(weight, -1), ops.sum(ops.square(weight), -1)


def joined(metrics: Sequence[Mapping[str, Any]], together: Callable[[Any, Any], Any]) -> dict[str, Any]:
    """Return the metrics [K] of all rows from those of both parts; `together` joins metrics [K, b] of single rows."""
    first, second = metrics
    return {
        name: together(value, second[name]) if len(value.shape) > 1 else value + second[name]
        for name, value in first.items()
    }


def noise_of(ops: Any, first: Part, second: Part, networks: Sequence[str]) -> dict[str, Any]:
    """Return the metrics of the gradient noise, [K] each; see `GradientStep.measure_noise`."""
    parts = first, second
    noise = 1.0 / (sum(part.squares / (part.total + SMALL) ** 2 for part in parts) + SMALL)
    both = (first.total > 0.0) & (second.total > 0.0)
    measured = {GRADIENT_ROWS: (first.total + second.total) ** 2 / (first.squares + second.squares + SMALL)}
    for name, *grads in zip(networks, first.grads, second.grads, strict=True):
        a, b = (grad / (part.total + SMALL)[:, None] for grad, part in zip(grads, parts, strict=True))
        measured[f"{GRADIENT_SIGNAL}/{name}"] = ops.where(both, ops.sum(a * b, -1), 0.0)
        measured[f"{GRADIENT_NOISE}/{name}"] = ops.where(both, noise * ops.sum(ops.square(a - b), -1), 0.0)
    return measured
