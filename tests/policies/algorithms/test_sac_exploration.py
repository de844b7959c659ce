"""Noise on the samples of SAC: worked out by hand, its random numbers, its carry, and wrong settings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import ConfigError
from marltrain.policies.backends import numpy_ops
from marltrain.policies.batches.batch import ActInputs
from marltrain.policies.distributions.draws import normal_of
from tests.policies.algorithms.central import linear_team
from tests.policies.algorithms.twins import BOX, in_numbers
from tests.policies.backends.both import BOTH
from tests.policies.some_batches import VECTOR

OU = "ornstein_uhlenbeck"
SMALL: dict[str, Any] = {"seed": 1, "network": mt.MLP((4,))}


class Fixed:
    """An actor with the same means and log standard deviations for every row."""

    def __init__(self, mean, log_std):
        self.out = np.array([*mean, *log_std], np.float32)

    def __call__(self, obs):
        return (np.tile(self.out, (*obs.shape[:2], 1)),)


def hyper(**numbers):
    return {name: np.full((1, 1), value, np.float32) for name, value in numbers.items()}


def test_gaussian_noise_by_hand():
    """Samples tanh(0.5 + 1 * 0.3) and tanh(-1 + e * 0.2), plus 0.4 * (1, 0.5) * N; the second row does not explore."""
    algorithm: Any = mt.SAC(VECTOR, BOX, exploration="gaussian", noise_scale=(1.0, 0.5), **SMALL).algorithm
    normal = np.array([[[0.5, -1.0]] * 2], np.float32) * algorithm.exploration.scale
    noise = {"sample": np.array([[[0.3, 0.2]] * 2], np.float32), "normal": normal}
    nets, obs = {"actor": Fixed([0.5, -1.0], [0.0, 1.0])}, np.zeros((1, 2, 5), np.float32)
    inputs = ActInputs(obs, None, np.array([[True, False]]), {}, noise, hyper(noise_std=0.4))
    acted = algorithm.act(numpy_ops, nets, inputs)
    sampled = np.tanh([0.8, -1 + np.e * 0.2])
    np.testing.assert_allclose(acted.action[0], [sampled + np.array([0.2, -0.2]), np.tanh([0.5, -1.0])], rtol=1e-6)
    assert acted.extras == {}
    noise["normal"] = np.array([[[9.0, -9.0]] * 2], np.float32)
    inputs = ActInputs(obs, None, np.ones((1, 2), bool), {}, noise, hyper(noise_std=1.0))
    np.testing.assert_array_equal(algorithm.act(numpy_ops, nets, inputs).action, [[[1.0, -1.0]] * 2])


@pytest.mark.parametrize("exploration", [None, "gaussian"])
def test_a_row_draws_its_sample_its_noise_and_its_random_action_from_one_stream(exploration):
    """Without noise and warm-up, a row of two dimensions uses two numbers, as the samples alone do."""
    plain: Any = mt.SAC(VECTOR, BOX, exploration=exploration, **SMALL).algorithm
    warm: Any = mt.SAC(VECTOR, BOX, exploration=exploration, random_steps=9, **SMALL).algorithm
    added = {} if exploration is None else {"normal": 2}
    for algorithm, widths in ((plain, {"sample": 2, **added}), (warm, {"sample": 2, **added, "coin": 1, "uniform": 2})):
        numbers = np.random.default_rng(5).random((4, sum(widths.values())), np.float32)
        noise, rng = algorithm.noise([np.random.default_rng(5)], 4), np.random.default_rng(5)
        assert list(noise) == list(widths)
        at = 0
        for name, width in widths.items():
            part, at = numbers[:, at : at + width], at + width
            part = normal_of(part) if name in ("sample", "normal") else part
            np.testing.assert_array_equal(noise[name][0].reshape(part.shape), part)
        parts = [algorithm.noise([rng], rows) for rows in (1, 3)]
        for name, values in noise.items():
            np.testing.assert_array_equal(values, np.concatenate([part[name] for part in parts], 1))


@pytest.mark.parametrize("network", [mt.MLP((4,)), mt.GRU((4,), units=3)], ids=["mlp", "gru"])
@pytest.mark.parametrize("backend", BOTH)
def test_ornstein_uhlenbeck_noise_joins_the_carry(network, backend):
    """x follows x - 0.15 * 0.25 x + 0.3 * sqrt(0.25) N; recurrent critics read the action with noise."""
    settings: dict[str, Any] = {"seed": 1, "network": network, "backend": backend}
    agent: Any = mt.SAC(VECTOR, BOX, exploration=OU, noise_std=0.3, noise_dt=0.25, **settings)
    assert agent.algorithm.carry()["noise"].shape == (2,)
    nets = {name: net.in_numpy() for name, net in agent.learner_.weights.nets.items()}
    rng = np.random.default_rng()
    rng.bit_generator.state = agent.learner_.rngs("act")[0].bit_generator.state
    kept: Any = None
    x, memory = (
        np.zeros((1, 2, 2), np.float32),
        {name: np.zeros((1, 2, w), np.float32) for name, w in (("actor", 3), ("critic", 6))},
    )
    for obs in np.random.default_rng(0).uniform(-1, 1, (3, 2, 5)).astype(np.float32):
        drawn = agent.algorithm.noise([rng], 2)
        action, kept = agent.act_with_carry(obs, kept, explore=True)
        x = x - np.float32(0.15 * 0.25) * x + np.float32(0.5 * 0.3) * drawn["normal"]
        np.testing.assert_allclose(kept["noise"], x[0], atol=1e-6)
        recurrent = "actor" in kept
        out, *after = nets["actor"](obs[None], *([memory["actor"]] if recurrent else []))
        sampled = agent.algorithm.distribution.action(numpy_ops, out, drawn["sample"], np.ones((1, 2), bool))
        np.testing.assert_allclose(in_numbers(action), np.clip(sampled + x, -1, 1)[0], atol=1e-5)
        if recurrent:
            memory = {
                "actor": after[0],
                "critic": nets["critic"](obs[None], in_numbers(action)[None], memory["critic"])[-1],
            }
            for name, expected in memory.items():
                np.testing.assert_allclose(kept[name], expected[0], atol=1e-5)
    assert abs(x).min() > 0.01


def test_masac_adds_noise_to_the_samples_of_boxes():
    (agent,) = linear_team(mt.MASAC, temperature=0.3)[0][:1]
    noisy: Any = mt.MASAC(
        agent.observation_space, agent.action_space, seed=0, network=mt.MLP(()), exploration=OU, noise_std=3.0,
        team_size=2, state_size=2, joint_action_size=3,
    )  # fmt: skip
    obs = np.ones((50, 2), np.float32)
    action, carry = noisy.act_with_carry(obs, None, explore=True)
    assert list(carry) == ["noise"]
    assert abs(carry["noise"]).min() > 0
    assert (action.min(), action.max()) == (0.0, 4.0)  # samples without noise lie within the bounds
    greedy, _ = noisy.act_with_carry(obs, carry)
    assert len(np.unique(greedy)) == 1


@pytest.mark.parametrize(
    ("space", "settings", "words"),
    [
        (spaces.Discrete(3), {"exploration": "gaussian"}, r"SAC: exploration='gaussian' adds noise to a Box of "
         r"actions, got Discrete\(3\)\. Set it to None"),
        (spaces.Discrete(3), {"noise_std": 0.3}, "SAC: noise_std=0.3 has no effect with exploration=None; it needs "
         "exploration='gaussian' or 'ornstein_uhlenbeck'"),
        (BOX, {"noise_scale": (1.0, 1.0)}, "noise_scale=.* has no effect with exploration=None"),
        (BOX, {"exploration": "gaussian", "noise_theta": 0.3}, "noise_theta=0.3 has no effect with"),
        (BOX, {"exploration": OU, "noise_scale": (1.0,)}, r"SAC: noise_scale must have one number .* 2 in all"),
        (BOX, {"exploration": "greedy"}, "exploration must be one of gaussian, ornstein_uhlenbeck, got 'greedy'"),
    ],
)  # fmt: skip
def test_wrong_settings(space, settings, words):
    with pytest.raises(ConfigError, match=words):
        mt.SAC(VECTOR, space, **settings, **SMALL)
