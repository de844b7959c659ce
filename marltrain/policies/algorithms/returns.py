"""Advantages, returns and metrics of rollouts as numpy arrays; numba compiles the loops and caches them on disk.

Sums of metrics are rounded as numpy rounds them.
"""

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

METRICS = "explained_variance", "reward_mean", "reward_max", "value_mean", "return_mean", "return_change"


@program
def _gae(
    reward: Array, discount: Array, value: Array, next_value: Array, cut: Array, lam: Array, trace: Array,
    advantage: Array,
) -> None:  # fmt: skip
    agents, rows = reward.shape
    for k in range(agents):
        following = 0.0  # trace * advantage of the row after
        for i in range(rows - 1, -1, -1):
            step = np.float64(discount[k, i])
            delta = reward[k, i] + step * next_value[k, i] - value[k, i]
            estimate = delta if cut[k, i] else delta + step * lam[k] * following
            advantage[k, i] = estimate
            following = trace[k, i] * estimate


def gae(
    reward: Array, discount: Array, value: Array, next_value: Array, cut: Array, lam: Array, trace: Array | None = None
) -> Array:
    """Return generalized advantage estimates, [K, B] float32, over rows in the order of a `Rollout`.

    A_i = delta_i + discount_i * lam * c_{i+1} * A_{i+1}, without the second term where `cut`, and
    delta_i = reward_i + discount_i * next_value_i - value_i. With c = 1 these are equations 11 to 16 of Schulman et
    al. 2016. With c = min(limit, ratio of the policy to the one that acted) they are the advantages of V-trace with
    lambda, and value + c * A its targets (Espeholt et al. 2018, arXiv:1802.01561, section 4.1 with equal limits).

    reward, discount, value, next_value: [K, B].  cut: [K, B] bool.  lam: [K].  trace: c, [K, B]; None: 1.
    """
    trace = np.ones(reward.shape, np.float32) if trace is None else trace
    reward, discount, value, next_value, trace = (
        np.ascontiguousarray(column, np.float32) for column in (reward, discount, value, next_value, trace)
    )
    cut, lam = np.ascontiguousarray(cut, bool), np.ascontiguousarray(lam, np.float64)
    advantage = np.empty(reward.shape, np.float32)
    _gae(reward, discount, value, next_value, cut, lam, trace, advantage)
    return advantage


@program
def _returns_so_far(reward: Array, discount: Array, cut: Array) -> Array:
    agents, rows = reward.shape
    returns = np.empty((agents, rows), np.float64)
    for k in range(agents):
        earlier = 0.0
        for i in range(rows):
            returns[k, i] = reward[k, i] + earlier
            earlier = 0.0 if cut[k, i] else discount[k, i] * returns[k, i]
    return returns


def returns_so_far(reward: Array, discount: Array, cut: Array) -> Array:
    """Return the discounted sum of rewards up to each row, [K, B] float64, over rows in the order of a `Rollout`.

    G_i = reward_i + discount_{i-1} * G_{i-1}; without the second term at the first row and after a row that is `cut`.
    The sums therefore begin anew with every episode and with every rollout.

    reward, discount: [K, B].  cut: [K, B] bool.
    """
    reward, discount = (np.ascontiguousarray(column, np.float32) for column in (reward, discount))
    returns: Array = _returns_so_far(reward, discount, np.ascontiguousarray(cut, bool))
    return returns


@program
def _retrace(reward: Array, discount: Array, q: Array, next_value: Array, trace: Array, cut: Array) -> Array:
    agents, rows = reward.shape
    target = np.empty((agents, rows), np.float32)
    for k in range(agents):
        correction = 0.0  # c * (target - q) of the row after
        for i in range(rows - 1, -1, -1):
            following = next_value[k, i] + (0.0 if cut[k, i] else correction)
            total = reward[k, i] + np.float64(discount[k, i]) * following
            target[k, i] = total
            correction = trace[k, i] * (total - q[k, i])
    return target


def retrace(reward: Array, discount: Array, q: Array, next_value: Array, trace: Array, cut: Array) -> Array:
    """Return the Retrace targets of action values, [K, B] float32, over rows in the order of a `Rollout`.

    T_i = reward_i + discount_i * (next_value_i + c_{i+1} (T_{i+1} - q_{i+1})), without the last term where `cut`
    (Munos et al. 2016, arXiv:1606.02647, eq. 4; Wang et al. 2017, arXiv:1611.01224, eq. 5).

    reward, discount: [K, B].  q: [K, B], values of the actions taken.
    next_value: [K, B], values of the state after each row under the policy that is learned.
    trace: [K, B], the coefficients c of the rows' own actions, such as min(1, ratio).  cut: [K, B] bool.
    """
    reward, discount, q, next_value, trace = (
        np.ascontiguousarray(column, np.float32) for column in (reward, discount, q, next_value, trace)
    )
    target: Array = _retrace(reward, discount, q, next_value, trace, np.ascontiguousarray(cut, bool))
    return target


@program
def _next_values(value: Array, boot_value: Array, boot: Array, following: Array) -> None:
    agents, rows = value.shape
    for k in range(agents):
        for i in range(rows):
            there = boot[k, i]
            following[k, i] = boot_value[k, there] if there >= 0 else value[k, (i + 1) % rows]


def next_values(value: Array, boot_value: Array, boot: Array) -> Array:
    """Return the value of the next observation of each row of a `Rollout`, [K, B] float32.

    value: [K, B] of the rows.  boot_value: [K, M] of `boot_obs`.  boot: [K, B], see `Rollout`.
    """
    value, boot_value = (np.ascontiguousarray(values, np.float32) for values in (value, boot_value))
    following = np.empty(value.shape, np.float32)
    _next_values(value, boot_value, np.ascontiguousarray(boot, np.int64), following)
    return following


def rollout_metrics(batch: Rollout, value: Array, target: Array) -> dict[str, Array]:
    """Return metrics [K] of an agent's own new rows: of rewards, and the critic's values and targets; NaN if none.

    value, target: [K, B] float32.
    """
    weight = batch.fresh_weight if batch.own is None else batch.fresh_weight * batch.own
    columns = (np.ascontiguousarray(column, np.float32) for column in (batch.reward, value, target, weight))
    found = np.empty((len(METRICS), len(weight)))
    _measure(*columns, found)
    return dict(zip(METRICS, found, strict=True))


def explained_variance(prediction: Array, target: Array, weight: Array) -> Array:
    """Return 1 - Var[target - prediction] / Var[target] of each agent, [K] float64; NaN for constant targets.

    prediction, target, weight: [K, B]; the variances are weighted. Targets that differ by their rounding are constant.
    """
    found = np.empty(len(target))
    _explain(*(np.ascontiguousarray(column, np.float64) for column in (prediction, target, weight)), found)
    return found


@program
def _measure(reward: Array, value: Array, target: Array, weight: Array, found: Array) -> None:
    """Write the metrics `METRICS`, [6, K]; the other arguments are [K, B]."""
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
