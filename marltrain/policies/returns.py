"""Advantages and returns of rollouts as numpy arrays; numba compiles the loops and caches them on disk."""

from __future__ import annotations

import numpy as np
from numba import njit

from marltrain.layout import Array


@njit(
    "float32[:,::1](float32[:,::1], float32[:,::1], float32[:,::1], float32[:,::1], boolean[:,::1], float64[::1])",
    cache=True,
)
def _gae(reward: Array, discount: Array, value: Array, next_value: Array, cut: Array, lam: Array) -> Array:
    agents, rows = reward.shape
    advantage = np.empty((agents, rows), np.float32)
    for k in range(agents):
        trace = 0.0
        for i in range(rows - 1, -1, -1):
            step = np.float64(discount[k, i])
            delta = reward[k, i] + step * next_value[k, i] - value[k, i]
            trace = delta if cut[k, i] else delta + step * lam[k] * trace
            advantage[k, i] = trace
    return advantage


def gae(reward: Array, discount: Array, value: Array, next_value: Array, cut: Array, lam: Array) -> Array:
    """Return generalised advantage estimates, [K, B] float32, over rows in the order of a `Rollout`.

    A_i = delta_i + discount_i * lam * A_{i+1}, without the second term where `cut`, and
    delta_i = reward_i + discount_i * next_value_i - value_i (Schulman et al. 2016, equations 11 to 16).

    reward, discount, value, next_value: [K, B].  cut: [K, B] bool.  lam: [K].
    """
    reward, discount, value, next_value = (
        np.ascontiguousarray(column, np.float32) for column in (reward, discount, value, next_value)
    )
    cut, lam = np.ascontiguousarray(cut, bool), np.ascontiguousarray(lam, np.float64)
    advantage: Array = _gae(reward, discount, value, next_value, cut, lam)
    return advantage


@njit("float64[:,::1](float32[:,::1], float32[:,::1], boolean[:,::1])", cache=True)
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


def explained_variance(prediction: Array, target: Array, weight: Array) -> Array:
    """Return 1 - Var[target - prediction] / Var[target] of each agent, [K] float64; NaN for constant targets.

    prediction, target, weight: [K, B]; the variances are weighted.
    """

    def variance(values: Array) -> Array:
        total = weight.sum(1, dtype=np.float64)
        mean = (weight * values).sum(1) / total
        return np.asarray((weight * np.square(values - mean[:, None])).sum(1) / total)

    target = np.asarray(target, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = variance(target)
        return np.where(spread > 0, 1.0 - variance(target - prediction) / spread, np.nan)
