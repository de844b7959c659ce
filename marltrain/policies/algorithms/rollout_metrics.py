"""Metrics of the rows of a rollout, in compiled code; sums are rounded as numpy rounds them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import float64

from marltrain.core.layout import Array
from marltrain.jit.compiling import compiled, program
from marltrain.policies.batches.batch import Rollout
from marltrain.policies.batches.normalization import SAME
from marltrain.policies.compiled.sums import sum_in_pairs

NAMES = "explained_variance", "reward_mean", "reward_max", "value_mean", "return_mean", "return_change"


def rollout_metrics(batch: Rollout, value: Array, target: Array) -> dict[str, Array]:
    """Return metrics [K] of an agent's own new rows: of rewards, and the critic's values and targets; NaN if none.

    value, target: [K, B] float32.
    """
    weight = batch.fresh_weight if batch.own is None else batch.fresh_weight * batch.own
    columns = (np.ascontiguousarray(column, np.float32) for column in (batch.reward, value, target, weight))
    found = np.empty((len(NAMES), len(weight)))
    _measure(*columns, found)
    return dict(zip(NAMES, found, strict=True))


def explained_variance(prediction: Array, target: Array, weight: Array) -> Array:
    """Return 1 - Var[target - prediction] / Var[target] of each agent, [K] float64; NaN for constant targets.

    prediction, target, weight: [K, B]; the variances are weighted. Targets that differ by their rounding are constant.
    """
    found = np.empty(len(target))
    _explain(*(np.ascontiguousarray(column, np.float64) for column in (prediction, target, weight)), found)
    return found


@program
def _measure(reward: Array, value: Array, target: Array, weight: Array, found: Array) -> None:
    """Write the metrics `NAMES`, [6, K]; the other arguments are [K, B]."""
    agents, rows = reward.shape
    single, terms = np.empty(rows, np.float32), np.empty(rows)
    for k in range(agents):
        total, largest = _total(weight[k], terms), -np.float32(np.inf)
        for i in range(rows):
            if weight[k, i] > 0 and (reward[k, i] > largest or math.isnan(reward[k, i])):
                largest = reward[k, i]
        found[0, k] = _explained(value[k], target[k], weight[k], terms)
        found[1, k] = _weighted(reward[k], weight[k], single) / total
        found[2, k] = largest if total > 0 else np.nan
        found[3, k] = _weighted(value[k], weight[k], single) / total
        found[4, k] = _weighted(target[k], weight[k], single) / total
        for i in range(rows):
            single[i] = weight[k, i] * (target[k, i] - value[k, i])
        found[5, k] = sum_in_pairs(single) / total


@program
def _explain(prediction: Array, target: Array, weight: Array, found: Array) -> None:
    """Write the explained variance of each agent, [K]; the other arguments are [K, B]."""
    terms = np.empty(target.shape[1])
    for k in range(len(target)):
        found[k] = _explained(prediction[k], target[k], weight[k], terms)


@compiled
def _explained(prediction: Any, target: Any, weight: Any, terms: Any) -> float:
    """Return the explained variance of the rows [B] of an agent.  terms: [B] float64, work space."""
    rows, total = len(target), _total(weight, terms)
    for i in range(rows):
        terms[i] = weight[i] * float64(target[i])
    mean = sum_in_pairs(terms) / total
    for i in range(rows):
        distance = float64(target[i]) - mean
        terms[i] = weight[i] * (distance * distance)
    spread = sum_in_pairs(terms) / total
    for i in range(rows):
        terms[i] = weight[i] * (float64(target[i]) - prediction[i])
    error = sum_in_pairs(terms) / total
    for i in range(rows):
        distance = float64(target[i]) - prediction[i] - error
        terms[i] = weight[i] * (distance * distance)
    left = sum_in_pairs(terms) / total
    return 1.0 - left / spread if math.sqrt(spread) > SAME * abs(mean) else np.nan


@compiled
def _total(weight: Any, terms: Any) -> float:
    """Return the sum of weights [B] in float64."""
    for i in range(len(weight)):
        terms[i] = weight[i]
    return sum_in_pairs(terms)


@compiled
def _weighted(column: Any, weight: Any, terms: Any) -> Any:
    """Return the weighted sum of a column [B] in float32."""
    for i in range(len(column)):
        terms[i] = weight[i] * column[i]
    return sum_in_pairs(terms)
