"""Settings of algorithms with a replay memory: the scale of the rewards that their losses get."""

from __future__ import annotations

from dataclasses import dataclass

from marltrain.core.settings import setting
from marltrain.policies.hyperparameters.schedules import Schedule

LARGEST_SCALE = 1e6
"""Limit that detects mistyped factors."""


@dataclass(frozen=True, kw_only=True)
class ScaledRewards:
    """Settings of the scale of rewards. It is applied when rows are read, so that it holds for old rows, too."""

    reward_scale: float | Schedule = setting(
        1.0, doc="factor of the rewards that the losses get", above=0, high=LARGEST_SCALE, per_row=True
    )
    normalize_rewards: bool = setting(
        False, doc="divide the rewards that the losses get by the running standard deviation of those read so far"
    )
