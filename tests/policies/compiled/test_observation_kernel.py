"""Observations in compiled code are normalized and added to statistics as in numpy, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

from marltrain.policies.batches.batch import Transitions
from marltrain.policies.batches.normalization import RunningStatistics, normalized_observations
from marltrain.policies.compiled.observation_kernel import observe
from marltrain.policies.learner.planned.observing import Observing

LEARN = np.array([True, False, True])


def transitions(obs: np.ndarray, next_obs: np.ndarray) -> Transitions:
    rows = np.zeros(obs.shape[:2], np.float32)
    return Transitions(
        obs=obs, legal=None, action=rows, reward=rows, discount=rows, weight=rows, extras={}, next_obs=next_obs,
        next_legal=None, cells=rows.astype(np.int64),
    )  # fmt: skip


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("rows", [1, 7, 8, 29, 300])
@pytest.mark.parametrize("width", [1, 2, 5])
def test_it_equals_numpy(width, rows, weighted):
    """Three batches; the first of the third agent is outside the limits, and one number never changes."""
    rng = np.random.default_rng(0)
    plain, compiled = RunningStatistics(3, width), RunningStatistics(3, width)
    observing, digits = Observing(compiled), compiled.digits()
    for _ in range(3):
        obs, then = (rng.normal(5.0, 3.0, (3, rows, width)).astype(np.float32) for _ in range(2))
        obs[2, 0], obs[..., -1], then[0, -1] = -1e4, obs[0, 0, -1], np.nan
        weight = rng.uniform(0, 2, (3, rows)).astype(np.float32) if weighted else np.ones((3, rows), np.float32)
        weight[0, 1::3] = 0.0 if weighted else 1.0
        expected = [normalized_observations(plain, values) for values in (obs, then)]
        plain.update(obs, weight * LEARN[:, None])
        observing.set_rows(transitions(obs, then), weight if weighted else None)
        observe(observing.address, LEARN.ctypes.data)
        np.testing.assert_array_equal([obs, then], expected)
        for name, values in plain.values().items():
            np.testing.assert_array_equal(compiled.values()[name], values, name)
        for name, array in plain.digits().items():
            np.testing.assert_array_equal(digits[name], array, name)


def test_rows_of_weight_zero_change_nothing():
    statistics, weight = RunningStatistics(1, 2), np.zeros((1, 3), np.float32)
    observing, obs = Observing(statistics), np.full((1, 3, 2), 7.0, np.float32)
    observing.set_rows(transitions(obs, obs.copy()), weight)
    observe(observing.address, LEARN[:1].ctypes.data)
    assert statistics.count.tolist() == [0.0] and not statistics.mean.any()
