"""The gradient noise of a minibatch, from the gradients of two parts of its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from marltrain.core.layout import map_tree
from marltrain.policies.learner.trained_team import ALONE

GRADIENT_NOISE, GRADIENT_SIGNAL, GRADIENT_ROWS = "gradient_noise", "gradient_signal", "gradient_rows"
"""Metrics of `GradientStep.measure_noise`; the first two are followed by "/" and the name of a network."""
SMALL = 1e-12
Gradients = tuple[dict[str, Any], list[Any]]
"""Metrics by name, and the gradients of the trained networks."""


def gradients_of_halves(
    ops: Any, gradients: Callable[[Mapping[str, Any]], Gradients], columns: Mapping[str, Any], networks: Sequence[str]
) -> Gradients:
    """Return the metrics and the gradients of all rows of agents alone, with the metrics of the gradient noise.

    gradients: columns of rows -> metrics [K], or [K, b] of single rows, and gradients [K, N].  networks: those that are
    trained.
    """
    result, weights = [], []
    for first in range(2):
        part = {name: map_tree(partial(_every_second, first), column) for name, column in columns[ALONE].items()}
        result.append(gradients({ALONE: part}))
        weights.append(part["weight"])
    totals, squares = [ops.sum(w, -1) for w in weights], [ops.sum(ops.square(w), -1) for w in weights]
    noise = 1.0 / (squares[0] / (totals[0] + SMALL) ** 2 + squares[1] / (totals[1] + SMALL) ** 2 + SMALL)
    both = (totals[0] > 0.0) & (totals[1] > 0.0)
    (measured, grads), (others, more) = result
    rows = {name: ops.concat([value, others[name]], -1) for name, value in measured.items() if len(value.shape) > 1}
    measured = {name: value + others[name] for name, value in measured.items() if name not in rows} | rows
    measured[GRADIENT_ROWS] = (totals[0] + totals[1]) ** 2 / (squares[0] + squares[1] + SMALL)
    for name, grad, other in zip(networks, grads, more, strict=True):
        a, b = (each / (total[:, None] + SMALL) for each, total in zip((grad, other), totals, strict=True))
        measured[f"{GRADIENT_SIGNAL}/{name}"] = ops.where(both, ops.sum(a * b, -1), 0.0)
        measured[f"{GRADIENT_NOISE}/{name}"] = ops.where(both, noise * ops.sum(ops.square(a - b), -1), 0.0)
    return measured, [grad + other for grad, other in zip(grads, more, strict=True)]


def _every_second(first: int, column: Any) -> Any:
    """Return every second row of a column [K, B, ...] from row `first` on; other tensors unchanged."""
    return column[:, first::2] if len(column.shape) > 1 else column
