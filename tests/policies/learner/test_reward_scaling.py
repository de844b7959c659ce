"""Scaled rewards: the statistics by hand, and the losses of agents alone and of teams, which get them."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import AgentError, ConfigError
from marltrain.policies.batches.normalization import RunningStatistics
from marltrain.policies.interface.algorithm import REWARD
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.policies.learner.reward_scaling import RewardScaling
from marltrain.policies.learner.row_errors import RowErrors
from tests.policies.algorithms import central, mixing
from tests.policies.backends.both import BOTH
from tests.policies.some_batches import VECTOR, some_transitions
from tests.tiers import LONG

DISCRETE, BOX = spaces.Discrete(3), spaces.Box(-1, 1, (2,), np.float32)
REWARDS = np.array([[1, 3, 8, 99], [0, 0, 0, 0], [2, 5, 9, 4]], np.float32)
WEIGHTS = np.array([[1, 1, 1, 0], [1, 1, 1, 1], [1, 1, 1, 1]], np.float32)
DEVIATION = np.sqrt(26 / 3)
"""That of 1, 3 and 8."""
LEARN, ONES = np.array([True, True, False]), np.ones(3)


def test_by_hand():
    """Padding counts for nothing, equal rewards have no scale, and an agent that does not learn keeps what it knows."""
    statistics = RunningStatistics(3, 1)
    scaled = RewardScaling(3, statistics)(REWARDS, WEIGHTS, LEARN, np.array([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(scaled[0, :3], REWARDS[0, :3] / DEVIATION, rtol=1e-6)
    np.testing.assert_array_equal(scaled[1:], [[0, 0, 0, 0], [6, 15, 27, 12]])
    assert statistics.count.tolist() == [3, 4, 0]
    assert scaled.dtype == np.float32 and REWARDS[0, 1] == 3


def test_statistics_are_running_statistics_of_weighted_rewards():
    rng, known, expected = np.random.default_rng(0), RunningStatistics(2, 1), RunningStatistics(2, 1)
    scaling = RewardScaling(2, known)
    for rows in (5, 1, 8):
        reward, weight = rng.normal(3, 2, (2, rows)).astype(np.float32), rng.random((2, rows)).astype(np.float32)
        scaled = scaling(reward, weight, np.ones(2, bool), np.ones(2))
        expected.update(reward[..., None], weight)
        np.testing.assert_allclose(scaled, reward / expected.deviation, rtol=1e-6)
    for name, values in expected.values().items():
        np.testing.assert_allclose(known.values()[name], values)


def test_a_factor_alone_has_no_statistics_and_1_changes_nothing():
    scaling = RewardScaling(3, None)
    assert scaling(REWARDS, WEIGHTS, LEARN, ONES) is REWARDS
    np.testing.assert_array_equal(scaling(REWARDS, WEIGHTS, LEARN, np.full(3, 30.0)), REWARDS * 30)


KINDS: dict[str, Any] = {
    "dqn": (mt.DQN, DISCRETE, {}),
    "dqn, compiled": (mt.DQN, DISCRETE, {"jit_compile": True}),
    "dqn, by priorities": (mt.DQN, DISCRETE, {"memory": mt.Replay(prioritized=mt.Prioritized())}),
    "c51": (mt.C51, DISCRETE, {"v_min": -5.0, "v_max": 5.0}),
    "sac": (mt.SAC, BOX, {}),
    "td3": (mt.TD3, BOX, {}),
}


def learner_of(kind: str, backend: str, **settings: Any) -> AlgorithmLearner:
    make, actions, own = KINDS[kind]
    agent = make(VECTOR, actions, seed=0, backend=backend, network=mt.MLP((6,)), **own, **settings)
    return AlgorithmLearner(agent.algorithm, agent.backend, [0, 1], draw=True)


def batch_of(kind: str) -> Any:
    batch = some_transitions(np.random.default_rng(5), VECTOR, KINDS[kind][1], 2, 6, n_step=3)
    if kind == "dqn, by priorities":
        batch.rows = np.zeros(batch.weight.shape, np.int64)
    return batch


def equal(first: Any, other: Any) -> None:
    """Hold two learners against each other, without their statistics of rewards."""
    for k in range(2):
        expected = other.export(k).arrays
        for name, array in first.export(k).arrays.items():
            if "statistics/" not in name:
                np.testing.assert_allclose(array, expected[name], rtol=2e-5, atol=2e-6, err_msg=name)


@pytest.mark.parametrize(
    ("kind", "backend"), [*((kind, "torch") for kind in KINDS), ("dqn", "tensorflow"), *LONG * [("sac", "tensorflow")]]
)
def test_losses_get_scaled_rewards(kind, backend):
    """An update of scaled rewards is one of rewards that were multiplied before; so are the errors for priorities."""
    batch, multiplied = batch_of(kind), batch_of(kind)
    factors = np.array([2.0, 0.5]) / np.std(batch.reward, 1)
    multiplied.reward = (batch.reward * factors[:, None]).astype(np.float32)
    scaling, plain = learner_of(kind, backend, normalize_rewards=True), learner_of(kind, backend)
    for k, scale in enumerate((2.0, 0.5)):
        scaling.set_hyper(k, "reward_scale", scale)
    given, before = (batch, multiplied), batch.reward.copy()
    for learner, own in zip((scaling, plain), given, strict=True):
        own.weight[...] = 1
        learner.update(own, learn=np.ones(2, bool), batch_size=6)
    equal(scaling, plain)
    np.testing.assert_array_equal(batch.reward, before)
    if batch.rows is not None:
        np.testing.assert_allclose(batch.errors, multiplied.errors, rtol=1e-5)
        assert not np.allclose(batch.errors, plain_errors(batch))


def plain_errors(batch: Any) -> Any:
    """Return the errors of an update without scales."""
    again = deepcopy(batch)
    learner_of("dqn, by priorities", "torch").update(again, learn=np.ones(2, bool), batch_size=6)
    return again.errors


def test_first_priorities_are_of_scaled_rewards_and_change_no_statistics():
    memory = mt.Replay(prioritized=mt.Prioritized(initial="error"))
    settings: list[dict[str, Any]] = [{"normalize_rewards": True, "reward_scale": 3.0}, {}]
    agents = [mt.DQN(VECTOR, DISCRETE, seed=0, memory=memory, network=mt.MLP((6,)), **given) for given in settings]
    batch = some_transitions(np.random.default_rng(5), VECTOR, DISCRETE, 1, 6)
    scaling, plain = (agent.learner_ for agent in agents)
    known = scaling.weights.statistics[REWARD]
    known.update(batch.reward[..., None], batch.weight)
    deviation, count = known.deviation.copy(), known.count.copy()
    rated = [RowErrors(each.algorithm, each.backend, each.weights, each.hyper) for each in (scaling, plain)]
    found = rated[0](batch)
    batch.reward = (batch.reward * 3 / deviation).astype(np.float32)
    np.testing.assert_allclose(found, rated[1](batch), rtol=1e-5)
    assert known.count == count


@pytest.mark.parametrize("backend", BOTH)
def test_rewards_of_a_model_are_scaled_after_the_model(backend):
    seen = []

    def model(observation: Any, action: Any, reward: Any) -> Any:
        seen.append(reward.copy())
        return reward + 1

    batch, other = batch_of("dqn"), batch_of("dqn")
    other.reward = 4 * (other.reward + 1)
    scaling = learner_of("dqn", backend, reward_model=model, reward_scale=4.0, n_step=1)
    plain = learner_of("dqn", backend)
    scaling.update(batch, learn=np.ones(2, bool), batch_size=6)
    plain.update(other, learn=np.ones(2, bool), batch_size=6)
    equal(scaling, plain)
    np.testing.assert_array_equal(seen[0], batch.reward[0][batch.weight[0] > 0])


@pytest.mark.parametrize(
    ("kind", "backend"),
    [(mt.VDN, "torch"), (mt.QMIX, "torch"), (mt.WQMIX, "torch"), (mt.VDN, "tensorflow"),
     *LONG * [(mt.QMIX, "tensorflow"), (mt.WQMIX, "tensorflow")]],
)  # fmt: skip
def test_a_team_scales_its_one_reward(kind, backend):
    batch, multiplied = mixing.two_steps(), mixing.two_steps()
    multiplied.reward = (batch.reward * 3 / np.std(batch.reward)).astype(np.float32)
    scaling, plain = (
        mixing.linear_team(kind, backend=backend, **given)[1]
        for given in ({"reward_scale": 3.0, "normalize_rewards": True}, {})
    )
    for learner, own in ((scaling, batch), (plain, multiplied)):
        learner.update(own, learn=np.ones(2, bool), batch_size=3)
    for first, other in zip(scaling.members, plain.members, strict=True):
        assert REWARD not in first.weights.statistics
        saved, expected = first.export(0).arrays, other.export(0).arrays
        assert saved[f"team/statistics/{REWARD}/count"] == 3
        for name, array in expected.items():
            np.testing.assert_allclose(saved[name], array, rtol=2e-5, atol=2e-6, err_msg=name)


@pytest.mark.parametrize("kind", [mt.MADDPG, mt.MASAC])
def test_agents_of_a_team_with_rewards_of_their_own_have_scales_of_their_own(kind):
    batch, multiplied = central.three_steps(), central.three_steps()
    scales = (2.0, 5.0)
    for rows, scale in zip(multiplied.members, scales, strict=True):
        deviation = np.std(rows.reward[rows.weight > 0])
        rows.reward = (rows.reward * scale / deviation).astype(np.float32)
    agents, scaling = central.linear_team(kind, normalize_rewards=True)
    for agent, scale in zip(agents, scales, strict=True):
        agent.hyper.reward_scale = scale
    _, plain = central.linear_team(kind)
    for learner, own in ((scaling, batch), (plain, multiplied)):
        learner.update(own, learn=np.ones(2, bool), batch_size=3)
    assert [member.weights.statistics[REWARD].count[0] for member in scaling.members] == [3, 2]
    for first, other in zip(scaling.members, plain.members, strict=True):
        saved = first.export(0).arrays
        for name, array in other.export(0).arrays.items():
            np.testing.assert_allclose(saved[name], array, rtol=2e-5, atol=2e-6, err_msg=name)


def test_different_factors_of_one_reward_are_refused():
    agents, learner = mixing.linear_team(mt.VDN)
    agents[1].hyper.reward_scale = 7.0
    with pytest.raises(AgentError, match=r"reward_scale is 1, 7.*reward_scale="):
        learner.update(mixing.two_steps(), learn=np.ones(2, bool), batch_size=3)


@pytest.mark.parametrize(
    "given", [{"reward_scale": 0.0}, {"reward_scale": -2.0}, {"reward_scale": "big"}, {"normalize_rewards": "yes"},
              {"reward_scale": None}, {"reward_scale": 1e9}, {"reward_scale": mt.linear(1.0, 0.0, 10)}]
)  # fmt: skip
def test_wrong_values_are_refused(given):
    (name,) = given
    with pytest.raises(ConfigError, match=f"(?i)dqn.*{name}"):
        mt.DQN(VECTOR, DISCRETE, **given)


@pytest.mark.parametrize("kind", [mt.PPO, mt.TRL, mt.BC])
def test_algorithms_without_rewards_of_a_memory_have_no_such_settings(kind):
    with pytest.raises(ConfigError, match="reward_scale"):
        kind(VECTOR, DISCRETE, reward_scale=2.0)
