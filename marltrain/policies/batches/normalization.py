"""Running means and variances of K agents, and the normalization of observations by them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np

from marltrain.core.errors import SaveError
from marltrain.core.layout import Array, Obs
from marltrain.policies.batches.batch import Batch
from marltrain.storage.checks import shaped, within

EPSILON = 1e-8
"""Added to a variance before its root, against a division by zero."""
SAME = 1e-7
"""A deviation of at most this share of the mean's size is the rounding of equal values in float32, and counts as 0."""
CLIP = 10.0
"""Largest absolute value of a normalized observation."""
NORMALIZED = {
    "observation": ("obs", "next_obs", "boot_obs", "goal_obs", "near_obs", "far_obs", "kept_obs"),
    "state": ("state", "next_state", "boot_state"),
}
"""Names of statistics, and the columns of batches that they normalize; the first column updates them."""


LARGEST = 1e150
LIMITS = {"mean": (-LARGEST, LARGEST), "variance": (0.0, LARGEST), "count": (0.0, LARGEST)}
"""Smallest and largest values of saved statistics."""


class RunningStatistics:
    """Mean and variance of all values so far, for K agents and `width` numbers each.

    mean, variance: [K, width] float64; 0 and 1 before the first value.  count: [K] float64, number of rows so far.
    """

    def __init__(self, num_agents: int, width: int) -> None:
        """Start without values."""
        self.mean, self.variance = np.zeros((num_agents, width)), np.ones((num_agents, width))
        self.count = np.zeros(num_agents)
        self._digits: dict[str, Array] = {}

    def update(self, values: Array, weight: Array) -> None:
        """Add rows: values [K, B, width] of weights [K, B]; rows of weight 0 do not count.

        Combines the moments of both sets of rows (Chan et al. 1979), so that the order of rows makes no difference but
        for rounding.
        """
        weight = weight.astype(np.float64)
        added = weight.sum(1)
        for k in np.flatnonzero(added > 0):
            share = weight[k, :, None] / added[k]
            rows = values[k].astype(np.float64)
            mean = (share * rows).sum(0)
            variance = (share * np.square(rows - mean)).sum(0)
            total = self.count[k] + added[k]
            old, new = self.count[k] / total, added[k] / total
            shift = mean - self.mean[k]
            self.variance[k] = old * self.variance[k] + new * variance + old * new * np.square(shift)
            self.mean[k] += new * shift
            self.count[k] = total

    @property
    def deviation(self) -> Array:
        """Standard deviation, [K, width] float64, at least 1e-4; 1 where all values are equal, which give no scale."""
        size = SAME * self.mean
        deviation: Array = np.sqrt(self.variance + EPSILON)
        deviation[self.variance <= size * size] = 1.0
        return deviation

    def normalized(self, values: Array) -> Array:
        """Return (values - mean) / deviation for values [K, B, width], as float32."""
        return ((values - self.mean[:, None]) / self.deviation[:, None]).astype(np.float32)

    def digits(self) -> dict[str, Array]:
        """Return the mean as two numbers, "mean" and "rest", and the "deviation" in float32, [K, width] each.

        They are the same arrays in each call; planned updates write there what changes.
        """
        if not self._digits:
            self._digits = {name: np.empty(self.mean.shape, np.float32) for name in ("mean", "rest", "deviation")}
        high = self._digits["mean"]
        high[...] = self.mean
        self._digits["rest"][...] = self.mean - high
        self._digits["deviation"][...] = self.deviation
        return self._digits

    def row(self, k: int) -> RunningStatistics:
        """Return the statistics of one agent, as views."""
        view = RunningStatistics(0, 0)
        view.mean, view.variance, view.count = self.mean[k : k + 1], self.variance[k : k + 1], self.count[k : k + 1]
        return view

    def values(self) -> dict[str, Array]:
        """Return means, variances and counts of all agents by name; writing into them changes the statistics."""
        return {"mean": self.mean, "variance": self.variance, "count": self.count}

    def copy_from(self, other: RunningStatistics) -> None:
        """Take over the values of other statistics of the same shape."""
        for name, value in other.values().items():
            self.values()[name][...] = value

    def arrays(self, k: int) -> dict[str, Array]:
        """Return one agent's mean, variance and count by name."""
        return {name: np.array(value[k]) for name, value in self.values().items()}

    def load(self, k: int, arrays: Mapping[str, Array]) -> None:
        """Load what `arrays` returned; raises SaveError for other names or shapes and for impossible values."""
        if set(arrays) != set(LIMITS):
            raise SaveError(f"running statistics hold {sorted(arrays)}, expected {sorted(LIMITS)}")
        for name, value in self.values().items():
            place = f"statistic {name}"
            value[k] = within(place, shaped(place, arrays[name], np.float64, value[k].shape), *LIMITS[name])


def normalized_observations(statistics: RunningStatistics, obs: Obs) -> Obs:
    """Return observations [K, B, V] less their means, divided by their deviations, clipped to [-10, 10].

    Raises TypeError for observations with images.
    """
    if isinstance(obs, dict):
        raise TypeError(f"observations with images ({', '.join(obs)}) are not normalized")
    clipped: Array = np.minimum(np.maximum(statistics.normalized(obs), -CLIP), CLIP)  # faster than np.clip
    return clipped


def normalized_batch(statistics: Mapping[str, RunningStatistics], batch: Batch) -> Batch:
    """Return the batch with normalized observations and global states; statistics: those of `NORMALIZED`."""
    names = {field.name for field in fields(batch)}
    changed: dict[str, Any] = {
        name: normalized_observations(kept, getattr(batch, name))
        for kind, kept in statistics.items()
        for name in NORMALIZED[kind]
        if name in names
    }
    return replace(batch, **changed)


def observe(statistics: Mapping[str, RunningStatistics], batch: Batch, learn: Array) -> None:
    """Add the observations and global states of the agents that `learn` [K] to their statistics.

    Raises TypeError for observations with images.
    """
    for kind, kept in statistics.items():
        values = getattr(batch, NORMALIZED[kind][0])
        if isinstance(values, dict):
            raise TypeError(f"observations with images ({', '.join(values)}) are not normalized")
        kept.update(values, batch.fresh_weight * learn[:, None])
