"""Beta distributions against scipy's and torch's; samples by Kolmogorov and Smirnov's test."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from scipy import stats

from marltrain.policies.distributions import Beta
from marltrain.policies.networks.specs import Head
from tests.policies.backends.both import BOTH, value_and_gradients
from tests.policies.distributions.three import in_all, in_numpy

K, B = 2, 7
BOX = spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([4.0, 1.0], np.float32))


def some_outputs(seed=0):
    return (np.random.default_rng(seed).standard_normal((K, B, 4)) * 3).astype(np.float32)


def some_actions():
    return np.random.default_rng(2).uniform(-0.95, 0.95, (K, B, 2)).astype(np.float32)


def parameters(out):
    excess = np.logaddexp(0, out.astype(np.float64))
    return 1 + excess[..., :2], 1 + excess[..., 2:]


def test_density_and_entropy_equal_scipys():
    """Of raw = 2 x - 1: half the density, log 2 more entropy for each of two dimensions."""
    out, raw = some_outputs(), some_actions()
    log_prob, entropy = in_all(lambda ops, p, r: Beta(BOX).evaluate(ops, p, None, r), out, raw, rtol=1e-4, atol=1e-4)
    theirs = stats.beta(*parameters(out))
    x = (raw.astype(np.float64) + 1) / 2
    np.testing.assert_allclose(log_prob, (theirs.logpdf(x) - np.log(2)).sum(-1), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(entropy, (theirs.entropy() + np.log(2)).sum(-1), rtol=1e-4, atol=1e-4)


def test_divergence_equals_torchs():
    old, new = some_outputs(0), some_outputs(1)
    (kl,) = in_all(lambda ops, p, q: Beta(BOX).kl(ops, p, q, None), old, new, rtol=1e-3, atol=1e-4)
    p, q = (
        torch.distributions.Beta(torch.from_numpy(alpha), torch.from_numpy(beta))
        for alpha, beta in map(parameters, (old, new))
    )
    np.testing.assert_allclose(kl, torch.distributions.kl_divergence(p, q).sum(-1).numpy(), rtol=1e-3, atol=1e-4)
    assert abs(in_numpy(lambda ops, p: Beta(BOX).kl(ops, p, p, None), old)[0]).max() < 1e-6


@pytest.mark.parametrize("part", ["log_prob", "entropy", "kl"])
def test_gradients_agree(part):
    out, other, raw = some_outputs(0), some_outputs(1), some_actions()

    def made(backend):
        def value(p):
            if part == "kl":
                return Beta(BOX).kl(backend.ops, p, backend.tensor(other), None)
            return Beta(BOX).evaluate(backend.ops, p, None, backend.tensor(raw))[part == "entropy"]

        return value_and_gradients(backend, value, out)[1]

    mine, theirs = (made(backend) for backend in BOTH.values())
    assert abs(mine).max() > 0.1
    np.testing.assert_allclose(mine, theirs, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 1.0), (1.7, 1.7), (1.05, 6.0), (40.0, 3.0), (300.0, 500.0)])
def test_samples_follow_the_distribution(alpha, beta):
    """50,000 samples: the largest distance of the distribution functions has 1 % quantile 1.63 / sqrt(n)."""
    rows, box = 50_000, spaces.Box(-1, 1, (1,), np.float32)
    excess = np.maximum(np.array([alpha, beta]) - 1, 1e-4)
    out = np.tile(np.log(np.expm1(excess)).clip(-50).astype(np.float32), (1, rows, 1))
    out = np.where(np.tile(excess, (1, rows, 1)) > 50, np.tile(excess, (1, rows, 1)), out).astype(np.float32)
    noise = Beta(box).noise([np.random.default_rng(7)], rows)
    raw = in_numpy(lambda ops, p, n, e: Beta(box).sample(ops, p, None, n, e)[1], out, noise, np.ones((1, rows), bool))
    x = (raw[0][0, :, 0].astype(np.float64) + 1) / 2
    assert stats.kstest(x, stats.beta(alpha, beta).cdf).statistic < 1.63 / np.sqrt(rows)
    assert x.min() > 0
    assert x.max() < 1


def test_all_frameworks_sample_the_same_from_the_same_noise():
    out, distribution = some_outputs(), Beta(BOX)
    noise = distribution.noise([np.random.default_rng(k) for k in range(K)], B)
    explore = np.arange(K * B).reshape(K, B) % 2 == 0
    action, raw, log_prob = in_all(
        lambda ops, *x: distribution.sample(ops, x[0], None, x[1], x[2]), out, noise, explore, rtol=1e-4, atol=1e-4
    )
    alpha, beta = parameters(out)
    mode = 2 * (alpha - 1) / (alpha + beta - 2) - 1
    np.testing.assert_allclose(raw[~explore], mode[~explore], atol=1e-4)
    assert abs(raw[explore] - mode[explore]).min() > 1e-5
    np.testing.assert_array_equal(action, raw)
    again = in_numpy(lambda ops, p, r: distribution.evaluate(ops, p, None, r)[0], out, raw)[0]
    np.testing.assert_array_equal(log_prob, again)
    units = distribution.to_units(raw)
    np.testing.assert_allclose(
        units, np.stack([1 + 3 * raw[..., 0], 0.5 + 0.5 * raw[..., 1]], -1), rtol=1e-5, atol=1e-6
    )
    assert distribution.head(0.01) == Head(4, 0.01)


def test_extreme_outputs_give_finite_numbers():
    """alpha = beta = 1 (a uniform distribution, mode 0), and a mode on the lower bound."""
    box = spaces.Box(-1, 1, (1,), np.float32)
    out = np.array([[[-200.0, -200.0], [-200.0, 50.0], [1000.0, 1000.0]]], np.float32)
    noise, off = Beta(box).noise([np.random.default_rng(0)], 3), np.zeros((1, 3), bool)
    action, _, log_prob = in_all(
        lambda ops, *x: Beta(box).sample(ops, x[0], None, x[1], x[2]), out, noise, off, rtol=1e-3, atol=1e-3
    )
    np.testing.assert_allclose(action[0, :, 0], [0.0, -1.0, 0.0], atol=1e-4)
    assert action.min() > -1
    assert log_prob[0, 0] == pytest.approx(np.log(0.5))
    assert np.isfinite(log_prob).all()


def test_noise_of_many_rows_is_the_noise_of_row_after_row():
    many = Beta(BOX).noise([np.random.default_rng(3)], 5)
    rng = np.random.default_rng(3)
    one_by_one = np.concatenate([Beta(BOX).noise([rng], rows) for rows in (1, 3, 1)], 1)
    np.testing.assert_array_equal(many, one_by_one)
    assert many.dtype == np.float32
