"""Running statistics by hand, and observations normalized by a learner: stacked, frozen in tests, saved."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import ConfigError, SaveError
from marltrain.core.layout import Layout
from marltrain.policies.batches.batch import ActInputs
from marltrain.policies.batches.normalization import RunningStatistics, normalized_observations
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from tests.policies.backends.both import BOTH
from tests.policies.some_batches import IMAGE, VECTOR, some_rollout, some_transitions

RNG = np.random.default_rng(3)
DISCRETE = spaces.Discrete(3)


def test_batches_of_odd_sizes_give_the_moments_of_all_rows():
    running, rows = RunningStatistics(2, 3), RNG.normal(5.0, 2.0, (2, 11, 3))
    weight = np.ones((2, 11), np.float32)
    weight[1, 6:] = 0
    for start, stop in ((0, 4), (4, 5), (5, 11)):
        running.update(rows[:, start:stop], weight[:, start:stop])
    for k, count in enumerate((11, 6)):
        np.testing.assert_allclose(running.mean[k], rows[k, :count].mean(0))
        np.testing.assert_allclose(running.variance[k], rows[k, :count].var(0))
        assert running.count[k] == count


def test_without_values_nothing_changes_and_large_values_are_clipped():
    running = RunningStatistics(1, 2)
    result: Any = normalized_observations(running, np.array([[[0.5, -30.0]]], np.float32))
    np.testing.assert_allclose(result, [[[0.5, -10.0]]], rtol=1e-6)


def test_statistics_by_hand():
    running = RunningStatistics(1, 1)
    running.update(np.array([[[1.0], [3.0]]]), np.ones((1, 2)))
    running.update(np.array([[[8.0]]]), np.ones((1, 1)))
    np.testing.assert_allclose(running.mean, [[4.0]])
    np.testing.assert_allclose(running.variance, [[26 / 3]])  # (9 + 1 + 16) / 3
    np.testing.assert_allclose(running.normalized(np.array([[[7.0]]])), [[[3 / np.sqrt(26 / 3)]]], rtol=1e-6)


@pytest.mark.parametrize("value", [0.0, 0.1, -1e-6, 7e5 / 3, 1e20])
def test_equal_values_have_no_deviation_and_are_not_scaled(value):
    """Means of weighted rows round, and so do values of float32: both give a variance above 0, and no scale."""
    running, value = RunningStatistics(2, 1), np.float32(value)
    rows = np.full((2, 7, 1), value)
    rows[1, ::2] = np.nextafter(value, np.float32(np.inf)) if value else value
    for count in (7, 3, 1):
        running.update(rows[:, :count], np.linspace(0.1, 1.3, 2 * count, dtype=np.float32).reshape(2, count))
    assert running.deviation.tolist() == [[1.0], [1.0]]
    assert abs(running.normalized(rows)).max() <= 1e-6 * abs(value)
    later = rows + np.float32(0.5)
    np.testing.assert_allclose(running.normalized(later), later - running.mean[:, None], rtol=1e-6)


@pytest.mark.parametrize(("mean", "deviation"), [(1e6, 0.2), (0.0, 3e-3), (-4.0, 1e-3), (0.0, 1e5)])
def test_a_deviation_that_float32_can_hold_is_one(mean, deviation):
    running = RunningStatistics(1, 1)
    running.update(np.array([[[mean - deviation], [mean + deviation]]]), np.ones((1, 2)))
    assert running.deviation[0, 0] == pytest.approx(deviation, rel=1e-2)


def test_small_deviations_divide_by_at_least_1e_4():
    running = RunningStatistics(1, 1)
    running.update(np.array([[[-1e-6], [1e-6]]]), np.ones((1, 2)))
    assert running.deviation[0, 0] == pytest.approx(1e-4, rel=1e-3)


def test_impossible_saved_values_are_refused():
    running = RunningStatistics(1, 2)
    saved = running.arrays(0)
    with pytest.raises(SaveError, match="variance"):
        running.load(0, {**saved, "variance": np.array([-1.0, 0.0])})
    with pytest.raises(SaveError, match="hold"):
        running.load(0, {"mean": saved["mean"]})


def learner_of(kind: Any, backend: str, agents: int) -> AlgorithmLearner:
    more = {"epochs": 1} if kind is mt.PPO else {}
    agent = kind(VECTOR, DISCRETE, seed=0, backend=backend, normalize_observations=True, **more)
    return AlgorithmLearner(agent.algorithm, BOTH[backend], list(range(agents)), draw=True)


def batch_of(kind: Any, lengths: list[int]) -> Any:
    rng = np.random.default_rng(7)
    if kind is mt.PPO:
        return some_rollout(rng, Layout(VECTOR), DISCRETE, lengths)
    return some_transitions(rng, Layout(VECTOR), 3, len(lengths), 9)


@pytest.mark.parametrize("kind", [mt.PPO, mt.DQN])
@pytest.mark.parametrize("backend", BOTH)
def test_an_update_moves_the_statistics_of_the_agents_that_learn_and_acting_uses_them(kind, backend):
    learner, batch = learner_of(kind, backend, 2), batch_of(kind, [7, 9])
    learner.update(batch, learn=np.array([True, kind is mt.PPO]), batch_size=64)
    seen = learner.weights.statistics["observation"]
    rows = batch.obs[0][batch.weight[0] > 0]
    np.testing.assert_allclose(seen.mean[0], rows.mean(0), rtol=1e-5)
    if kind is mt.DQN:
        assert seen.count[1] == 0
    net: Any
    (net,) = (learner.weights.nets[name] for name in ("actor", "q") if name in learner.weights.nets)
    given = np.asarray(batch.obs[:, :4])
    expected = net.in_numpy()(normalized_observations(seen, given))[0].argmax(-1)
    explore = np.zeros(given.shape[:2], bool)
    acted = learner.actor.act(ActInputs(given, None, explore), learner.rngs("test"))
    assert np.array_equal(acted.action, expected)
    row = learner.actor.act_row(1, ActInputs(given[1:], None, explore[1:]), np.random.default_rng(0))
    assert np.array_equal(row.action[0], expected[1])


def test_statistics_are_saved_and_loaded_into_the_other_framework(tmp_path):
    learner = learner_of(mt.PPO, "torch", 1)
    agent = mt.PPO(VECTOR, DISCRETE, seed=0, normalize_observations=True)
    agent.learner().update(batch_of(mt.PPO, [7]), learn=np.ones(1, bool), batch_size=64)
    mt.save(tmp_path / "one", agent)
    other: Any
    (other,) = mt.load(tmp_path / "one", backend="tensorflow")
    before: Any = agent.learner().weights.statistics["observation"]
    after: Any = other.learner().weights.statistics["observation"]
    assert np.array_equal(before.mean, after.mean)
    assert np.array_equal(before.variance, after.variance)
    assert learner.weights.statistics["observation"].count[0] == 0


def test_images_are_refused():
    with pytest.raises(ConfigError, match="is an image"):
        mt.PPO(IMAGE, DISCRETE, normalize_observations=True)
