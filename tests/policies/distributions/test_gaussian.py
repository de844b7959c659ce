"""Normal distributions, also squashed: densities, entropies, divergences and gradients against torch's own."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution, kl_divergence

from marltrain.core.errors import ConfigError, SpecError
from marltrain.policies.distributions import Gaussian, SquashedGaussian, StateGaussian, distribution_of
from marltrain.policies.networks.specs import Head
from tests.policies.backends.both import BOTH, value_and_gradients
from tests.policies.distributions.three import in_all, in_numpy

K, B = 2, 7
BOX = spaces.Box(np.array([-2.0, 0.0, -1.0], np.float32), np.array([4.0, 1.0, 1.0], np.float32))
ALL = np.ones((K, B), bool)


def some(*shape, scale=1.0):
    return (np.random.default_rng(shape).standard_normal(shape) * scale).astype(np.float32)


def normal(out, low=-math.inf, high=math.inf):
    mean, log_std = torch.from_numpy(out).double().split([3, 3], -1)
    return Independent(Normal(mean, log_std.clamp(low, high).exp()), 1)


@pytest.mark.parametrize("make", [Gaussian, StateGaussian, SquashedGaussian])
def test_divergence_equals_torchs(make):
    """A bijection such as tanh does not change it."""
    old, new = some(2, K, B, 6, scale=0.7)
    bounds = () if make is Gaussian else (-20, 2)
    kl = in_all(lambda ops, p, q: make(BOX).kl(ops, p, q, None), old, new)[0]
    np.testing.assert_allclose(kl, kl_divergence(*(normal(out, *bounds) for out in (old, new))).numpy(), rtol=2e-5)
    assert abs(in_numpy(lambda ops, p: make(BOX).kl(ops, p, p, None), old)[0]).max() < 1e-6


def test_log_standard_deviations_of_the_network_are_clipped():
    distribution, out, raw = StateGaussian(BOX, 0.5, (-1.0, 0.8)), some(K, B, 6, scale=2.0), some(K, B, 3)
    assert distribution.head(0.01) == Head(6, 0.01)
    shifted = np.concatenate([out[..., :3], out[..., 3:] + 0.5], -1)
    theirs = normal(shifted, -1.0, 0.8)
    log_prob, entropy = in_all(lambda ops, p, r: distribution.evaluate(ops, p, None, r), out, raw)
    np.testing.assert_allclose(log_prob, theirs.log_prob(torch.from_numpy(raw).double()).numpy(), rtol=2e-5)
    np.testing.assert_allclose(entropy, theirs.entropy().numpy(), rtol=2e-5)
    for backend in BOTH.values():
        density = lambda p, b=backend: distribution.evaluate(b.ops, p, None, b.tensor(raw))[0]  # noqa: E731
        slope = value_and_gradients(backend, density, out)[1]
        inside = (shifted[..., 3:] > -1.0) & (shifted[..., 3:] < 0.8)
        assert ((slope[..., 3:] != 0) == inside).all()
    with pytest.raises(ConfigError, match=r"low < high, got \(2, -1\)"):
        StateGaussian(BOX, log_std_bounds=(2, -1))


def squashed(out):
    return TransformedDistribution(normal(out, -20, 2), TanhTransform(cache_size=1))


def test_squashed_density_equals_torchs():
    """TanhTransform uses the same softplus form; torch knows the sample before tanh by its cache."""
    out, noise, distribution = some(K, B, 6, scale=0.5), some(K, B, 3), SquashedGaussian(BOX)
    action, raw, log_prob = in_all(lambda ops, *x: distribution.sample(ops, x[0], None, x[1], x[2]), out, noise, ALL)
    mean, log_std = out[..., :3], out[..., 3:]
    np.testing.assert_allclose(raw, mean + np.exp(log_std) * noise, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(action, np.tanh(raw), rtol=1e-5)
    exact = raw.astype(np.float64)
    expected = normal(out).log_prob(torch.from_numpy(exact)).numpy() - np.log(1 - np.tanh(exact) ** 2).sum(-1)
    np.testing.assert_allclose(log_prob, expected, rtol=2e-4)
    theirs = squashed(out)
    np.testing.assert_allclose(theirs.log_prob(torch.from_numpy(np.tanh(exact))).numpy(), expected, rtol=1e-6)
    np.testing.assert_allclose(
        in_numpy(lambda ops, p, r: distribution.evaluate(ops, p, None, r)[0], out, raw)[0], log_prob
    )


def test_squashed_density_is_that_of_the_action():
    """Integrated over the actions of [-1, 1] it is 1."""
    space = spaces.Box(-1, 1, (1,), np.float32)
    action = np.linspace(-1, 1, 200_003)[1:-1].astype(np.float64)
    out = np.tile(np.array([0.3, -0.4], np.float32), (1, len(action), 1))
    raw = np.arctanh(action)[None, :, None]
    log_prob = in_numpy(lambda ops, p, r: SquashedGaussian(space).evaluate(ops, p, None, r)[0], out, raw)[0]
    assert np.exp(log_prob[0]).sum() * (action[1] - action[0]) == pytest.approx(1.0, abs=1e-3)


def test_squashed_density_is_finite_far_out():
    """tanh(30) is 1 in float32; log(1 - tanh^2) is 2 log 2 - 60."""
    space, out = spaces.Box(-1, 1, (1,), np.float32), np.array([[[30.0, 0.0], [-30.0, 0.0]]], np.float32)
    raw = np.array([[[30.0], [-30.0]]], np.float32)
    (log_prob,) = in_all(lambda ops, p, r: SquashedGaussian(space).evaluate(ops, p, None, r)[0], out, raw)
    np.testing.assert_allclose(log_prob, [[60 - 2 * math.log(2) - 0.5 * math.log(2 * math.pi)] * 2], rtol=1e-5)


def test_squashed_entropy_is_the_mean_of_the_densities():
    """With a million samples; standard deviations from 0.05 to 5."""
    distribution = SquashedGaussian(spaces.Box(-1, 1, (1,), np.float32))
    mean, log_std = np.array([0.0, 1.5, -0.4, 0.2]), np.log(np.array([0.05, 1.0, 2.5, 5.0]))
    out = np.stack([mean, log_std], -1)[None].astype(np.float32)
    (entropy,) = in_all(lambda ops, p: distribution.evaluate(ops, p, None, p[..., :1])[1], out)
    raw = mean + np.exp(log_std) * np.random.default_rng(0).standard_normal((1_000_000, 4))
    slope = 2 * (math.log(2) - raw - np.logaddexp(0, -2 * raw))
    expected = log_std + 0.5 * math.log(2 * math.pi * math.e) + slope.mean(0)
    np.testing.assert_allclose(entropy[0], expected, atol=0.03)


def test_gradients_flow_through_the_sample():
    """d raw / d mean = 1, d raw / d log_std = std * noise, d action / d raw = 1 - action^2; both frameworks agree."""
    out, noise = some(K, B, 6, scale=0.5), some(K, B, 3)
    result = {}
    for name, backend in BOTH.items():
        tensors = backend.tensor(noise), backend.tensor(ALL)
        sample = lambda p, b=backend, t=tensors: SquashedGaussian(BOX).sample(b.ops, p, None, *t)  # noqa: E731
        result[name] = [
            value_and_gradients(backend, lambda p, f=sample: f(p)[0], out),
            value_and_gradients(backend, lambda p, f=sample: f(p)[2], out),
        ]
    for mine, theirs in zip(*result.values(), strict=True):
        np.testing.assert_allclose(mine[1], theirs[1], rtol=1e-4, atol=1e-5)
    action, slope = result["torch"][0]
    expected = 2 * action * (1 - action**2)
    np.testing.assert_allclose(slope[..., :3], expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(slope[..., 3:], expected * np.exp(out[..., 3:]) * noise, rtol=1e-4, atol=1e-6)
    out_tensor = torch.from_numpy(out).double().requires_grad_()
    mean, log_std = out_tensor.split([3, 3], -1)
    theirs = TransformedDistribution(Independent(Normal(mean, log_std.exp()), 1), TanhTransform(cache_size=1))
    raw = mean + log_std.exp() * torch.from_numpy(noise)
    expected_log = theirs.base_dist.log_prob(raw) - (
        2 * (math.log(2) - raw - torch.nn.functional.softplus(-2 * raw))
    ).sum(-1)
    (theirs_slope,) = torch.autograd.grad(expected_log.square().sum(), out_tensor)
    np.testing.assert_allclose(result["torch"][1][1], theirs_slope.numpy(), rtol=2e-3, atol=2e-3)


def test_squashed_mode_and_units():
    distribution, out, noise = SquashedGaussian(BOX), some(K, B, 6), some(K, B, 3)
    action, raw, _ = in_all(lambda ops, *x: distribution.sample(ops, x[0], None, x[1], x[2]), out, noise, ~ALL)
    np.testing.assert_array_equal(raw, out[..., :3])
    np.testing.assert_allclose(action, np.tanh(out[..., :3]), rtol=1e-6)
    ends = np.array([[-1.0, -1.0, -1.0], [1.0, 1.0, 1.0], [0.0, 0.5, 2.0]])
    assert distribution.to_units(ends).tolist() == [[-2.0, 0.0, -1.0], [4.0, 1.0, 1.0], [1.0, 0.75, 1.0]]


@pytest.mark.parametrize("name", ["squashed_gaussian", "beta"])
def test_an_unbounded_dimension_is_named(name):
    space = spaces.Box(np.array([-1.0, 0.0], np.float32), np.array([1.0, np.inf], np.float32))
    with pytest.raises(
        SpecError, match=r"needs two finite bounds .* dimension 1 of the action space goes from 0 to inf"
    ):
        distribution_of(space, name=name)


def test_names():
    result = {name: type(distribution_of(BOX, name=name)).__name__ for name in (None, "state_gaussian", "beta")}
    assert result == {None: "Gaussian", "state_gaussian": "StateGaussian", "beta": "Beta"}
    with pytest.raises(ConfigError, match=r"must be one of gaussian, .*got 'betta'.*beta"):
        distribution_of(BOX, name="betta")
    with pytest.raises(SpecError, match=r'"beta" needs a Box of actions, got Discrete\(3\)'):
        distribution_of(spaces.Discrete(3), name="beta")
