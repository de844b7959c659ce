"""The parts of on-policy algorithms: value and return normalization by hand, shared trunks, policies of Box actions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from torch import nn

import marltrain as mt
from marltrain.core.errors import ConfigError, SpecError
from tests.policies.some_batches import VECTOR, some_rollout
from tests.tiers import LONG

ON = np.ones(1, bool)
PLAIN: dict[str, Any] = {"learning_rate": 0.0, "gae_lambda": 1.0, "epochs": 1, "minibatches": 1}
BOX = spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([3.0, 1.0], np.float32))
FIRST, SECOND = ([1.0, 2.0, 4.0], [3.0, 4.0, 4.0]), ([5.0, 2.0], [6.0, 2.0])
"""Rewards of rollouts of one piece that terminates, and their returns with discount 0.5."""


def rollout(rewards: list[float]) -> Any:
    """A rollout of one piece with discount 0.5 that terminates."""
    batch = some_rollout(np.random.default_rng(len(rewards)), VECTOR, spaces.Discrete(2), [len(rewards)])
    rows = len(rewards)
    batch.reward[0], batch.discount[0] = rewards, [0.5] * (rows - 1) + [0.0]
    batch.cut[0] = np.arange(rows) == rows - 1
    batch.boot[0] = np.where(batch.cut[0], 0, -1)
    return batch


def zeroed(**settings: Any) -> Any:
    """A PPO agent that does not learn, whose critic says 0."""
    agent = mt.PPO(VECTOR, spaces.Discrete(2), seed=0, **{**PLAIN, **settings})
    state = agent.learner_.export(0)
    for name, array in state.arrays.items():
        if name.startswith("net/critic/head0"):
            array[...] = 0.0
    agent.learner_.load(0, state)
    return agent


def update(agent: Any, batch: Any) -> dict[str, float]:
    """Make one update; return the metrics."""
    metrics = agent.learner_.update(batch, learn=ON, batch_size=64)
    return {name: float(value[0]) for name, value in metrics.items()}


def values(agent: Any, obs: Any) -> np.ndarray:
    """Values of the critic in units of rewards, [B]."""
    learner = agent.learner_
    network, head = learner.algorithm.critic_head
    out = learner.backend.numpy(learner.weights.online[network](learner.backend.tensor(obs))[head])[0, :, 0]
    known = learner.weights.statistics["target"]
    scaled: np.ndarray = out * known.deviation[0] + known.mean[0]
    return scaled


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_popart_by_hand(backend):
    """The critic says 0, so the targets are the returns; its last layer changes so that it goes on saying 0."""
    agent = zeroed(normalize_values="popart", backend=backend)
    update(agent, rollout(FIRST[0]))
    mean, deviation = np.mean(FIRST[1]), np.std(FIRST[1])
    kept = agent.learner_.export(0).arrays
    assert kept["net/critic/head0.bias"] == pytest.approx(-mean / deviation, rel=1e-5)
    assert kept["statistics/target/mean"] == pytest.approx(mean)
    assert values(agent, rollout(FIRST[0]).obs) == pytest.approx(np.zeros(3), abs=1e-5)
    metrics = update(agent, rollout(SECOND[0]))
    all_returns = FIRST[1] + SECOND[1]
    statistics = agent.learner_.weights.statistics["target"]
    assert statistics.mean[0, 0] == pytest.approx(np.mean(all_returns))
    assert statistics.variance[0, 0] == pytest.approx(np.var(all_returns), rel=1e-5)
    normalized = (np.array(SECOND[1]) - np.mean(all_returns)) / np.std(all_returns)
    said = -np.mean(all_returns) / np.std(all_returns)
    assert metrics["loss/critic"] == pytest.approx(0.5 * np.square(said - normalized).mean(), rel=1e-4)
    assert metrics["value_mean"] == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize("shared_trunk", [False, True])
def test_popart_keeps_the_values_of_every_agent(shared_trunk):
    settings: dict[str, Any] = {**PLAIN, "shared_trunk": shared_trunk, "normalize_values": "popart"}
    agent = mt.PPO(VECTOR, spaces.Discrete(2), seed=0, **settings)
    rng = np.random.default_rng(0)
    obs = rng.uniform(-1, 1, (1, 11, 5)).astype(np.float32)
    for rows in (7, 12, 5):
        before = values(agent, obs)
        batch = some_rollout(rng, VECTOR, spaces.Discrete(2), [rows])
        batch.reward[...] = 100 * batch.reward + 30
        update(agent, batch)
        assert values(agent, obs) == pytest.approx(before, abs=2e-3)
    assert agent.learner_.weights.statistics["target"].deviation > 20


def test_valuenorm_keeps_the_outputs():
    agent = zeroed(normalize_values="valuenorm")
    metrics = update(agent, rollout(FIRST[0]))
    mean, deviation = np.mean(FIRST[1]), np.std(FIRST[1])
    assert (agent.learner_.export(0).arrays["net/critic/head0.bias"] == 0).all()
    assert values(agent, rollout(FIRST[0]).obs) == pytest.approx(np.full(3, mean))
    normalized = (np.array(FIRST[1]) - mean) / deviation
    assert metrics["loss/critic"] == pytest.approx(0.5 * np.square(normalized).mean(), rel=1e-5)
    metrics = update(agent, rollout(SECOND[0]))
    assert metrics["value_mean"] == pytest.approx(mean)


def test_rewards_are_divided_by_the_deviation_of_returns_so_far():
    """Returns so far of the first rollout: 1, 2.5, 5.25; of the second: 5, 4.5."""
    agent = zeroed(normalize_returns=True, normalize_advantage=False)
    deviation = np.std([1.0, 2.5, 5.25])
    assert update(agent, rollout(FIRST[0]))["return_mean"] == pytest.approx(np.mean(FIRST[1]) / deviation, rel=1e-5)
    deviation = np.std([1.0, 2.5, 5.25, 5.0, 4.5])
    metrics = update(agent, rollout(SECOND[0]))
    assert metrics["return_mean"] == pytest.approx(np.mean(SECOND[1]) / deviation, rel=1e-5)
    assert metrics["reward_mean"] == pytest.approx(np.mean(SECOND[0]))


def ends(rewards: list[float]) -> Any:
    """A rollout of episodes of one step: the returns are the rewards."""
    batch = rollout(rewards)
    batch.discount[...], batch.cut[...], batch.boot[...] = 0.0, True, 0
    return batch


@pytest.mark.parametrize(
    ("backend", "reward"),
    [*(("torch", reward) for reward in (1.0, 0.01, -3.0)), ("tensorflow", -3.0),
     *LONG * [("tensorflow", 1.0), ("tensorflow", 0.01)]],
)  # fmt: skip
def test_equal_returns_have_no_deviation_and_rewards_are_not_scaled(backend, reward):
    """In the third rollout, two returns of seven differ: they are 0 and twice the others."""
    agent = zeroed(normalize_returns=True, backend=backend)
    assert update(agent, ends([reward]))["return_mean"] == pytest.approx(reward)
    assert update(agent, ends([reward] * 3))["return_mean"] == pytest.approx(reward)
    seen = np.array([1.0, 1, 1, 1, 0, 1, 2]) * reward
    metrics = update(agent, ends(seen[4:].tolist()))
    assert metrics["return_mean"] == pytest.approx(seen[4:].mean() / np.sqrt(seen.var() + 1e-8), rel=1e-5)


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_divided_rewards_are_at_most_10(backend):
    """Deviations of 0.0005 and of sqrt(499) / 500 would give rewards of 2,000 and of 22."""
    agent = zeroed(normalize_returns=True, backend=backend)
    assert update(agent, ends([1.0, 1.001]))["return_mean"] == pytest.approx(10.0)
    agent = zeroed(normalize_returns=True, backend=backend)
    rare = update(agent, ends([0.0] * 499 + [-1.0]))
    assert rare["return_mean"] == pytest.approx(-10.0 / 500)
    assert rare["reward_mean"] == pytest.approx(-1.0 / 500)


@pytest.mark.parametrize("clip", [15.0, 1e6, mt.linear(15.0, 1.0, 100)])
def test_the_clip_of_divided_rewards_is_a_setting(clip, tmp_path):
    """The deviation of 499 zeros and a 1 is sqrt(499) / 500."""
    agent = zeroed(normalize_returns=True, reward_clip=clip)
    exact = 500 / np.sqrt(499) if clip == 1e6 else 15.0
    assert update(agent, ends([0.0] * 499 + [1.0]))["return_mean"] == pytest.approx(exact / 500, rel=1e-4)
    mt.save(tmp_path / "one", agent)
    other: Any
    (other,) = mt.load(tmp_path / "one")
    assert other.hyper.reward_clip == agent.hyper.reward_clip
    with pytest.raises(ConfigError, match=r"ppo: reward_clip=.* has no effect without normalize_returns=True"):
        zeroed(reward_clip=clip)


def test_agents_of_one_learner_have_their_own_clip():
    agent = zeroed(normalize_returns=True, reward_clip=3.0)
    agent.hyper.reward_clip = 5.0
    assert update(agent, ends([1.0, 1.001]))["return_mean"] == pytest.approx(5.0)


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
@pytest.mark.parametrize("kind", ["popart", "valuenorm"])
def test_equal_targets_are_not_scaled(backend, kind):
    """The critic says 0 and the targets are 6: in its units 0, as is 6 for popart; valuenorm's outputs stay at 0."""
    agent = zeroed(normalize_values=kind, backend=backend)
    for _ in range(2):
        metrics = update(agent, ends([6.0] * 3))
    said = -6.0 if kind == "popart" else 0.0
    assert agent.learner_.export(0).arrays["net/critic/head0.bias"] == pytest.approx(said)
    assert metrics["loss/critic"] == pytest.approx(0.5 * said**2)


@pytest.mark.parametrize(("backend", "jit_compile"), [("torch", False), ("torch", True), ("tensorflow", False)])
def test_equal_advantages_become_0(backend, jit_compile):
    """Six or seven rewards of 1e5 / 3, whose mean rounds: the loss of the actor is that of advantages of 0."""
    agent = zeroed(backend=backend, jit_compile=jit_compile, entropy_coef=0.0)
    for rows in (6, 7, 1):
        metrics = update(agent, ends([1e5 / 3] * rows))
        assert metrics["loss/actor"] == pytest.approx(0.0, abs=1e-6)


def test_metrics_of_a_rollout():
    agent = zeroed()
    metrics = update(agent, rollout(FIRST[0]))
    expected = {"reward_mean": 7 / 3, "reward_max": 4, "value_mean": 0, "return_mean": 11 / 3, "return_change": 11 / 3}
    assert {name: metrics[name] for name in expected} == pytest.approx(expected)


@pytest.mark.parametrize("settings", [{"normalize_values": "popart", "normalize_returns": True}, {"clip": None}])
def test_compiled_updates_equal_plain_ones(settings):
    """The learner normalizes before the gradient passes, so compiled code makes them."""
    agents = [
        mt.PPO(
            VECTOR, spaces.Discrete(3), seed=0, network=mt.MLP((9,)), minibatches=2, jit_compile=compiled, **settings
        )
        for compiled in (False, True)
    ]
    assert [agent.learner_.steps.over_rollouts is not None for agent in agents] == [False, True]
    for seed in range(3):
        batch = some_rollout(np.random.default_rng(seed), VECTOR, spaces.Discrete(3), [13])
        plain, compiled = (update(agent, batch) for agent in agents)
        assert plain == pytest.approx(compiled, rel=1e-3, abs=1e-4)
    expected, found = (agent.learner_.export(0).arrays for agent in agents)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, atol=1e-5, err_msg=name)


def test_a_shared_trunk_learns_from_both_heads():
    agent = mt.PPO(VECTOR, spaces.Discrete(3), seed=0, network=mt.MLP((7, 6)), shared_trunk=True)
    before = agent.learner_.export(0).arrays
    shapes = {name: array.shape for name, array in before.items() if name.startswith("net/") and "weight" in name}
    assert shapes == {
        "net/actor_critic/hidden0.weight": (5, 7), "net/actor_critic/hidden1.weight": (7, 6),
        "net/actor_critic/head0.weight": (6, 3), "net/actor_critic/head1.weight": (6, 1),
    }  # fmt: skip
    update(agent, some_rollout(np.random.default_rng(0), VECTOR, spaces.Discrete(3), [9]))
    after = agent.learner_.export(0).arrays
    assert all((before[name] != after[name]).any() for name in shapes)


def test_a_model_of_ones_own_with_both_heads():
    agent = mt.PPO(VECTOR, spaces.Discrete(3), seed=0, network=nn.Linear(5, 4), shared_trunk=True)
    update(agent, some_rollout(np.random.default_rng(0), VECTOR, spaces.Discrete(3), [9]))
    assert agent.act(np.zeros(5, np.float32)) in (0, 1, 2)


@pytest.mark.parametrize("policy", ["gaussian", "state_gaussian", "squashed_gaussian", "beta"])
def test_policies_of_box_actions(policy):
    agent = mt.PPO(VECTOR, BOX, seed=0, policy=policy, epochs=1)
    widths = {name: array.shape[-1] for name, array in agent.learner_.export(0).arrays.items() if "actor/head0" in name}
    assert widths["net/actor/head0.weight"] == (2 if policy == "gaussian" else 4)
    batch = some_rollout(np.random.default_rng(0), VECTOR, BOX, [9])
    batch.extras["raw"] = np.tanh(batch.extras["raw"])  # a Beta distribution is bounded
    assert np.isfinite(list(update(agent, batch).values())).all()
    actions = agent.act(np.random.default_rng(1).uniform(-1, 1, (40, 5)).astype(np.float32), explore=True)
    assert all(BOX.contains(action) for action in actions)
    assert actions.std() > 0.1


@pytest.mark.parametrize(
    ("actions", "settings", "error", "words"),
    [
        (
            BOX,
            {"policy": "betta"},
            ConfigError,
            "policy must be one of gaussian, state_gaussian, squashed_gaussian, beta",
        ),
        (spaces.Discrete(2), {"policy": "beta"}, SpecError, "needs a Box of actions"),
        (BOX, {"shared_trunk": True, "critic_network": mt.MLP()}, ConfigError, "ppo: critic_network="),
        (BOX, {"shared_trunk": True, "critic_learning_rate": 0.1}, ConfigError, "ppo: critic_learning_rate=0.1 has no"),
        (BOX, {"network": nn.Linear(5, 4)}, ConfigError, "only the actor"),
        (
            BOX,
            {"critic_network": nn.Linear(5, 1), "normalize_values": "popart"},
            ConfigError,
            "rescales the last layer",
        ),
        (BOX, {"normalize_values": "yes"}, ConfigError, "normalize_values must be one of popart, valuenorm"),
    ],
)
def test_wrong_settings(actions, settings, error, words):
    with pytest.raises(error) as caught:
        mt.PPO(VECTOR, actions, seed=0, **settings)
    assert words in str(caught.value)
