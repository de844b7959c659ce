"""PPO against one written plainly in torch for one agent, and what its settings do."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import marltrain as mt
from marltrain.core.errors import ConfigError, SpecError
from marltrain.core.seeds import generator
from marltrain.policies.optimizers import OPTIMIZERS
from tests.policies.some_batches import VECTOR, some_rollout
from tests.tiers import LONG

BOX = spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([3.0, 1.0], np.float32))
WHEELS = spaces.MultiDiscrete([2, 3])


def plain_mlp(width: int, hidden: tuple[int, ...], out: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for size in hidden:
        layers += [nn.Linear(width, size), nn.Tanh()]
        width = size
    return nn.Sequential(*layers, nn.Linear(width, out))


class PlainPPO:
    """One agent, torch's own layers, optimizer and clipping; rows of a rollout in plain loops."""

    def __init__(self, agent, action_space, hidden, *, seed, **numbers):
        self.space, self.numbers, self.rng = action_space, numbers, generator(seed, "update")
        arrays = agent.learner_.export(agent.row).arrays
        outputs = {"Discrete": lambda: action_space.n, "MultiDiscrete": lambda: sum(action_space.nvec),
                   "Box": lambda: action_space.shape[0]}[type(action_space).__name__]()  # fmt: skip
        self.actor, self.critic = plain_mlp(5, hidden, int(outputs)), plain_mlp(5, hidden, 1)
        for name, net in (("actor", self.actor), ("critic", self.critic)):
            linears = [layer for layer in net if isinstance(layer, nn.Linear)]
            for place, layer in zip([*(f"hidden{i}" for i in range(len(hidden))), "head0"], linears, strict=True):
                layer.weight.data = torch.from_numpy(arrays[f"net/{name}/{place}.weight"].T.copy())
                layer.bias.data = torch.from_numpy(arrays[f"net/{name}/{place}.bias"].copy())
        self.log_std = nn.Parameter(torch.full((int(outputs),), -0.5)) if isinstance(action_space, spaces.Box) else None
        own = [self.log_std] if self.log_std is not None else []
        self.parameters = [*self.actor.parameters(), *own, *self.critic.parameters()]
        groups = [
            {"params": [*self.actor.parameters(), *own], "lr": numbers["learning_rate"]},
            {"params": list(self.critic.parameters()), "lr": numbers["critic_learning_rate"]},
        ]
        self.optimizer = torch.optim.Adam(groups, eps=1e-5)

    def distribution(self, obs, legal):
        out = self.actor(obs)
        if self.log_std is not None:
            return torch.distributions.Independent(torch.distributions.Normal(out, self.log_std.exp()), 1)
        if isinstance(self.space, spaces.MultiDiscrete):
            return [torch.distributions.Categorical(logits=part) for part in out.split(self.space.nvec.tolist(), -1)]
        return torch.distributions.Categorical(logits=out if legal is None else out.masked_fill(~legal, -torch.inf))

    def evaluate(self, obs, legal, taken):
        result = self.distribution(obs, legal)
        if isinstance(result, list):
            log_prob = sum(one.log_prob(taken[:, d]) for d, one in enumerate(result))
            return log_prob, sum(one.entropy() for one in result)
        if legal is None:
            return result.log_prob(taken), result.entropy()
        p = result.probs
        return result.log_prob(taken), -torch.where(p > 0, p * p.clamp(min=1e-30).log(), 0.0).sum(-1)

    def advantages(self, batch):
        """GAE backwards over the rows, each deciding for itself what follows it."""
        with torch.no_grad():
            value = self.critic(torch.from_numpy(batch.obs[0]))[:, 0].numpy().astype(np.float64)
            boot = self.critic(torch.from_numpy(batch.boot_obs[0]))[:, 0].numpy().astype(np.float64)
        advantage = np.zeros(len(value))
        for i in reversed(range(len(value))):
            chained = batch.boot[0, i] == -1
            following = value[i + 1] if chained else boot[batch.boot[0, i]]
            advantage[i] = batch.reward[0, i] + batch.discount[0, i] * following - value[i]
            if chained:
                advantage[i] += batch.discount[0, i] * self.numbers["gae_lambda"] * advantage[i + 1]
        return torch.from_numpy(advantage.astype(np.float32)), torch.from_numpy(value.astype(np.float32))

    def update(self, batch):
        n = self.numbers
        advantage, value = self.advantages(batch)
        target, obs = advantage + value, torch.from_numpy(batch.obs[0])
        legal = None if batch.legal is None else torch.from_numpy(batch.legal[0])
        taken = torch.from_numpy(batch.extras["raw"][0] if "raw" in batch.extras else batch.action[0])
        old = torch.from_numpy(batch.extras["log_prob"][0])
        for _ in range(n["epochs"]):
            for share in np.array_split(self.rng.permutation(len(obs)), n["minibatches"]):
                pick = torch.from_numpy(share)
                log_prob, entropy = self.evaluate(obs[pick], None if legal is None else legal[pick], taken[pick])
                a = advantage[pick]
                a = (a - a.mean()) / (a.std(unbiased=False) + 1e-8)
                ratio = (log_prob - old[pick]).exp()
                policy_loss = -torch.min(ratio * a, ratio.clamp(1 - n["clip"], 1 + n["clip"]) * a).mean()
                now = self.critic(obs[pick])[:, 0]
                held = value[pick] + (now - value[pick]).clamp(-n["value_clip"], n["value_clip"])
                value_loss = 0.5 * torch.max((now - target[pick]) ** 2, (held - target[pick]) ** 2).mean()
                loss = policy_loss + n["value_coef"] * value_loss - n["entropy_coef"] * entropy.mean()
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.parameters, n["max_grad_norm"])
                self.optimizer.step()

    def arrays(self):
        result = {}
        for name, net in (("actor", self.actor), ("critic", self.critic)):
            linears = [layer for layer in net if isinstance(layer, nn.Linear)]
            for place, layer in zip([*(f"hidden{i}" for i in range(len(linears) - 1)), "head0"], linears, strict=True):
                result[f"net/{name}/{place}.weight"] = layer.weight.detach().numpy().T
                result[f"net/{name}/{place}.bias"] = layer.bias.detach().numpy()
        if self.log_std is not None:
            result["net/actor/head0.free"] = self.log_std.detach().numpy()
        return result


@pytest.mark.parametrize("value_clip", [0.1, *LONG * [None]])
@pytest.mark.parametrize(
    ("actions", "masked"),
    [(spaces.Discrete(4), False), (spaces.Discrete(4), True), (BOX, False), (WHEELS, False)],
    ids=["discrete", "masked", "continuous", "multidiscrete"],
)
def test_ppo_equals_a_plain_one(actions, masked, value_clip):
    numbers: dict[str, Any] = {
        "learning_rate": 3e-3, "critic_learning_rate": 1e-3, "clip": 0.15, "entropy_coef": 0.02, "value_coef": 0.7,
        "max_grad_norm": 0.4, "gae_lambda": 0.9, "epochs": 3, "minibatches": 4,
    }  # fmt: skip
    agent = mt.PPO(
        VECTOR, actions, seed=11, network=mt.MLP(hidden=(16, 8)), log_std=-0.5, value_clip=value_clip, **numbers
    )
    plain = PlainPPO(agent, actions, (16, 8), seed=11, value_clip=value_clip or math.inf, **numbers)
    rng = np.random.default_rng(0)
    start = agent.learner_.export(0).arrays
    for _ in range(5):
        batch = some_rollout(rng, VECTOR, actions, [23], masked=masked)
        agent.learner_.update(batch, learn=np.ones(1, bool), batch_size=64)
        plain.update(batch)
    arrays = agent.learner_.export(0).arrays
    weights = {name for name in arrays if name.startswith("net/")}
    assert set(plain.arrays()) == weights
    for name, array in plain.arrays().items():
        np.testing.assert_allclose(arrays[name], array, atol=1e-5, err_msg=name)
        assert np.abs(array - start[name]).max() > 1e-3, f"{name} hardly moved: the comparison says nothing"


def test_targets_and_metrics_by_hand():
    """A critic that says 0 everywhere: advantages are discounted rewards, and the losses can be worked out."""
    agent = mt.PPO(
        VECTOR, spaces.Discrete(2), seed=0, minibatches=1, epochs=1, normalize_advantage=False, gae_lambda=0.5,
        max_grad_norm=None, entropy_coef=0.0, learning_rate=0.0,
    )  # fmt: skip
    state = agent.learner_.export(0)
    for name, array in state.arrays.items():
        if name.startswith("net/") and "head0" in name:
            array[...] = 0.0  # the policy is uniform, the value 0
    agent.learner_.load(0, state)
    batch = some_rollout(np.random.default_rng(0), VECTOR, spaces.Discrete(2), [3])
    batch.reward[0], batch.discount[0] = [1.0, 2.0, 4.0], [0.5, 0.5, 0.0]
    batch.cut[0], batch.boot[0] = [False, True, True], [-1, 0, 1]
    batch.extras["log_prob"][0] = np.log([0.5, 0.25, 1.0])  # ratios 1, 2 and 0.5
    metrics = agent.learner_.update(batch, learn=np.ones(1, bool), batch_size=64)
    # advantages 1 + 0.5 * 0.5 * 2 = 1.5, 2, 4; the second is held at 1.2 * 2, the third is 0.5 * 4
    assert metrics["loss/actor"][0] == pytest.approx(-(1.5 + 2.4 + 2.0) / 3, abs=1e-6)
    assert metrics["loss/critic"][0] == pytest.approx(0.5 * (1.5**2 + 2**2 + 4**2) / 3, abs=1e-5)
    assert metrics["loss/total"][0] == pytest.approx(metrics["loss/actor"][0] + 0.5 * metrics["loss/critic"][0])
    assert metrics["entropy"][0] == pytest.approx(math.log(2))
    assert metrics["clip_share"][0] == pytest.approx(2 / 3)
    assert metrics["approx_kl"][0] == pytest.approx((0 + (2 - 1 - math.log(2)) + (0.5 - 1 + math.log(2))) / 3, abs=1e-6)
    assert metrics["explained_variance"][0] == pytest.approx(0.0, abs=1e-6)
    assert metrics["learning_rate/actor"][0] == metrics["learning_rate/critic"][0] == 0.0


def test_gradient_norms_before_and_after_clipping():
    agent = mt.PPO(VECTOR, spaces.Discrete(2), seed=0, minibatches=1, epochs=1, max_grad_norm=1e-3)
    batch = some_rollout(np.random.default_rng(0), VECTOR, spaces.Discrete(2), [9])
    metrics = agent.learner_.update(batch, learn=np.ones(1, bool), batch_size=64)
    before, after = (
        np.hypot(metrics[f"{name}/actor"][0], metrics[f"{name}/critic"][0])
        for name in ("grad_norm", "grad_norm_clipped")
    )
    assert before > 0.01 and after == pytest.approx(1e-3, rel=1e-2)


def test_the_critic_may_have_its_own_network_and_learning_rate():
    agent = mt.PPO(
        VECTOR, spaces.Discrete(2), seed=0, network=mt.MLP(hidden=(6,)), critic_network=mt.MLP(hidden=(9, 7)),
        learning_rate=0.0, critic_learning_rate=1e-2, minibatches=1,
    )  # fmt: skip
    before = agent.learner_.export(0).arrays
    agent.learner_.update(
        some_rollout(np.random.default_rng(0), VECTOR, spaces.Discrete(2), [9]), learn=np.ones(1, bool), batch_size=64
    )
    after = agent.learner_.export(0).arrays
    assert after["net/actor/hidden0.weight"].shape == (5, 6)
    assert after["net/critic/hidden1.weight"].shape == (9, 7)
    same = {name: (before[name] == after[name]).all() for name in after if name.startswith("net/")}
    assert all(same[name] for name in same if "actor" in name)
    assert not any(same[name] for name in same if "critic" in name)


@pytest.mark.parametrize("actions", [spaces.Discrete(3, start=2), BOX, spaces.MultiDiscrete([2, 3], start=[5, -1])])
def test_act_stays_in_the_space_and_its_mode_does_not_depend_on_chance(actions):
    agent = mt.PPO(VECTOR, actions, seed=0, log_std=1.0)
    obs = np.random.default_rng(0).uniform(-1, 1, (50, 5)).astype(np.float32)
    explored = agent.act(obs, explore=True)
    assert len(explored) == 50
    for action in explored:
        assert actions.contains(actions.dtype.type(action) if isinstance(actions, spaces.Discrete) else action)
    assert (agent.act(obs) == agent.act(obs)).all()
    assert (agent.act(obs, explore=True) != agent.act(obs, explore=True)).any()
    single = agent.act(obs[3])
    assert np.shape(single) == np.shape(actions.sample())
    np.testing.assert_allclose(single, agent.act(obs)[3], atol=1e-6)
    some = agent.act(obs, explore=np.arange(50) < 25)
    assert (some[25:] == agent.act(obs)[25:]).all()
    assert (some[:25] != agent.act(obs)[:25]).any()


def test_act_takes_the_whole_mapping_or_its_observation_part():
    masked = spaces.Dict({"observation": VECTOR, "action_mask": spaces.Box(0, 1, (4,), np.int8)})
    agent = mt.PPO(masked, spaces.Discrete(4), seed=0)
    obs = np.zeros(5, np.float32)
    for legal in ([0, 1, 0, 0], [0, 0, 0, 1]):
        mask = np.array(legal, np.int8)
        assert agent.act({"observation": obs, "action_mask": mask}, explore=True) == legal.index(1)
        assert agent.act(obs, mask) == legal.index(1)
        assert agent.act(np.stack([obs, obs]), np.stack([mask, mask]), explore=True).tolist() == [legal.index(1)] * 2
    with pytest.raises(SpecError, match="no action is legal"):
        agent.act(obs, np.zeros(4, np.int8))
    with pytest.raises(SpecError, match="legal"):
        agent.act(obs, np.ones(3, np.int8))


def test_observations_that_may_not_be_written_are_fine():
    obs = np.zeros((2, 5), np.float32)
    obs.flags.writeable = False
    assert mt.PPO(VECTOR, spaces.Discrete(4), seed=0).act(obs).shape == (2,)
    assert np.shape(mt.PPO(VECTOR, spaces.Discrete(4), seed=0).act(obs[0])) == ()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"learning_rte": 1}, "PPO has no setting 'learning_rte'. Did you mean 'learning_rate'?"),
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"epochs": 2.5}, "epochs must be an integer, got 2.5"),
        ({"clip": -0.1}, "clip must be greater than 0"),
        ({"gamma": mt.linear(0.9, 1.1, 5)}, "gamma must be at most 1, got 1.1"),
        (
            {"optimizer": "rmsprob"},
            f"optimizer must be one of {', '.join(OPTIMIZERS)}, got 'rmsprob'. Did you mean 'rmsprop'?",
        ),
        ({"backend": "jax"}, "backend must be one of"),
        ({"device": "toaster"}, "device 'toaster' cannot be used"),
    ],
)
def test_wrong_settings(settings, words):
    with pytest.raises(ConfigError) as caught:
        mt.PPO(VECTOR, spaces.Discrete(2), seed=0, **settings)
    assert words in str(caught.value)


def test_equal_seeds_are_equal_agents_and_zero_is_a_seed():
    def made(seed):
        agent = mt.PPO(VECTOR, spaces.Discrete(3), seed=seed)
        return agent.learner_.export(0).arrays["net/actor/hidden0.weight"], agent.act(np.zeros((40, 5)), explore=True)

    (weights, actions), (again, same), (other, different) = made(0), made(0), made(1)
    assert (weights == again).all()
    assert (actions == same).all()
    assert (weights != other).all()
    assert (actions != different).any()
    assert (made(None)[0] != made(None)[0]).all()
