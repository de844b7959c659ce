"""Metrics of rollouts: by hand, and against numpy."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from marltrain.policies.algorithms.rollout_metrics import explained_variance, rollout_metrics


def test_explained_variance_by_hand():
    target = np.array([[0.0, 2.0, 4.0, 99.0], [1.0, 1.0, 1.0, 99.0], [0.0, 2.0, 4.0, 99.0]])
    prediction = np.array([[1.0, 3.0, 5.0, 0.0], [0.0, 5.0, 2.0, 0.0], [2.0, 2.0, 2.0, 0.0]])
    weight = np.array([[1.0, 1.0, 1.0, 0.0]] * 3)
    # a constant error explains everything; without variance there is nothing to explain; a constant explains nothing
    found = explained_variance(prediction, target, weight)
    assert found[0] == 1.0 and np.isnan(found[1]) and found[2] == pytest.approx(0.0)


def test_targets_that_differ_by_their_rounding_are_constant():
    target = np.array([np.linspace(0.1, 0.1 + 2e-8, 7)] * 2, np.float32)
    assert len(np.unique(target)) > 1
    weight = np.linspace(0.3, 1.1, 14, dtype=np.float32).reshape(2, 7)
    assert np.isnan(explained_variance(np.zeros((2, 7)), target, weight)).all()


def test_explained_variance_without_rows_is_nan():
    nothing = np.zeros((1, 3))
    assert np.isnan(explained_variance(nothing, nothing, nothing)).all()


@pytest.mark.parametrize("rows", [1, 7, 80, 300, 1_500])
def test_metrics_of_rollouts_are_those_of_numpy(rows: int) -> None:
    """The second agent has no new rows; rows without weight do not count."""
    rng = np.random.default_rng(rows)
    reward, value, target = rng.normal(size=(3, 2, rows)).astype(np.float32)
    weight = rng.random((2, rows), np.float32) * np.array([[1], [0]], np.float32)
    weight[0, 1::5], reward[0, 1::5] = 0, 1e6
    batch: Any = SimpleNamespace(reward=reward, fresh_weight=weight, own=None)
    found = rollout_metrics(batch, value, target)
    total = weight[0].sum(dtype=np.float64)
    columns = {"value_mean": value, "reward_mean": reward, "return_mean": target, "return_change": target - value}
    for name, column in columns.items():
        assert found[name][0] == (weight * column)[0].sum() / total
    assert found["reward_max"][0] == reward[0][weight[0] > 0].max()
    spread, left = (np.cov(column[0], aweights=weight[0], ddof=0) for column in (target, target - value))
    expected = 1 - left / spread if rows > 1 else np.nan
    assert found["explained_variance"][0] == pytest.approx(expected, abs=1e-6, nan_ok=True)
    assert all(np.isnan(values[1]) for values in found.values())
