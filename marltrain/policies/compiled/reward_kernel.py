"""The rewards that losses get, in compiled code: their factor, and their running deviation; see `RewardScaling`."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import float32, float64

from marltrain.jit.compiling import compiled, program
from marltrain.jit.views import bools, f32, f64, record_at
from marltrain.policies.compiled.observation_kernel import deviation

_ONE = (
    "agents",  # K
    "scale",  # [K] float64, factors
    "mean", "variance", "count",  # [K] float64, of the rewards that were read, see `RunningStatistics`; or 0
)  # fmt: skip
SCALING = np.dtype([(name, np.int64) for name in _ONE])
"""Arguments of `scale_rewards`: numbers and addresses."""


@compiled
def scaling_at(address: int) -> Any:
    """Return the SCALING record at an address."""
    return record_at(address, SCALING)


@compiled
def scale_rewards(s: Any, rewards: int, weights: int, learn: int, rows: int) -> None:
    """Multiply rewards in place by their factors, and divide them by their deviations, if there are statistics.

    Rewards of the agents that learn are added to the statistics first.
    rewards, weights, learn: addresses of [K, rows] float32, of the same or 0 (all weights are 1), and of [K] bool or 0
      (all agents learn).
    """
    scales, learns = f64(s.scale, s.agents), bools(learn, s.agents)
    for k in range(s.agents):
        own, factor = f32(rewards + 4 * k * rows, rows), scales[k]
        if s.count:
            if not learn or learns[k]:
                observe_rewards(s, k, own, weights + 4 * k * rows if weights else 0)
            factor /= deviation(f64(s.mean, s.agents)[k], f64(s.variance, s.agents)[k])
        for i in range(rows):
            own[i] = float32(own[i] * factor)


@compiled
def observe_rewards(s: Any, k: int, rewards: Any, weights: int) -> None:
    """Add the rewards [B] of agent k to its statistics, as `RunningStatistics.update` does."""
    rows = len(rewards)
    added = total = spread = float64(0.0)
    for i in range(rows):
        weight = float64(f32(weights, rows)[i]) if weights else float64(1.0)
        added += weight
        total += weight * rewards[i]
    if added <= 0.0:
        return
    mean = total / added
    for i in range(rows):
        weight = float64(f32(weights, rows)[i]) if weights else float64(1.0)
        spread += weight * (rewards[i] - mean) ** 2
    means, variances, counts = f64(s.mean, s.agents), f64(s.variance, s.agents), f64(s.count, s.agents)
    count = counts[k] + added
    old, new, shift = counts[k] / count, added / count, mean - means[k]
    variances[k] = old * variances[k] + new * spread / added + old * new * shift * shift
    means[k] += new * shift
    counts[k] = count


@compiled
def scale_once(address: int, rewards: int, weights: int, learn: int, rows: int) -> None:
    """Call `scale_rewards` with the SCALING at an address."""
    scale_rewards(scaling_at(address), rewards, weights, learn, rows)


@functools.cache
def scaling_program() -> Any:
    """Return the compiled `scale_once`, from the disk cache if it is there."""
    return program(scale_once, SCALING)
