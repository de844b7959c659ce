"""Noise on actions: Gaussian and Ornstein-Uhlenbeck, by hand and by their moments, clipped, with warm-up."""

from __future__ import annotations

import numpy as np
import pytest

from marltrain.core.errors import ConfigError
from marltrain.core.settings import build
from marltrain.policies.backends import numpy_ops
from marltrain.policies.batches.batch import ActInputs
from marltrain.policies.exploration import ActionNoise, ContinuousExploration
from marltrain.policies.memory.needs import Column
from tests.policies.distributions.three import in_all

OU, DIMS = "ornstein_uhlenbeck", 3


def made(**settings):
    return ActionNoise(build(ContinuousExploration, settings, "DDPG"), DIMS, "DDPG")


def hyper(std=0.2, share=np.inf):
    return {name: np.full((1, 1), value, np.float32) for name, value in (("noise_std", std), ("random_share", share))}


def perturbed(rule, action, carry=None, explore=None, noise=None, **numbers):
    """Return (action, carry) in numpy, which both frameworks repeat."""
    rows = action.shape[1]
    noise = rule.noise([np.random.default_rng(0)], rows) if noise is None else noise
    on = np.ones((1, rows), bool) if explore is None else explore

    def flat(ops, action, *inputs):
        acted = rule.perturb(ops, action, ActInputs(None, None, *inputs))
        return (acted.action, acted.carry["noise"]) if acted.carry else acted.action

    moved, *following = in_all(flat, action, on, carry or {}, noise, hyper(**numbers))
    return moved, (following[0] if following else None)


def test_gaussian_noise_has_its_deviations_and_is_clipped():
    rule, rows = made(noise_scale=(1.0, 0.5, 0.0)), 40_000
    action = np.tile(np.array([0.0, 0.1, 0.3], np.float32), (1, rows, 1))
    moved, carry = perturbed(rule, action)
    assert carry is None
    added = (moved - action)[0]
    np.testing.assert_allclose(added.mean(0), 0, atol=5 * 0.2 / np.sqrt(rows))
    np.testing.assert_allclose(added.std(0), [0.2, 0.1, 0.0], rtol=0.02, atol=1e-7)
    assert abs(np.corrcoef(added[:, :2].T)[0, 1]) < 5 / np.sqrt(rows)  # each dimension has its own numbers
    share = (abs(added[:, 0]) < 0.2).mean()
    assert share == pytest.approx(0.6827, abs=0.012)
    wide, _ = perturbed(rule, action, std=10.0)
    assert (wide.min(), wide.max()) == (-1.0, 1.0)
    assert (wide[..., 2] == action[..., 2]).all()
    still, _ = perturbed(rule, action, explore=np.zeros((1, rows), bool), std=10.0)
    np.testing.assert_array_equal(still, action)


def test_ornstein_uhlenbeck_by_hand():
    """x = 0.5 - 2 * 0.5 * 0.25 + 0.2 * sqrt(0.25) * 3 = 0.55, of the second row 0 + 0.2 * 0.5 * -1 = -0.1."""
    rule = made(exploration=OU, noise_theta=2.0, noise_dt=0.25)
    assert rule.carry() == {"noise": Column((DIMS,))}
    noise = {"normal": np.array([[[3.0] * DIMS, [-1.0] * DIMS]], np.float32)}
    carry = {"noise": np.array([[[0.5] * DIMS, [0.0] * DIMS]], np.float32)}
    action = np.full((1, 2, DIMS), 0.2, np.float32)
    moved, following = perturbed(rule, action, carry, noise=noise)
    np.testing.assert_allclose(following[0, :, 0], [0.55, -0.1], rtol=1e-6)
    np.testing.assert_allclose(moved[0, :, 0], [0.75, 0.1], rtol=1e-6)


def test_ornstein_uhlenbeck_is_stationary():
    """Its deviation is std * sqrt(dt / (1 - (1 - theta dt)^2)); neighboring steps correlate with 1 - theta dt."""
    rule, rows = made(exploration=OU, noise_theta=2.0, noise_dt=0.1), 4000
    rng, action, carry = [np.random.default_rng(0)], np.zeros((1, rows, DIMS), np.float32), np.zeros((1, rows, DIMS))
    xs = [carry.astype(np.float32)]
    for _ in range(30):
        on, noise = np.ones((1, rows), bool), rule.noise(rng, rows)
        acted = rule.perturb(numpy_ops, action, ActInputs(None, None, on, {"noise": xs[-1]}, noise, hyper()))
        xs.append(acted.carry["noise"])
    expected = 0.2 * np.sqrt(0.1 / (1 - 0.8**2))
    assert xs[-1].std() == pytest.approx(expected, rel=0.03)
    assert np.corrcoef(xs[-1].ravel(), xs[-2].ravel())[0, 1] == pytest.approx(0.8, abs=0.02)


@pytest.mark.parametrize("exploration", ["greedy", "gaussian", OU])
def test_random_share_replaces_actions_by_uniform_ones(exploration):
    rule, rows = made(exploration=exploration, random_steps=10), 20_000
    action = np.full((1, rows, DIMS), 0.3, np.float32)
    carry = {"noise": np.zeros_like(action)} if exploration == OU else None
    moved, _ = perturbed(rule, action, carry, share=1.0)
    assert abs(moved.mean()) < 5 * 0.577 / np.sqrt(rows)
    assert moved.std() == pytest.approx(1 / np.sqrt(3), rel=0.02)
    assert (abs(moved) <= 1).all()
    half, _ = perturbed(rule, action, carry, share=0.25, std=0.0)
    assert (half[..., 0] != np.float32(0.3)).mean() == pytest.approx(0.25, abs=0.016)
    plain, _ = perturbed(rule, action, carry, share=0.0, std=0.0)
    np.testing.assert_allclose(plain, action)


@pytest.mark.parametrize("settings", [{}, {"exploration": OU, "random_share": 0.1}, {"exploration": "greedy"}])
def test_noise_of_many_rows_is_the_noise_of_row_after_row(settings):
    rule, rng = made(**settings), np.random.default_rng(3)
    many, parts = rule.noise([np.random.default_rng(3)], 5), [rule.noise([rng], rows) for rows in (1, 3, 1)]
    for name, values in many.items():
        np.testing.assert_array_equal(values, np.concatenate([part[name] for part in parts], 1))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"noise_scale": (1.0, 2.0)}, r"DDPG: noise_scale must have one number .* 3 in all, got \(1.0, 2.0\)"),
        ({"noise_scale": (1.0, 2.0, -1.0)}, r"number of at least 0 for each dimension"),
        ({"noise_scale": (1.0, 2.0, "3")}, r"number of at least 0 for each dimension"),
        ({"noise_scale": 0.3}, "noise_scale must be"),
        ({"noise_std": -0.1}, "noise_std must be at least 0"),
        ({"exploration": "white"}, "exploration must be one of greedy, gaussian, ornstein_uhlenbeck"),
    ],
)
def test_wrong_settings(settings, words):
    with pytest.raises(ConfigError, match=words):
        made(**settings)
