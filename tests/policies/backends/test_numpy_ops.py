"""Acting over the numpy names decides what acting over tensors decides. (The names themselves: test_ops.py.)"""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.policies.algorithms.ppo import PPOAlgorithm
from marltrain.policies.batches.batch import ActInputs
from tests.policies.some_batches import some_transitions

BOX = spaces.Box(-1, 1, (6,), np.float32)
on_both = pytest.mark.parametrize("backend", ["torch", "tensorflow"])


@on_both
@pytest.mark.parametrize("action_space", [spaces.Discrete(4), spaces.MultiDiscrete([2, 3]), spaces.Box(-2, 1, (3,))])
@pytest.mark.parametrize("explore", [False, True])
def test_acting_in_numpy_decides_what_acting_in_tensors_decides(action_space, explore, backend):
    learner = mt.PPO(BOX, action_space, seed=3, backend=backend).learner()
    obs = np.random.default_rng(1).standard_normal((1, 40, 6), np.float32)
    coins = np.full((1, 40), explore)

    def decide() -> mt.Acted:
        return learner.act(ActInputs(obs, None, coins), turn=coins, rngs=learner.rngs("test"))

    learner.actor._compiled = {None: None}  # not in compiled code
    assert learner.actor._in_numpy is not None
    mine = decide()
    learner.actor._in_numpy = None
    theirs = decide()
    np.testing.assert_allclose(mine.action, theirs.action, rtol=1e-5, atol=1e-6)
    for name, value in theirs.extras.items():
        np.testing.assert_allclose(mine.extras[name], value, rtol=1e-5, atol=1e-5)


@on_both
def test_it_acts_with_the_weights_that_learning_left(backend):
    learner = mt.DQN(BOX, spaces.Discrete(3), seed=0, backend=backend, learning_rate=0.1, target_sync=1).learner()
    assert learner.actor._in_numpy is not None
    obs = np.ones((1, 2, 6), np.float32)
    before = {name: net(obs)[0].copy() for name, net in learner.actor._in_numpy.items()}
    batch = some_transitions(np.random.default_rng(0), BOX, 3, 1, 8)
    learner.update(batch, learn=np.array([True]), batch_size=8)
    for name, net in learner.actor._in_numpy.items():
        now, tensors = net(obs)[0], learner.weights.nets[name](learner.backend.tensor(obs))[0]
        np.testing.assert_allclose(now, learner.backend.numpy(tensors), rtol=1e-5, atol=1e-6)
        assert not np.allclose(now, before[name])


@on_both
def test_images_and_a_users_own_act_are_left_to_the_framework(backend):
    class Mine(PPOAlgorithm):
        def act(self, *given):
            return super().act(*given)

    class Agent(mt.PPO):
        algorithm_class = Mine

    picture = spaces.Box(0, 255, (12, 12, 3), np.uint8)
    assert Agent(BOX, spaces.Discrete(3), seed=0, backend=backend).learner().actor._in_numpy is None
    assert mt.PPO(picture, spaces.Discrete(3), seed=0, backend=backend).learner().actor._in_numpy is None
