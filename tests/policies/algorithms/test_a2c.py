"""A2C against tianshou's from equal weights and rows, its losses worked out by hand, and stacked against looped."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tianshou import algorithm as tianshou_algorithms
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
from tianshou.algorithm.optim import RMSpropOptimizerFactory
from tianshou.data import Batch, ReplayBuffer
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic
from tianshou.utils.torch_utils import policy_within_training_step

import marltrain as mt
from marltrain.policies.batches.batch import Rollout
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from tests.policies.some_batches import VECTOR, of_agent, some_rollout

ON = np.ones(1, bool)
NUMBERS: dict[str, Any] = {"gamma": 0.97, "max_grad_norm": 0.3}


def tianshou_a2c(agent, **settings):
    """tianshou's A2C over networks of one hidden layer (11,) with the weights of `agent`."""

    def body() -> Net:
        return Net(state_shape=(5,), hidden_sizes=[11], activation=torch.nn.Tanh)

    actor = DiscreteActor(preprocess_net=body(), action_shape=3, softmax_output=False)
    critic = DiscreteCritic(preprocess_net=body())
    arrays = agent.learner_.export(0).arrays
    for name, net in (("actor", actor), ("critic", critic)):
        layers = [layer for layer in net.modules() if isinstance(layer, torch.nn.Linear)]
        for place, layer in zip(("hidden0", "head0"), layers, strict=True):
            layer.weight.data = torch.from_numpy(arrays[f"net/{name}/{place}.weight"].T.copy())
            layer.bias.data = torch.from_numpy(arrays[f"net/{name}/{place}.bias"].copy())
    policy = DiscreteActorPolicy(actor=actor, action_space=spaces.Discrete(3))
    optim = RMSpropOptimizerFactory(lr=agent.settings.learning_rate, alpha=0.99, eps=1e-5)
    return tianshou_algorithms.A2C(policy=policy, critic=critic, optim=optim, **NUMBERS, **settings)


def weights_of(algorithm):
    """The weights of tianshou's networks under the names of ours."""
    result = {}
    for name, net in (("actor", algorithm.policy.actor), ("critic", algorithm.critic)):
        layers = [layer for layer in net.modules() if isinstance(layer, torch.nn.Linear)]
        for place, layer in zip(("hidden0", "head0"), layers, strict=True):
            result[f"net/{name}/{place}.weight"] = layer.weight.detach().numpy().T
            result[f"net/{name}/{place}.bias"] = layer.bias.detach().numpy()
    return result


def both(seed: int, rows: int) -> tuple[ReplayBuffer, Rollout]:
    """The same rows for tianshou and for us: episodes of 5 rows, terminated and truncated in turn, the last open."""
    rng = np.random.default_rng(seed)
    obs = rng.uniform(-1, 1, (rows, 5)).astype(np.float32)
    following = rng.uniform(-1, 1, (rows, 5)).astype(np.float32)
    action, reward = rng.integers(3, size=rows), rng.normal(size=rows).astype(np.float32)
    buffer, cut, terminated = ReplayBuffer(rows), np.zeros(rows, bool), np.zeros(rows, bool)
    for i in range(rows):
        over = i % 5 == 4
        terminated[i], cut[i] = over and i % 10 == 4, over or i == rows - 1
        after = following[i] if cut[i] else obs[i + 1]
        buffer.add(Batch(
            obs=obs[i], act=action[i], rew=reward[i], obs_next=after, terminated=terminated[i],
            truncated=over and not terminated[i], info={},
        ))  # fmt: skip
    boot = np.where(cut, np.cumsum(cut) - 1, -1)
    one: dict[str, Any] = {
        "obs": obs, "action": action, "reward": reward, "weight": np.ones(rows, np.float32), "cut": cut,
        "discount": np.where(terminated, 0, NUMBERS["gamma"]).astype(np.float32), "boot": boot,
        "truncated": cut & ~terminated, "boot_obs": following[cut],
    }  # fmt: skip
    lifted = {name: array[None] for name, array in one.items()}
    extras = {"log_prob": np.zeros((1, rows), np.float32)}
    return buffer, Rollout(legal=None, boot_legal=None, extras=extras, **lifted)


@pytest.mark.parametrize("gae_lambda", [1.0, 0.9])
def test_updates_equal_tianshous(gae_lambda):
    """tianshou's loss of the critic is not halved: its coefficient is half of ours."""
    agent = mt.A2C(
        VECTOR, spaces.Discrete(3), seed=3, network=mt.MLP((11,)), value_coef=0.8, entropy_coef=0.02,
        gae_lambda=gae_lambda, **NUMBERS,
    )  # fmt: skip
    start = agent.learner_.export(0).arrays
    other = tianshou_a2c(agent, vf_coef=0.4, ent_coef=0.02, gae_lambda=gae_lambda)
    for seed in range(3):
        buffer, rollout = both(seed, 23)
        with policy_within_training_step(other.policy):
            other.update(buffer=buffer, batch_size=None, repeat=1)
        agent.learner_.update(rollout, learn=ON, batch_size=64)
    arrays = agent.learner_.export(0).arrays
    for name, array in weights_of(other).items():
        np.testing.assert_allclose(arrays[name], array, atol=2e-6, err_msg=name)
        assert np.abs(array - start[name]).max() > 1e-4, f"{name} hardly moved: the comparison says nothing"


def test_losses_by_hand():
    """A critic that says 0 everywhere and a uniform policy of two actions: advantages are discounted sums."""
    agent = mt.A2C(VECTOR, spaces.Discrete(2), seed=0, learning_rate=0.0, entropy_coef=0.5, value_coef=0.25)
    state = agent.learner_.export(0)
    for name, array in state.arrays.items():
        if name.startswith("net/") and "head0" in name:
            array[...] = 0.0
    agent.learner_.load(0, state)
    batch = some_rollout(np.random.default_rng(0), VECTOR, spaces.Discrete(2), [3])
    batch.reward[0], batch.discount[0] = [1.0, 2.0, 4.0], [0.5, 0.5, 0.0]
    batch.cut[0], batch.boot[0] = [False, False, True], [-1, -1, 0]
    metrics = agent.learner_.update(batch, learn=ON, batch_size=64)
    # advantages 1 + 0.5 * (2 + 0.5 * 4) = 3, 2 + 0.5 * 4 = 4, and 4
    assert metrics["loss/actor"][0] == pytest.approx(math.log(2) * (3 + 4 + 4) / 3, rel=1e-5)
    assert metrics["loss/critic"][0] == pytest.approx(0.5 * (9 + 16 + 16) / 3, rel=1e-5)
    assert metrics["entropy"][0] == pytest.approx(math.log(2), rel=1e-5)
    total = metrics["loss/actor"][0] + 0.25 * metrics["loss/critic"][0] - 0.5 * math.log(2)
    assert metrics["loss/total"][0] == pytest.approx(total, rel=1e-5)
    assert agent.learner_.gradient_steps[0] == 1


def test_stacked_equals_looped():
    agents = [mt.A2C(VECTOR, spaces.Discrete(4), seed=k, network=mt.MLP((9,))) for k in range(3)]
    first = agents[0]
    learner = AlgorithmLearner(first.algorithm, first.backend, [0, 1, 2], draw=True)
    rng = np.random.default_rng(1)
    for counts in ([7, 12, 5], [4, 9, 11]):
        batch = some_rollout(rng, VECTOR, spaces.Discrete(4), counts, masked=True)
        learner.update(batch, learn=np.ones(3, bool), batch_size=64)
        for k, agent in enumerate(agents):
            agent.learner_.update(of_agent(batch, k, counts[k]), learn=ON, batch_size=64)
    for k, agent in enumerate(agents):
        together, alone = learner.export(k), agent.learner_.export(0)
        assert together.info == alone.info
        for name, array in alone.arrays.items():
            np.testing.assert_allclose(together.arrays[name], array, atol=1e-5, err_msg=name)
