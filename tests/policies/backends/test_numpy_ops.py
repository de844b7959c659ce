"""The numpy names give what torch's give, and acting over them decides what acting over tensors decides."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import torch
from gymnasium import spaces

import marltrain as mt
from marltrain.policies.algorithms.ppo import PPOAlgorithm
from marltrain.policies.backends import numpy_ops
from marltrain.policies.backends.torch import ops as torch_ops

X = np.random.default_rng(0).standard_normal((3, 5, 4), np.float32) * 3
LEFT_TO_TORCH = {"scaled_image", "channels_first", "convolve", "flatten"}  # images are acted on in tensors
ONE = ("exp", "square", "absolute", "tanh", "relu", "elu", "silu", "gelu", "softplus", "zeros_like", "ones_like")
ALONG = ("logsumexp", "softmax", "log_softmax", "sum", "mean", "max", "argmax")


def names(module: object) -> set[str]:
    return {
        name
        for name, value in vars(module).items()
        if callable(value) and name[0].islower() and not inspect.isclass(value)
    }


def test_every_name_is_there_but_those_of_images():
    assert names(torch_ops) - names(numpy_ops) == LEFT_TO_TORCH
    assert names(numpy_ops) <= names(torch_ops)


@pytest.mark.parametrize("name", ONE)
def test_elementwise(name):
    theirs = getattr(torch_ops, name)(torch.from_numpy(X)).numpy()
    np.testing.assert_allclose(getattr(numpy_ops, name)(X), theirs, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("name", ALONG)
@pytest.mark.parametrize("axis", [0, -1])
def test_along_an_axis(name, axis):
    theirs = getattr(torch_ops, name)(torch.from_numpy(X), axis).numpy()
    np.testing.assert_allclose(getattr(numpy_ops, name)(X, axis), theirs, rtol=2e-6, atol=2e-6)


def test_products_picks_and_joins():
    weight, bias = np.ones((3, 4, 2), np.float32) * X[:, :4, :2], X[:, 0, :2]
    index = np.array([[0, 1, 2, 3, 0]] * 3)
    tensors = [torch.from_numpy(np.ascontiguousarray(a)) for a in (X, weight, bias, index)]
    for name, mine, theirs in (
        ("linear", (X, weight, bias), tensors[:3]),
        ("take", (X, index), (tensors[0], tensors[3])),
        ("append_constants", (X, bias), (tensors[0], tensors[2])),
    ):
        np.testing.assert_allclose(
            getattr(numpy_ops, name)(*mine), getattr(torch_ops, name)(*theirs).numpy(), rtol=1e-5, atol=1e-5
        )
    halves = numpy_ops.split(X, [1, 3])
    assert [half.shape[-1] for half in halves] == [1, 3]
    assert np.array_equal(numpy_ops.concat(halves, -1), X)
    assert numpy_ops.stack([X, X], 0).shape == (2, *X.shape)
    assert numpy_ops.flag(X > 0).dtype == np.float32 and numpy_ops.stop_gradient(X) is X


@pytest.mark.parametrize("action_space", [spaces.Discrete(4), spaces.MultiDiscrete([2, 3]), spaces.Box(-2, 1, (3,))])
@pytest.mark.parametrize("explore", [False, True])
def test_acting_in_numpy_decides_what_acting_in_tensors_decides(action_space, explore):
    agent = mt.PPO(spaces.Box(-1, 1, (6,)), action_space, seed=3)
    learner = agent.learner()
    obs = np.random.default_rng(1).standard_normal((1, 40, 6), np.float32)
    coins = np.full((1, 40), explore)

    def decide() -> mt.Acted:
        return learner.act(obs, None, None, turn=coins, explore=coins, rngs=learner.rngs("test"))

    assert learner._in_numpy is not None
    mine = decide()
    learner._in_numpy = None
    theirs = decide()
    np.testing.assert_allclose(mine.action, theirs.action, rtol=1e-5, atol=1e-6)
    for name, value in theirs.extras.items():
        np.testing.assert_allclose(mine.extras[name], value, rtol=1e-5, atol=1e-5)


def test_weights_are_shared_and_not_copied():
    learner = mt.DQN(spaces.Box(-1, 1, (6,)), spaces.Discrete(3), seed=0).learner()
    assert learner._in_numpy is not None
    obs = np.ones((1, 2, 6), np.float32)
    before = learner._in_numpy["q"](obs)[0].copy()
    learner.online["q"].flat.add_(0.1)
    assert not np.allclose(learner._in_numpy["q"](obs)[0], before)


def test_images_and_a_users_own_act_are_left_to_the_framework():
    class Mine(PPOAlgorithm):
        def act(self, *given):
            return super().act(*given)

    class Agent(mt.PPO):
        algorithm_class = Mine

    box = spaces.Box(-1, 1, (6,))
    assert Agent(box, spaces.Discrete(3), seed=0).learner()._in_numpy is None
    assert mt.PPO(spaces.Box(0, 255, (12, 12, 3), np.uint8), spaces.Discrete(3), seed=0).learner()._in_numpy is None
