"""The observations that losses get, in compiled code: normalized by running statistics; see `normalization`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import float32, float64

from marltrain.jit.compiling import compiled
from marltrain.jit.views import bools, f32, f64, i64, record_at
from marltrain.policies.batches.normalization import CLIP, EPSILON, SAME
from marltrain.policies.compiled.sums import sum_in_pairs

_ONE = (
    "agents", "rows", "width",  # K, B, V
    "columns", "column",  # number of columns to normalize, and their addresses, int64: each [K, B, V] float32
    "weights",  # [K, B] float32, of the rows; 0: all are 1
    "mean", "variance", "count",  # [K, V], [K, V] and [K] float64, of `RunningStatistics`
    "high", "rest", "deviation",  # [K, V] float32, those of `RunningStatistics.digits`
    "share", "terms", "moments",  # [B], [B] and [2, V] float64, work space
)  # fmt: skip
OBSERVING = np.dtype([(name, np.int64) for name in _ONE])
"""Arguments of `observe`: numbers and addresses."""


@compiled
def observe(address: int, learn: int) -> None:
    """Normalize the columns in place by the statistics so far; then add the rows of the first one to the statistics.

    Only rows of agents that learn are added.  address: of an OBSERVING.  learn: address of [K] bool.
    """
    o = record_at(address, OBSERVING)
    learns, columns = bools(learn, o.agents), i64(o.column, o.columns)
    for k in range(o.agents):
        start = 4 * k * o.rows * o.width
        added = measure(o, k, columns[0] + start) if learns[k] else 0.0
        for column in columns:
            normalize(o, k, column + start)
        if added > 0.0:
            add_rows(o, k, added)


@compiled
def measure(o: Any, k: int, column: int) -> Any:
    """Write mean and variance of an agent's rows; return the sum of their weights.  column: address of the rows.

    The sums are rounded as in `RunningStatistics.update`: numpy adds numbers in a row of memory in pairs, and the rows
    of a matrix in order.
    """
    share, terms, width = f64(o.share, o.rows), f64(o.terms, o.rows), o.width
    given, moments = f32(column, o.rows * width), f64(o.moments, 2 * width)
    for i in range(o.rows):
        share[i] = float64(f32(o.weights, o.agents * o.rows)[k * o.rows + i]) if o.weights else 1.0
    added = sum_in_pairs(share)
    if added > 0.0:
        for i in range(o.rows):
            share[i] /= added
        for v in range(width):
            for i in range(o.rows):
                terms[i] = share[i] * float64(given[i * width + v])
            mean = moments[v] = sum_of_rows(terms, width)
            for i in range(o.rows):
                distance = float64(given[i * width + v]) - mean
                terms[i] = share[i] * (distance * distance)
            moments[width + v] = sum_of_rows(terms, width)
    return added


@compiled
def sum_of_rows(terms: Any, width: int) -> Any:
    """Return a sum over the rows [B] of a column of a matrix of this width, as numpy adds it."""
    if width == 1:
        return sum_in_pairs(terms)
    total = terms[0]
    for i in range(1, len(terms)):
        total += terms[i]
    return total


@compiled
def normalize(o: Any, k: int, column: int) -> None:
    """Normalize an agent's rows in place, as `normalized_observations` does.  column: address of the rows."""
    width, rows = o.width, f32(column, o.rows * o.width)
    means, variances = f64(o.mean + 8 * k * width, width), f64(o.variance + 8 * k * width, width)
    for v in range(width):
        mean, scale = means[v], deviation(means[v], variances[v])
        for i in range(v, len(rows), width):
            value = float32((float64(rows[i]) - mean) / scale)
            rows[i] = float32(-CLIP) if value < -CLIP else float32(CLIP) if value > CLIP else value


@compiled
def deviation(mean: float, variance: float) -> float:
    """Return the standard deviation, 1 where all values are equal; see `RunningStatistics.deviation`."""
    size = SAME * mean
    return 1.0 if variance <= size * size else math.sqrt(variance + EPSILON)


@compiled
def add_rows(o: Any, k: int, added: float) -> None:
    """Add the rows of `measure` to an agent's statistics, as `RunningStatistics.update` does."""
    width, moments, counts = o.width, f64(o.moments, 2 * o.width), f64(o.count, o.agents)
    means, variances = f64(o.mean + 8 * k * width, width), f64(o.variance + 8 * k * width, width)
    high, rest = f32(o.high + 4 * k * width, width), f32(o.rest + 4 * k * width, width)
    deviations = f32(o.deviation + 4 * k * width, width)
    total = counts[k] + added
    old, new = counts[k] / total, added / total
    for v in range(width):
        shift = moments[v] - means[v]
        variances[v] = old * variances[v] + new * moments[width + v] + old * new * (shift * shift)
        means[v] += new * shift
        high[v] = float32(means[v])
        rest[v] = float32(means[v] - float64(high[v]))
        deviations[v] = float32(deviation(means[v], variances[v]))
    counts[k] = total
