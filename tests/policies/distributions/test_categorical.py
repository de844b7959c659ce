"""Divergences of categorical distributions, by hand and against torch's own."""

from __future__ import annotations

import math

import numpy as np
import torch
from gymnasium import spaces

from marltrain.core.legal import Legal
from marltrain.policies.distributions import MultiCategorical, distribution_of
from tests.policies.backends.both import BOTH, value_and_gradients
from tests.policies.distributions.three import in_all

K, B = 2, 5


def test_divergence_by_hand():
    """p = (1/2, 1/4, 1/4), q = (1/4, 1/2, 1/4): KL = 1/2 log 2 - 1/4 log 2."""
    kl = distribution_of(spaces.Discrete(3)).kl
    old, new = (np.log(np.array([[row]], np.float32)) for row in ([0.5, 0.25, 0.25], [0.25, 0.5, 0.25]))
    (found,) = in_all(lambda ops, p, q: kl(ops, p, q, None), old + 3.0, new)
    np.testing.assert_allclose(found, [[0.25 * math.log(2)]], rtol=1e-5)
    legal = np.array([[[True, False, True]]])  # (2/3, 1/3) and (1/2, 1/2)
    (found,) = in_all(kl, old, new, legal)
    np.testing.assert_allclose(found, [[2 / 3 * math.log(4 / 3) + 1 / 3 * math.log(2 / 3)]], rtol=1e-5)
    (found,) = in_all(kl, old, old, legal)
    np.testing.assert_allclose(found, [[0.0]], atol=1e-6)


def test_divergence_of_several_equals_torchs():
    old, new = np.random.default_rng(0).standard_normal((2, K, B, 5)).astype(np.float32) * 2
    (found,) = in_all(lambda ops, p, q: distribution_of(spaces.MultiDiscrete([2, 3])).kl(ops, p, q, None), old, new)
    pairs = [
        (torch.distributions.Categorical(logits=p), torch.distributions.Categorical(logits=q))
        for p, q in zip(*(torch.from_numpy(x).split([2, 3], -1) for x in (old, new)), strict=True)
    ]
    expected = sum(torch.distributions.kl_divergence(p, q) for p, q in pairs)
    np.testing.assert_allclose(found, np.asarray(expected), rtol=2e-5, atol=2e-6)


def test_an_illegal_action_has_no_gradient():
    kl, legal = distribution_of(spaces.Discrete(3)).kl, np.array([[[True, False, True]]])
    old, new = np.random.default_rng(0).standard_normal((2, 1, 1, 3)).astype(np.float32)
    slopes = [
        value_and_gradients(
            backend, lambda p, q, backend=backend: kl(backend.ops, p, q, backend.tensor(legal)), old, new
        )[1:]
        for backend in BOTH.values()
    ]
    for mine, theirs in zip(*slopes, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-6)
        assert np.isfinite(mine).all()
        assert mine[0, 0, 1] == theirs[0, 0, 1] == 0
        assert mine[0, 0, 0] != 0


def test_masked_choices_side_by_side_by_hand():
    """Logits log(1, 3) and log(1, 2, 5) with the mask 1 1 | 0 1 1: 1/4, 3/4 and 0, 2/7, 5/7."""
    several = MultiCategorical(spaces.MultiDiscrete([2, 3]))
    out = np.log(np.array([[[1, 3, 1, 2, 5]]], np.float32))
    legal, action = np.array([[[True, True, False, True, True]]]), np.array([[[1, 2]]])
    log_prob, entropy = in_all(lambda ops, *given: several.evaluate(ops, *given), out, legal, action)
    np.testing.assert_allclose(log_prob, [[math.log(3 / 4 * 5 / 7)]], rtol=1e-5)
    parts = (1 / 4, 3 / 4, 2 / 7, 5 / 7)
    np.testing.assert_allclose(entropy, [[-sum(p * math.log(p) for p in parts)]], rtol=1e-5)
    (probabilities,) = in_all(several.probabilities, out, legal)
    np.testing.assert_allclose(probabilities, [[[1 / 4, 3 / 4, 0, 2 / 7, 5 / 7]]], rtol=1e-5)
    other = np.log(np.array([[[1, 1, 7, 3, 1]]], np.float32))  # 1/2, 1/2 and 3/4, 1/4; the illegal logit has no effect
    (kl,) = in_all(several.kl, out, other, legal)
    expected = sum(p * math.log(p / q) for p, q in zip(parts, (1 / 2, 1 / 2, 3 / 4, 1 / 4), strict=True))
    np.testing.assert_allclose(kl, [[expected]], rtol=1e-5)


def test_samples_and_modes_of_masked_choices_are_legal():
    several, rng = MultiCategorical(spaces.MultiDiscrete([2, 3])), np.random.default_rng(0)
    legal = rng.random((K, 500, 5)) < 0.5
    legal[..., 0] |= ~legal[..., 1]
    legal[..., 3] |= ~legal[..., 2:].any(-1)
    out, explore = rng.standard_normal((K, 500, 5)).astype(np.float32) * 5, rng.random((K, 500)) < 0.7
    noise = several.noise([np.random.default_rng(k) for k in range(K)], 500)
    action, raw, log_prob = in_all(several.sample, out, legal, noise, explore)
    assert Legal(spaces.MultiDiscrete([2, 3])).permits(legal, action.astype(int)).all()
    (expected, _) = in_all(lambda ops, *given: several.evaluate(ops, *given), out, legal, raw.astype(int))
    np.testing.assert_allclose(log_prob, expected, rtol=1e-5, atol=1e-5)
