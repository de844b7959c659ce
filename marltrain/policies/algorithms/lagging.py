"""Correction of rollouts that were acted with earlier weights, as asynchronous runners collect them.

Advantages and targets are those of V-trace (Espeholt et al. 2018, arXiv:1802.01561): each row's part is multiplied by
min(limit, ratio), for the ratio of the present policy to the one that acted, whose log-probabilities are stored. The
same factor multiplies the advantages in the policy's loss. The limit is 1, and `replay_truncation` for PPO. PPO then
clips around a policy between the one that acted and the present one (`centered`), whose ratio to the one that acted is
the factor in the loss (Hilton et al. 2021, arXiv:2110.00641).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from marltrain.core.errors import ConfigError
from marltrain.core.layout import Array
from marltrain.core.settings import setting
from marltrain.policies.algorithms.replayed_rollouts import MOST_LOG_RATIO
from marltrain.policies.batches.tensor_batch import shares_of
from marltrain.policies.hyperparameters.schedules import Schedule


@dataclass(frozen=True, kw_only=True)
class LaggingRollouts:
    """Settings of an on-policy algorithm that corrects for the lag of its rollouts."""

    lag_correction: bool = setting(
        True, doc="correct rollouts of asynchronous runners for the weights that acted; False is for comparisons"
    )


@dataclass(frozen=True, kw_only=True)
class ClippedLag(LaggingRollouts):
    """Settings of an algorithm that corrects for the lag and clips the ratio to an earlier policy."""

    lag_kl: float | Schedule = setting(
        0.05, doc="for a rollout that lags: largest divergence of the policy around which PPO clips from the one that "
        "acted", low=0, per_row=True,
    )  # fmt: skip


def check_correction(
    settings: LaggingRollouts, name: str, reason: str, names: Sequence[str] = ("lag_correction", "lag_kl")
) -> None:
    """Raise ConfigError for a setting of the correction that was given and has no effect; reason: a clause."""
    for f in fields(settings):
        if f.name in names and (value := getattr(settings, f.name)) != f.default:
            raise ConfigError(f"{name}: {f.name}={value!r} has no effect {reason}: leave it out")


def traces(log_ratio: Array, limit: Any = 1.0) -> Array:
    """Return min(limit, ratio), for log pi(a|s) - log mu(a|s) of the present policy pi and the one that acted.

    log_ratio: [K, B].  limit: a number or [K, 1].
    """
    trace: Array = np.exp(np.minimum(log_ratio, np.log(np.float32(limit))))
    return trace


def centered(log_ratio: Array, weight: Array, most: Array) -> Array:
    """Return log c(a|s) - log mu(a|s) of the policy c around which PPO clips, [K, B] float32.

    log c = log mu + beta (log pi - log mu) - log Z, a geometric mixture with the largest beta up to 1 for which c
    diverges from mu by at most `most`; the divergence is estimated by half the mean of the squared log-ratios (Schulman
    2020). If pi is near mu, c is pi, and the agent moves on at each update. If pi is far from mu, c stays near mu, so
    that rows that are too old move the agent little.

    Z is the mean of (pi / mu)^beta over the rows: an estimate, of all states together, of the factor by which the
    probabilities of c sum to 1. Without it, c / mu would be below 1 on average, and the clip interval of pi / c too far
    up. With beta = 1, c is pi, whose probabilities sum to 1: Z is 1 without an estimate.

    log_ratio: log pi - log mu, [K, B].  weight: [K, B]; rows of weight 0 do not count.  most: [K, 1].
    """
    share = shares_of(weight)
    divergence = 0.5 * (np.square(log_ratio) * share).sum(1, keepdims=True)
    beta = np.minimum(1.0, np.sqrt(most / np.maximum(divergence, np.finfo(np.float32).tiny)))
    scaled = beta * log_ratio.astype(np.float64)
    center: Array = (scaled - np.where(beta < 1, _log_mean_exp(scaled, share), 0.0)).astype(np.float32)
    return center


def _log_mean_exp(x: Array, share: Array) -> Array:
    """Return log(sum(share * exp(x))) of x [K, B], [K, 1]; 0 for agents whose shares are all 0."""
    counts = share > 0
    top = np.where(counts, x, -np.inf).max(1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    total = (share * np.exp(np.where(counts, x - top, 0.0))).sum(1, keepdims=True)
    return np.asarray(np.where(total > 0, top + np.log(np.where(total > 0, total, 1.0)), 0.0))


def ratio_metrics(log_ratio: Array, weight: Array) -> dict[str, Array]:
    """Return the mean and the variance of the ratios over the new rows, by agent; see `traces`.

    weight: [K, B], 0 for earlier rows that are drawn from a memory.
    """
    ratio = np.exp(np.clip(log_ratio.astype(np.float64), -MOST_LOG_RATIO, MOST_LOG_RATIO))
    share = shares_of(weight)
    mean = (ratio * share).sum(1)
    return {"ratio_mean": mean, "ratio_variance": (np.square(ratio - mean[:, None]) * share).sum(1)}
