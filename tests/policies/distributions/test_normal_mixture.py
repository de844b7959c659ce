"""The mean of log(1 - tanh^2) over normal distributions, and its gradients, against scipy's adaptive quadrature."""

from __future__ import annotations

import math
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from gymnasium import spaces
from scipy import integrate, stats

from marltrain.policies.backends.torch import ops
from marltrain.policies.distributions import SquashedGaussian
from marltrain.policies.distributions.normal_mixture import _quadrature, mean_log_slope
from tests.policies.backends.both import BOTH, value_and_gradients
from tests.policies.distributions.three import in_all

MEANS, LOG_STDS = (-9.0, -1.3, 0.0, 0.4, 2.0, 30.0), (-20.0, -3.0, -0.7, 0.0, 0.6, 1.0, 1.5, 2.0, 3.0, 6.0)
PAIRS = np.array(list(product(MEANS, LOG_STDS)), np.float32)


def log_slope(u):
    """log(1 - tanh(u)^2)."""
    return 2 * (math.log(2) - abs(u) - math.log1p(math.exp(-2 * abs(u))))


def mean_over(function, mean, std):
    """The mean of a function of u = mean + std z over normal z: split where tanh bends."""
    cuts = sorted({min(max((u - mean) / std, -12.0), 12.0) for u in (-20, -3, 0, 3, 20)} | {-12.0, 0.0, 12.0})
    parts = [
        integrate.quad(lambda z: stats.norm.pdf(z) * function(mean + std * z), low, high, epsabs=1e-12, limit=200)[0]
        for low, high in pairwise(cuts)
        if high > low
    ]
    return math.fsum(parts)


def by_quadrature(mean, log_std):
    """The value, and its derivatives by mean and log_std: means of -2 tanh and of -2 std^2 (1 - tanh^2)."""
    std = math.exp(log_std)
    value = mean_over(log_slope, mean, std)
    by_mean = mean_over(lambda u: -2 * math.tanh(u), mean, std)
    by_log_std = -2 * std**2 * mean_over(lambda u: math.exp(log_slope(u)), mean, std)
    return value, by_mean, by_log_std


@pytest.fixture(scope="module")
def exact():
    return np.array([by_quadrature(*pair) for pair in PAIRS.astype(np.float64)])


def test_the_value_in_all_frameworks(exact):
    (result,) = in_all(lambda ops, x: mean_log_slope(ops, x[..., 0], x[..., 1]), PAIRS, rtol=2e-6, atol=2e-6)
    np.testing.assert_allclose(result, exact[:, 0], rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("name", BOTH)
def test_the_gradients(name, exact):
    """Of the sum of squares, which are 2 value times the derivative."""
    backend = BOTH[name]
    _, grad = value_and_gradients(backend, lambda x: mean_log_slope(backend.ops, x[..., 0], x[..., 1]), PAIRS)
    np.testing.assert_allclose(grad, 2 * exact[:, :1] * exact[:, 1:], rtol=3e-5, atol=3e-5)


def test_the_error_of_ten_nodes_is_below_float32s_rounding():
    """In float64; with a deviation near 0, where it is largest, the value is log(1 - tanh(mean)^2) itself."""
    mean = np.linspace(-5, 5, 1_001)
    result = mean_log_slope(ops, torch.from_numpy(mean), torch.full((len(mean),), -20.0, dtype=torch.float64)).numpy()
    assert abs(result - [log_slope(m) for m in mean]).max() < 1e-7


def test_extreme_deviations_and_means_are_finite_with_their_gradients():
    """For a deviation far above the mean, log(1 - tanh^2) is 2 log 2 - 2 |u|: -2 std sqrt(2 / pi)."""
    out = np.array([[0.0, 60.0], [1e12, 0.0], [-1e12, -20.0], [0.0, -80.0]], np.float32)
    far = -2 * math.exp(60) * math.sqrt(2 / math.pi)
    for backend in BOTH.values():
        of = lambda x, b=backend: mean_log_slope(b.ops, x[..., 0], x[..., 1]) * 1e-12  # noqa: E731
        result, grad = value_and_gradients(backend, of, out)
        np.testing.assert_allclose(result, [far * 1e-12, -2.0, -2.0, 0.0], rtol=1e-5, atol=1e-12)
        assert np.isfinite(grad).all()


def test_the_quadrature_has_the_moments_of_kolmogorovs_distribution():
    """Its mean is sqrt(pi / 2) log 2, its mean square pi^2 / 12."""
    nodes, weights = map(np.array, _quadrature(10))
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert weights @ nodes == pytest.approx(math.sqrt(math.pi / 2) * math.log(2), abs=1e-10)
    assert weights @ nodes**2 == pytest.approx(math.pi**2 / 12, abs=1e-10)


@pytest.mark.parametrize("log_std", [-1.0, 1.0, 2.0, 4.0])
def test_the_entropy_of_the_squashed_policy_is_that_of_its_density(log_std):
    """The integral of -p(a) log p(a), with the density of the policy itself; also above the default bound."""
    policy = SquashedGaussian(spaces.Box(-1, 1, (1,), np.float32), log_std_bounds=(-20.0, 5.0))
    u = np.linspace(-600, 600, 48_001)
    for mean in (0.0, 1.1):
        out = np.tile(np.array([mean, log_std]), (1, len(u), 1))
        log_density, entropy = (x[0] for x in in_all(lambda ops, p, r: policy.evaluate(ops, p, None, r), out,
                                                     u[None, :, None], rtol=1e-4))  # fmt: skip
        slope = 2 * (math.log(2) - abs(u) - np.log1p(np.exp(-2 * abs(u))))
        expected = -(np.exp(log_density + slope) * log_density).sum() * (u[1] - u[0])
        assert entropy[0] == pytest.approx(expected, abs=1e-4)
