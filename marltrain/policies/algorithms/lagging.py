"""Correction of rollouts that were acted with earlier weights, as asynchronous runners collect them.

Advantages and targets are those of V-trace (Espeholt et al. 2018, arXiv:1802.01561): each row's part is multiplied by
min(limit, ratio), for the ratio of the present policy to the one that acted, whose log-probabilities are stored. The
same factor multiplies the advantages in the policy's loss. The limit is 1, and `replay_truncation` for PPO, whose
clipping is then around the present policy (Hilton et al. 2021, arXiv:2110.00641).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from marltrain.config import setting
from marltrain.errors import ConfigError
from marltrain.layout import Array
from marltrain.policies.algorithms.replayed_rollouts import MOST_LOG_RATIO
from marltrain.policies.learner.minibatches import shares_of


@dataclass(frozen=True, kw_only=True)
class LaggingRollouts:
    """Settings of an on-policy algorithm that corrects for the lag of its rollouts."""

    lag_correction: bool = setting(
        True, doc="correct rollouts of asynchronous runners for the weights that acted; False is for comparisons"
    )


def check_correction(settings: LaggingRollouts, name: str, reason: str) -> None:
    """Raise ConfigError for `lag_correction=False` where it has no effect; reason: a clause."""
    if not settings.lag_correction:
        raise ConfigError(f"{name}: lag_correction=False has no effect {reason}: leave it out")


def lags(batch: Any) -> bool:
    """Return whether a rollout was acted with earlier weights; see `Rollout.lag`."""
    return getattr(batch, "lag", None) is not None


def traces(log_ratio: Array, limit: Any = 1.0) -> Array:
    """Return min(limit, ratio), for log pi(a|s) - log mu(a|s) of the present policy pi and the one that acted.

    log_ratio: [K, B].  limit: a number or [K, 1].
    """
    trace: Array = np.exp(np.minimum(log_ratio, np.log(np.float32(limit))))
    return trace


def ratio_metrics(log_ratio: Array, weight: Array) -> dict[str, Array]:
    """Return the mean and the variance of the ratios over the new rows, by agent; see `traces`.

    weight: [K, B], 0 for earlier rows that are drawn from a memory.
    """
    ratio = np.exp(np.clip(log_ratio.astype(np.float64), -MOST_LOG_RATIO, MOST_LOG_RATIO))
    share = shares_of(weight)
    mean = (ratio * share).sum(1)
    return {"ratio_mean": mean, "ratio_variance": (np.square(ratio - mean[:, None]) * share).sum(1)}
