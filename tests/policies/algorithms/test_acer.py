"""ACER: its gradient and trust region by hand, one update against a plain one in torch, stacked against looped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import ConfigError, SpecError
from marltrain.policies.algorithms.acer import policy_gradient, within_trust_region
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from tests.policies.backends.both import on_both
from tests.policies.some_batches import VECTOR, of_agent, some_rollout

ON = np.ones(1, bool)


def column(*values):
    return np.array([values], np.float32)


@on_both
def test_the_gradient_by_hand(backend):
    """c = 2; ratios 4, 0.5 of action 0 and 0.625, 1.25 of action 1; V = 0.8 * 3 + 0.2 * 1 = 2.6 and 0.25 * 2 = 0.5."""
    policy, behavior = [[[0.8, 0.2], [0.5, 0.5]]], [[[0.2, 0.8], [0.4, 0.6]]]
    q, target, action = [[[3.0, 1.0], [2.0, -1.0]]], column(4.6, 1.5), np.array([[0, 1]])
    arrays = (np.array(policy, np.float32), np.array(behavior, np.float32), np.array(q, np.float32))
    given = [backend.tensor(array) for array in (*arrays, target, action, np.array([[2.0]], np.float32))]
    taken, others = (backend.numpy(part) for part in policy_gradient(backend.ops, *given))
    # row 0: min(2, 4) (4.6 - 2.6) / 0.8 = 5, and (1 - 2 / 4) (3 - 2.6) = 0.2 for action 0
    # row 1: min(2, 0.5 / 0.6) (1.5 - 0.5) / 0.5 = 5 / 3, nothing above 2
    np.testing.assert_allclose(taken, column(5.0, 5 / 3), rtol=1e-4)
    np.testing.assert_allclose(others, [[[0.2, 0.0], [0.0, 0.0]]], atol=1e-5)


@on_both
def test_the_trust_region_by_hand(backend):
    """k = -(0.5 / 0.25, 0.5 / 0.75) = -(2, 2/3).  g = (-3, 0): k g = 6, above 1 by 5, so z = g - 5 / (4 + 4/9) k.

    A gradient towards the average policy (k g < 0) stays.
    """
    policy, average = np.array([[[0.25, 0.75]] * 2], np.float32), np.array([[[0.5, 0.5]] * 2], np.float32)
    taken, others, action = column(-2.0, 3.0), np.zeros((1, 2, 2), np.float32), np.zeros((1, 2), np.int64)
    others[0, 0, 0] = -1.0
    given = [backend.tensor(array) for array in (taken, others, policy, average, action, np.ones((1, 1), np.float32))]
    found = backend.numpy(within_trust_region(backend.ops, *given))
    share = 5 / (4 + 4 / 9)
    np.testing.assert_allclose(found[0, 0], [-1 + 2 * share, 2 / 3 * share], rtol=1e-4)
    assert not found[0, 1].any()
    # the changed gradient meets the limit: k z = 1
    assert -2 * (-2 + found[0, 0, 0]) - 2 / 3 * found[0, 0, 1] == pytest.approx(1.0, rel=1e-4)


def plain_update(arrays, average, batch, gamma, settings):
    """Return loss and gradients of one agent's first update, by torch's own functions, row by row (2 layers)."""
    leaves = {name: torch.tensor(array, requires_grad=True) for name, array in arrays.items() if "target" not in name}

    def net(name, obs, held=leaves):
        hidden = torch.tanh(obs @ held[f"net/{name}/hidden0.weight"] + held[f"net/{name}/hidden0.bias"])
        return hidden @ held[f"net/{name}/head0.weight"] + held[f"net/{name}/head0.bias"]

    obs, boot_obs = torch.tensor(batch.obs[0]), torch.tensor(batch.boot_obs[0])
    legal = torch.tensor(batch.legal[0])
    f, q = torch.softmax(net("actor", obs).masked_fill(~legal, -1e9), -1), net("critic", obs)
    fa = torch.softmax(net("actor", obs, average).masked_fill(~legal, -1e9), -1)
    boot_v = (torch.softmax(net("actor", boot_obs), -1) * net("critic", boot_obs)).sum(-1).tolist()
    mu, v = torch.tensor(batch.extras["probs"][0]), (f * q).sum(-1).tolist()
    total, following = torch.zeros(()), 0.0
    for i in reversed(range(len(obs))):
        a = int(batch.action[0, i])
        if batch.cut[0, i]:
            following = boot_v[batch.boot[0, i]]
        target = float(batch.reward[0, i]) + float(batch.discount[0, i]) * following
        rho = (f[i] / mu[i].clamp(min=1e-6)).detach()
        g = torch.zeros(len(f[i]))
        c, fi, qi, vi = settings["truncation"], f[i].detach(), q[i].detach(), v[i]
        for b in range(len(g)):
            if mu[i, b] > 0:
                g[b] += max(0.0, 1 - c / float(rho[b])) * (float(qi[b]) - vi)
        g[a] += min(c, float(rho[a])) * (target - vi) / float(fi[a])
        k = torch.where(fi > 0, -fa[i].detach() / fi.clamp(min=1e-12), torch.zeros(()))
        z = g - max(0.0, float(k @ g) - settings["trust_region"]) / float(k @ k) * k
        entropy = -torch.where(f[i] > 0, f[i] * f[i].clamp(min=1e-30).log(), 0.0).sum()
        total = total - (z * f[i]).sum() + 0.5 * 0.5 * (q[i, a] - target) ** 2 - 0.01 * entropy
        following = min(1.0, float(rho[a])) * (target - float(qi[a])) + vi
    names = [name for name in leaves if name.startswith("net/")]
    grads = torch.autograd.grad(total / len(obs), [leaves[name] for name in names])
    return {name: grad.numpy() for name, grad in zip(names, grads, strict=True)}


def test_an_update_equals_a_plain_one():
    """One step of plain gradient descent; 23 rows with ends of all kinds, masks, weights that are truncated."""
    settings: dict[str, Any] = {"truncation": 1.5, "trust_region": 0.2}
    agent = mt.ACER(
        VECTOR, spaces.Discrete(4), seed=2, network=mt.MLP((11,)), optimizer="sgd", learning_rate=0.5,
        max_grad_norm=None, average_decay=1.0, **settings,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    for _ in range(2):  # the second time, the average policy is another
        batch = some_rollout(rng, VECTOR, spaces.Discrete(4), [23], masked=True)
        before = agent.learner_.export(0).arrays
        average = {n.replace("target_", ""): torch.tensor(a) for n, a in before.items() if "target_" in n}
        grads = plain_update(before, average, batch, 0.97, settings)
        agent.learner_.update(batch, learn=ON, batch_size=64)
        after = agent.learner_.export(0).arrays
        for name, grad in grads.items():
            np.testing.assert_allclose(after[name], before[name] - 0.5 * grad, atol=1e-5, err_msg=name)
            assert np.abs(grad).max() > 4e-4, name


def test_stacked_equals_looped_and_the_average_follows():
    agents = [mt.ACER(VECTOR, spaces.Discrete(4), seed=k, network=mt.MLP((9,)), average_decay=0.9) for k in range(3)]
    first = agents[0]
    learner = AlgorithmLearner(first.algorithm, first.backend, [0, 1, 2], draw=True)
    rng = np.random.default_rng(1)
    for counts in ([7, 12, 5], [4, 9, 11]):
        batch = some_rollout(rng, VECTOR, spaces.Discrete(4), counts, masked=True)
        before = learner.export(0).arrays
        learner.update(batch, learn=np.array([True, False, True]), batch_size=64)
        after, name = learner.export(0).arrays, "actor/head0.weight"
        moved = 0.9 * before[f"net/target_{name}"] + 0.1 * after[f"net/{name}"]
        np.testing.assert_allclose(after[f"net/target_{name}"], moved, atol=1e-6)
        for k in (0, 2):
            agents[k].learner_.update(of_agent(batch, k, counts[k]), learn=ON, batch_size=64)
    for k, agent in enumerate(agents):
        together, alone = learner.export(k), agent.learner_.export(0)
        for name, array in alone.arrays.items():
            np.testing.assert_allclose(together.arrays[name], array, atol=1e-5, err_msg=name)


def test_acting_stores_the_probabilities_of_all_actions():
    agent = mt.ACER(VECTOR, spaces.Discrete(3), seed=0)
    obs = np.random.default_rng(0).uniform(-1, 1, (1, 4, 5)).astype(np.float32)
    legal = np.array([[[True, False, True]] * 4])
    everyone = np.ones((1, 4), bool)
    acted = agent.learner_.act(mt.ActInputs(obs, legal, everyone), turn=everyone, rngs=agent.learner_.rngs("act"))
    probs = acted.extras["probs"]
    assert probs.shape == (1, 4, 3) and not probs[..., 1].any()
    np.testing.assert_allclose(probs.sum(-1), 1.0, rtol=1e-5)


def test_replayed_batches_follow_each_rollout():
    """100 env steps, rollouts of 20: 5 updates and 3 times as many from the memory."""
    agents = mt.make_agents("acer", "gymnasium/CartPole-v1", seed=0, replay_ratio=3, sequence_length=7, batch_size=10)
    trainer = mt.DecentralizedTrainer(
        "gymnasium/CartPole-v1", num_train_envs=4, update_freq=20, steps_per_train=100, test_freq=None, run_dir=False,
        progress=False, seed=0,
    )  # fmt: skip
    result = trainer.train(agents, [1], plot=False)
    assert result["num_gradient_steps"] == 5 * (1 + 3)


def test_what_it_cannot_learn_is_refused():
    with pytest.raises(SpecError, match="ACER needs a Discrete action space"):
        mt.ACER(VECTOR, spaces.Box(-1, 1, (2,)), seed=0)
    with pytest.raises(ConfigError, match="only the actor; give the critic's too"):
        mt.ACER(VECTOR, spaces.Discrete(2), seed=0, network=torch.nn.Linear(5, 2))
