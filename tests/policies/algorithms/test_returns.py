from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from marltrain.policies.algorithms.returns import (
    explained_variance,
    gae,
    next_values,
    retrace,
    returns_so_far,
    rollout_metrics,
)


def test_gae_by_hand():
    """Two pieces of 2 and 1 rows: the first goes on beyond its cut, the second terminated; then padding."""
    reward = np.array([[1.0, 2.0, 4.0, 0.0]])
    discount = np.array([[0.5, 0.5, 0.0, 0.0]])
    value = np.array([[3.0, 5.0, 1.0, 7.0]])
    next_value = np.array([[5.0, 8.0, 9.0, 9.0]])
    cut = np.array([[False, True, True, True]])
    # delta: 1 + 2.5 - 3 = 0.5;  2 + 4 - 5 = 1;  4 - 1 = 3;  -7.  A_0 = 0.5 + 0.5 * 0.5 * 1
    advantage = gae(reward, discount, value, next_value, cut, np.array([0.5]))
    assert advantage.dtype == np.float32
    assert advantage.tolist() == [[0.75, 1.0, 3.0, -7.0]]


def test_corrected_gae_by_hand():
    """Traces of 1, 1/4 and 1/2: deltas 0.5, 1.5 and -4; A_1 = 1.5 + 0.25 * 0.5 * -4, A_0 = 0.5 + 0.25 * 0.25 * A_1."""
    reward, discount = np.array([[1.0, 2.0, -3.0]]), np.array([[0.5, 0.5, 0.0]])
    value, next_value = np.ones((1, 3)), np.ones((1, 3))
    cut, trace = np.array([[False, False, True]]), np.array([[1.0, 0.25, 0.5]])
    advantage = gae(reward, discount, value, next_value, cut, np.array([0.5]), trace)
    assert advantage.tolist() == [[0.5625, 1.0, -4.0]]


def test_returns_so_far_by_hand():
    """Pieces of 3 and 2 rows, and one piece of 4 whose first row ends without a cut by termination; then padding."""
    reward = np.array([[1.0, 2.0, 4.0, 8.0, 16.0], [1.0, 1.0, 1.0, 1.0, 0.0]])
    discount = np.array([[0.5, 0.5, 0.5, 0.25, 0.0], [0.9, 0.5, 0.5, 0.5, 0.0]])
    cut = np.array([[False, False, True, False, True], [False, False, False, True, True]])
    expected = [[1, 2.5, 5.25, 8, 18], [1, 1.9, 1.95, 1.975, 0]]
    assert returns_so_far(reward, discount, cut) == pytest.approx(np.array(expected))


def test_the_last_row_needs_no_cut():
    ones = np.ones((1, 1))
    assert gae(ones, ones, ones, ones, np.array([[False]]), np.array([0.9])).tolist() == [[1.0]]


@pytest.mark.parametrize("seed", range(3))
def test_gae_equals_a_plain_loop(seed):
    rng = np.random.default_rng(seed)
    agents, rows = 3, 37
    reward, value, next_value = rng.normal(size=(3, agents, rows))
    discount, cut = rng.choice([0.0, 0.9, 0.99], (agents, rows)), rng.random((agents, rows)) < 0.2
    lam = np.array([0.0, 0.95, 1.0])
    expected = np.zeros((agents, rows))
    for k in range(agents):
        for i in reversed(range(rows)):
            expected[k, i] = reward[k, i] + discount[k, i] * next_value[k, i] - value[k, i]
            if i + 1 < rows and not cut[k, i]:
                expected[k, i] += discount[k, i] * lam[k] * expected[k, i + 1]
    # a view that is not contiguous gives the same
    found = gae(np.asfortranarray(reward), discount, value, next_value, cut, lam)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_lambda_one_gives_the_discounted_return_less_the_value():
    reward, zeros = np.array([[1.0, 1.0, 1.0]]), np.zeros((1, 3))
    value = np.array([[2.0, 3.0, 4.0]])
    next_value = np.array([[3.0, 4.0, 10.0]])
    cut = np.array([[False, False, True]])
    advantage = gae(reward, zeros + 0.5, value, next_value, cut, np.array([1.0]))
    # returns: 1 + 0.5 + 0.25 + 10/8 = 3;  1 + 0.5 + 10/4 = 4;  1 + 5 = 6
    assert (advantage + value).tolist() == [[3.0, 4.0, 6.0]]


def test_retrace_by_hand():
    """Five rows: a trace of 3 that is truncated, one that terminated, one still open; c of a first row has no effect.

    T_2 = 4 + 0.5 * 8 = 8.  T_1 = 2 + 0.5 * (3 + 0.25 * (8 - 6)) = 3.75.  T_0 = 1 + 0.5 * (2 + 1 * (3.75 - 5)) = 1.375.
    """
    reward, discount = np.array([[1.0, 2.0, 4.0, 7.0, -1.0]]), np.array([[0.5, 0.5, 0.5, 0.0, 0.5]])
    q, trace = np.array([[9.0, 5.0, 6.0, 2.0, 3.0]]), np.array([[9.0, 1.0, 0.25, 0.5, 0.5]])
    next_value = np.array([[2.0, 3.0, 8.0, 99.0, 4.0]])
    cut = np.array([[False, False, True, True, True]])
    found = retrace(reward, discount, q, next_value, trace, cut)
    assert found.dtype == np.float32 and found.tolist() == [[1.375, 3.75, 8.0, 7.0, 1.0]]


@pytest.mark.parametrize("seed", range(2))
def test_retrace_equals_the_sum_of_discounted_errors(seed):
    """Munos et al. 2016, eq. 3: q_i + sum over t of gamma^(t-i) (product of c) (r_t + gamma V_(t+1) - q_t)."""
    rng = np.random.default_rng(seed)
    agents, rows = 3, 17
    reward, q, next_value = rng.normal(size=(3, agents, rows))
    discount, cut = rng.choice([0.0, 0.9, 0.99], (agents, rows)), rng.random((agents, rows)) < 0.2
    trace = rng.uniform(0, 1, (agents, rows))
    expected = q.copy()
    for k in range(agents):
        for i in range(rows):
            factor = 1.0
            for t in range(i, rows):
                expected[k, i] += factor * (reward[k, t] + discount[k, t] * next_value[k, t] - q[k, t])
                if cut[k, t] or t + 1 == rows:
                    break
                factor *= discount[k, t] * trace[k, t + 1]
    found = retrace(reward, discount, np.asfortranarray(q), next_value, trace, cut)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_what_follows_each_row():
    """Row 0 goes on in row 1; rows 1 and 2 have observations of their own; padding takes the first."""
    value, boot_value = np.array([[1.0, 2.0, 3.0, 0.0]]), np.array([[7.0, 8.0]])
    assert next_values(value, boot_value, np.array([[-1, 0, 1, 0]])).tolist() == [[2.0, 7.0, 8.0, 7.0]]


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
