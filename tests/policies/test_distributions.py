"""Distributions against torch's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from marltrain.core.errors import SpecError
from marltrain.policies.backends.torch import ops
from marltrain.policies.distributions import Gaussian, MultiCategorical, distribution_of, gumbel

K, B = 2, 7


def tensors(seed, *shapes):
    rng = np.random.default_rng(seed)
    return [torch.from_numpy(rng.standard_normal(shape).astype(np.float32)) for shape in shapes]


def flags(value):
    return torch.full((K, B), value)


def test_gaussian_equals_torchs():
    (out, raw) = tensors(0, (K, B, 6), (K, B, 3))
    theirs = torch.distributions.Independent(torch.distributions.Normal(out[..., :3], out[..., 3:].exp()), 1)
    log_prob, entropy = distribution_of(spaces.Box(-1, 1, (3,))).evaluate(ops, out, None, raw)
    torch.testing.assert_close(log_prob, theirs.log_prob(raw))
    torch.testing.assert_close(entropy, theirs.entropy())


@pytest.mark.parametrize("masked", [False, True])
def test_categorical_equals_torchs(masked):
    (out,) = tensors(1, (K, B, 4))
    legal = torch.rand(K, B, 4, generator=torch.Generator().manual_seed(0)) < 0.5
    legal[..., 2] = True
    theirs = torch.distributions.Categorical(logits=out.masked_fill(~legal, -1e30) if masked else out)
    taken = torch.full((K, B), 2)
    log_prob, entropy = distribution_of(spaces.Discrete(4)).evaluate(ops, out, legal if masked else None, taken)
    torch.testing.assert_close(log_prob, theirs.log_prob(taken))
    torch.testing.assert_close(entropy, theirs.entropy())


def test_multi_categorical_equals_torchs():
    (out,) = tensors(2, (K, B, 5))
    taken = torch.tensor([1, 2]).expand(K, B, 2)
    parts = [torch.distributions.Categorical(logits=part) for part in out.split([2, 3], -1)]
    log_prob, entropy = distribution_of(spaces.MultiDiscrete([2, 3])).evaluate(ops, out, None, taken)
    torch.testing.assert_close(log_prob, sum(part.log_prob(taken[..., d]) for d, part in enumerate(parts)))
    torch.testing.assert_close(entropy, sum(part.entropy() for part in parts))
    assert MultiCategorical(spaces.MultiDiscrete(np.array([[2, 3], [4, 5]]))).sizes == [2, 3, 4, 5]


@pytest.mark.parametrize("space", [spaces.Discrete(4), spaces.MultiDiscrete([2, 3]), spaces.Box(-1, 1, (2,))], ids=str)
def test_the_log_probability_is_that_of_what_was_taken(space):
    distribution = distribution_of(space)
    head = distribution.head(1.0)
    (out,) = tensors(3, (K, B, head.width + head.free))
    noise = torch.from_numpy(distribution.noise([np.random.default_rng(k) for k in range(K)], B))
    for explore in (flags(True), flags(False)):
        action, raw, log_prob = distribution.sample(ops, out, None, noise, explore)
        torch.testing.assert_close(log_prob, distribution.evaluate(ops, out, None, raw)[0])
        assert action.shape[:2] == (K, B)
    if isinstance(distribution, Gaussian):
        torch.testing.assert_close(raw, out[..., : head.width])
    else:
        first = out.split(getattr(distribution, "sizes", [4]), -1)[0].argmax(-1)
        assert torch.equal(raw if raw.ndim == 2 else raw[..., 0], first)


def test_samples_follow_the_probabilities_and_never_an_illegal_action():
    distribution, rows = distribution_of(spaces.Discrete(3)), 20_000
    out = torch.tensor([0.1, 0.6, 0.3]).log().expand(1, rows, 3)
    noise = torch.from_numpy(distribution.noise([np.random.default_rng(0)], rows))
    on = torch.ones(1, rows, dtype=torch.bool)
    taken = distribution.sample(ops, out, None, noise, on)[0]
    shares = torch.bincount(taken[0], minlength=3) / rows
    assert (shares - torch.tensor([0.1, 0.6, 0.3])).abs().max() < 0.018  # five standard deviations
    legal = torch.tensor([True, False, True]).expand(1, rows, 3)
    taken, _, log_prob = distribution.sample(ops, out, legal, noise, on)
    shares = torch.bincount(taken[0], minlength=3) / rows
    assert shares[1] == 0
    assert abs(shares[0] - 0.25) < 0.016
    assert log_prob.exp().unique().numpy() == pytest.approx([0.25, 0.75], abs=1e-5)


def test_gumbel_noise_is_finite_even_at_the_ends_of_the_uniform():
    class EndTable:
        def random(self, dtype, out):
            out.flat = np.linspace(0, np.nextafter(np.float32(1), np.float32(0)), out.size, dtype=dtype)

    ends: list[Any] = [EndTable()]
    noise = gumbel(ends, (4, 5))
    assert np.isfinite(noise).all()
    assert noise.dtype == np.float32


def test_a_box_is_reached_to_its_ends_and_no_further():
    space = spaces.Box(np.array([-2.0, 0.0, -np.inf], np.float32), np.array([4.0, 1.0, np.inf], np.float32))
    distribution = Gaussian(space, log_std=-0.7)
    raw = np.array([[-1.0, -1.0, -3.0], [1.0, 1.0, 3.0], [0.0, 0.0, 0.0], [5.0, -5.0, 50.0]])
    units = distribution.to_units(raw)
    assert units.tolist() == [[-2.0, 0.0, -3.0], [4.0, 1.0, 3.0], [1.0, 0.5, 0.0], [4.0, 0.0, 50.0]]
    assert units.dtype == np.float32
    head = distribution.head(0.01)
    assert (head.width, head.free, head.free_start) == (3, 3, -0.7)


def test_actions_stay_in_a_box_of_float64():
    """The nearest float32 of either end lies outside."""
    space = spaces.Box(-0.3, 0.1, (1,), np.float64)
    assert np.float32(-0.3) < space.low[0] and space.high[0] < np.float32(0.1)
    low, high = Gaussian(space).to_units(np.array([[-9.0], [9.0]]))
    assert low in space and high in space
    assert [low, high] == pytest.approx([-0.3, 0.1])


def test_a_half_open_box_is_clipped_at_the_end_it_has():
    space = spaces.Box(np.array([0.0], np.float32), np.array([np.inf], np.float32))
    assert Gaussian(space).to_units(np.array([[-1.0], [7.0]])).tolist() == [[0.0], [7.0]]


def test_other_spaces_have_no_distribution():
    with pytest.raises(SpecError, match="has no distribution"):
        distribution_of(spaces.MultiBinary(3))
