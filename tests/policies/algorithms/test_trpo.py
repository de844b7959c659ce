"""TRPO against tianshou's from equal weights and rows, its trust region, stacked against looped, saved and loaded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tianshou import algorithm as tianshou_algorithms
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic
from tianshou.utils.torch_utils import policy_within_training_step

import marltrain as mt
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from tests.policies.algorithms.test_a2c import both, weights_of
from tests.policies.some_batches import VECTOR, of_agent, some_rollout

ON = np.ones(1, bool)
BOX = spaces.Box(-2, 3, (2,), np.float32)


def tianshou_trpo(agent: Any, **settings: Any) -> Any:
    """tianshou's TRPO over networks of one hidden layer (11,) with the weights of `agent`."""

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
    optim = AdamOptimizerFactory(lr=agent.settings.learning_rate, eps=1e-5)
    return tianshou_algorithms.TRPO(policy=policy, critic=critic, optim=optim, gamma=0.97, **settings)


@pytest.mark.filterwarnings("ignore:Backtracking to step")
@pytest.mark.parametrize("max_kl", [0.01, 0.3])
def test_updates_equal_tianshous(max_kl):
    """tianshou divides advantages by the sample deviation: another factor of the gradient, the same step."""
    agent = mt.TRPO(
        VECTOR, spaces.Discrete(3), seed=3, network=mt.MLP((11,)), gamma=0.97, max_kl=max_kl, minibatches=1, epochs=5,
        max_grad_norm=None,
    )  # fmt: skip
    start = agent.learner_.export(0).arrays
    other = tianshou_trpo(agent, max_kl=max_kl, optim_critic_iters=5)
    for seed in range(3):
        buffer, rollout = both(seed, 23)
        for k, row in enumerate(np.asarray(rollout.obs)[0]):  # tianshou's probabilities are those of the current policy
            out = agent.learner_.weights.nets["actor"](agent.backend.tensor(row[None, None]))[0]
            log_prob = torch.log_softmax(out.detach()[0, 0], -1)[int(rollout.action[0, k])]
            rollout.extras["log_prob"][0, k] = float(log_prob)
        with policy_within_training_step(other.policy):
            other.update(buffer=buffer, batch_size=None, repeat=1)
        metrics = agent.learner_.update(rollout, learn=ON, batch_size=64)
        assert 0 < metrics["kl"][0] <= max_kl and metrics["line_search"][0] > 0
    arrays = agent.learner_.export(0).arrays
    for name, array in weights_of(other).items():
        np.testing.assert_allclose(arrays[name], array, atol=5e-5, err_msg=name)
        assert np.abs(array - start[name]).max() > 3e-4, f"{name} hardly moved: the comparison says nothing"


def test_the_step_of_a_softmax_by_hand():
    """Two actions, logits from the biases of the last layer only: F = p (1 - p) [[1, -1], [-1, 1]] at p = 1/2.

    The gradient is c (1, -1), an eigenvector of F with eigenvalue 1/2. The step is along it; its length is such that
    (1/2 + damping) |step|^2 / 2 = max_kl, so |step|^2 = 2 * 0.02 / 0.7.
    """
    agent = mt.TRPO(
        VECTOR, spaces.Discrete(2), seed=0, network=mt.MLP(()), max_kl=0.02, damping=0.2, normalize_advantage=False,
        learning_rate=0.0, gamma=0.0,
    )  # fmt: skip
    state = agent.learner_.export(0)
    for name, array in state.arrays.items():
        if name.startswith("net/"):
            array[...] = 0.0
    agent.learner_.load(0, state)
    batch = some_rollout(np.random.default_rng(0), VECTOR, spaces.Discrete(2), [3])
    batch.obs, batch.boot_obs = np.zeros_like(batch.obs), np.zeros_like(batch.boot_obs)
    batch.discount[...] = 0.0
    batch.action[0], batch.reward[0], batch.extras["log_prob"][...] = [0, 1, 0], [3.0, 1.0, -1.0], np.log(0.5)
    metrics = agent.learner_.update(batch, learn=ON, batch_size=64)
    # -A / p * p (1 - p) = -A / 2 for the logit of the action: (-1.5 + 0.5 + 0.5, 1.5 - 0.5 - 0.5) / 3
    assert metrics["grad_norm/actor"][0] == pytest.approx(np.sqrt(2) / 6, rel=1e-4)
    step = agent.learner_.export(0).arrays["net/actor/head0.bias"]
    np.testing.assert_allclose(step, np.sqrt(0.02 / 0.7) * np.array([1.0, -1.0]), rtol=1e-4)
    p = 1 / (1 + np.exp(-2 * step[0]))
    assert metrics["kl"][0] == pytest.approx(-0.5 * np.log(4 * p * (1 - p)), rel=1e-4)
    assert metrics["kl"][0] < 0.02 and metrics["line_search"][0] == 1.0


KINDS = [(spaces.Discrete(4), True), (spaces.MultiDiscrete([2, 3]), False), (BOX, False)]


@pytest.mark.parametrize(("actions", "masked"), KINDS, ids=["masked", "multidiscrete", "continuous"])
def test_stacked_equals_looped_and_the_policy_stays_in_the_trust_region(actions, masked):
    agents = [mt.TRPO(VECTOR, actions, seed=k, network=mt.MLP((9,)), epochs=2) for k in range(3)]
    first = agents[0]
    learner = AlgorithmLearner(first.algorithm, first.backend, [0, 1, 2], draw=True)
    rng = np.random.default_rng(1)
    for counts in ([17, 12, 15], [14, 19, 11]):
        batch = some_rollout(rng, VECTOR, actions, counts, masked=masked)
        paused = learner.export(1).arrays
        metrics = learner.update(batch, learn=np.array([True, False, True]), batch_size=8)
        assert (metrics["kl"][[0, 2]] <= 0.01).all() and (metrics["kl"][[0, 2]] > 0).all()
        assert all((paused[name] == array).all() for name, array in learner.export(1).arrays.items())
        for k in (0, 2):
            agents[k].learner_.update(of_agent(batch, k, counts[k]), learn=ON, batch_size=8)
    for k in (0, 2):
        together, alone = learner.export(k), agents[k].learner_.export(0)
        assert together.info == alone.info
        for name, array in alone.arrays.items():
            np.testing.assert_allclose(together.arrays[name], array, atol=1e-4, err_msg=name)


def test_the_actor_has_no_optimizer_and_loads_in_the_other_framework(tmp_path):
    agent = mt.TRPO(VECTOR, BOX, seed=0, network=mt.MLP((9,)))
    agent.learner_.update(some_rollout(np.random.default_rng(0), VECTOR, BOX, [20]), learn=ON, batch_size=8)
    mt.save(tmp_path / "agents", [agent])
    (loaded,) = mt.load(tmp_path / "agents", backend="tensorflow")
    assert isinstance(loaded, mt.TRPO)
    arrays = loaded.learner_.export(0).arrays
    assert {name.split("/")[1] for name in arrays if name.startswith("optimizer/")} == {"critic"}
    assert all((arrays[name] == array).all() for name, array in agent.learner_.export(0).arrays.items())
    obs = np.random.default_rng(0).uniform(-1, 1, (4, 5)).astype(np.float32)
    np.testing.assert_allclose(loaded.act(obs), agent.act(obs), atol=1e-6)
