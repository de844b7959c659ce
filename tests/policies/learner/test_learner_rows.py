"""What each row of a learner keeps to itself: phases that come seldom, weights of rows, buffers of a target."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gymnasium import spaces
from torch import nn

import marltrain as mt
from marltrain.policies.algorithms.dqn import DQNAlgorithm
from marltrain.policies.batches.batch import Rollout, Transitions
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner

BOX, CHOICE = spaces.Box(-1, 1, (4,)), spaces.Discrete(3)


def some(agents: int, *, of: slice = slice(None)) -> Transitions:
    """Random transitions for K agents, or for some of these."""
    rng, shape = np.random.default_rng(0), (agents, 8)
    obs, following = (rng.standard_normal((*shape, 4), np.float32)[of] for _ in range(2))
    action, reward = rng.integers(3, size=shape)[of], rng.standard_normal(shape, np.float32)[of]
    same = np.ones(shape, np.float32)[of]
    return Transitions(
        obs=obs, legal=None, action=action, reward=reward, discount=0.9 * same, weight=same, extras={},
        next_obs=following, next_legal=None, cells=np.zeros(same.shape, np.int64),
    )  # fmt: skip


class EverySecond(DQNAlgorithm):
    @property
    def phases(self):
        return tuple(replace(phase, every=2) for phase in super().phases)


class Seldom(mt.DQN):
    algorithm_class = EverySecond


def test_a_phase_that_comes_seldom_is_counted_by_each_row_for_itself():
    agent = Seldom(BOX, CHOICE, seed=0)
    stacked = AlgorithmLearner(agent.algorithm, agent.backend, [0, 1], draw=True)
    looped = [AlgorithmLearner(agent.algorithm, agent.backend, [seed], draw=True) for seed in (0, 1)]
    for learn in ((True, False), (True, True), (True, True), (True, True)):
        stacked.update(some(2), learn=np.array(learn), batch_size=8)
        for k, one in enumerate(looped):
            if learn[k]:
                one.update(some(2, of=slice(k, k + 1)), learn=np.array([True]), batch_size=8)
    for k, one in enumerate(looped):
        mine = stacked.export(k).arrays
        for name, theirs in one.export(0).arrays.items():
            np.testing.assert_allclose(mine[name], theirs, rtol=1e-5, atol=1e-6, err_msg=name)


def test_a_target_takes_over_the_running_statistics_of_a_module():
    module = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    agent = mt.DQN(BOX, CHOICE, seed=0, network=module, target_sync=1)
    learner = agent.learner()
    learner.update(some(1), learn=np.array([True]), batch_size=8)
    online, target = (
        net.arrays(0)["1.running_mean"] for net in (learner.weights.online["q"], learner.weights.target["q"])
    )
    assert np.abs(online).max() > 0 and np.array_equal(online, target)


def test_streams_of_agents_that_never_learn_go_on_from_one_training_to_the_next():
    agent = mt.RandomAgent(BOX, CHOICE, seed=3)
    assert agent.learner() is agent.learner()


@pytest.mark.parametrize("clip", [None, 1e9])
def test_no_value_clipping_is_clipping_at_infinity(clip):
    agents = [mt.PPO(BOX, CHOICE, seed=0, value_clip=value, minibatches=1) for value in (None, clip)]
    rng, shape = np.random.default_rng(0), (1, 6)
    batch = Rollout(
        obs=rng.standard_normal((*shape, 4), np.float32), legal=None, action=rng.integers(3, size=shape),
        reward=rng.standard_normal(shape, np.float32), discount=np.full(shape, 0.9, np.float32),
        weight=np.ones(shape, np.float32), extras={"log_prob": np.full(shape, -1.1, np.float32)},
        cut=np.ones(shape, bool), truncated=np.zeros(shape, bool), boot=np.zeros(shape, np.int64),
        boot_obs=np.ones((1, 1, 4), np.float32), boot_legal=None,
    )  # fmt: skip
    for agent in agents:
        agent.learner().update(batch, learn=np.array([True]), batch_size=6)
    first, second = (agent.learner().export(0).arrays for agent in agents)
    for name, value in first.items():
        np.testing.assert_allclose(value, second[name], rtol=1e-5, atol=1e-7)
