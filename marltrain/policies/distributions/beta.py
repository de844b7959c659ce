"""Beta distributions of bounded actions: Chou et al. 2017, "Improving stochastic policy gradients ...", ICML."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.core.layout import Array
from marltrain.policies.distributions.continuous import Continuous
from marltrain.policies.distributions.draws import Sampling, normal_from, normal_of
from marltrain.policies.networks.specs import Head
from marltrain.policies.ops import Ops

TRIES = 4
"""Proposals for each gamma variate. All are rejected with probability below 0.05 ** 4 = 6e-6."""
EDGE = 1e-6
"""Least distance of a sample from 0 and 1; the density of a sample on a bound could be 0."""


class Beta(Continuous):
    """A independent Beta distributions; alpha and beta are 1 + softplus of the 2A outputs, so each has one mode.

    `raw` is 2 x - 1 for the sample x of the Beta distribution, so that -1 and 1 correspond to the bounds of the Box.
    Densities and entropies are those of raw. Action [K, B, A] float32.

    A sample is g1 / (g1 + g2) with gamma variates by Marsaglia and Tsang (2000). They need numbers that do not depend
    on the parameters, so these are drawn before the parameters are known, and are the same in every framework: `TRIES`
    proposals for each variate, of which the first accepted one counts. If all are rejected the variate is the
    proposal's center. The distribution therefore differs from the exact one by less than 2e-5 in total variation.
    Samples have no gradient with respect to the parameters.
    """

    def __init__(self, space: spaces.Box) -> None:
        """Read the bounds from the space; raises SpecError if a dimension is not bounded."""
        super().__init__(space)
        self.check_bounded("a Beta distribution")

    def head(self, gain: float) -> Head:
        """Return the head that a policy network needs."""
        return Head(2 * self.dims, gain)

    def noise(self, rngs: Sequence[np.random.Generator], rows: int) -> Array:
        """Draw the noise of one `sample` call, [K, rows, 2A, 2, TRIES]: normal numbers, logarithms of uniform ones."""
        uniform = np.stack([rng.random((rows, 2 * self.dims, 2 * TRIES), np.float32) for rng in rngs])
        return np.stack([normal_of(uniform[..., :TRIES]), np.log1p(-uniform[..., TRIES:])], -2)

    @property
    def sampling(self) -> Sampling:
        """The noise of `sample` from uniform numbers."""
        return Sampling(2 * self.dims * 2 * TRIES, _noise_from)

    def sample(self, ops: Ops, out: Any, legal: Any, noise: Any, explore: Any) -> tuple[Any, Any, Any]:
        """Return (raw action, raw action, its log-density): sampled where `explore` [K, B], else the mode."""
        excess = ops.softplus(out)
        first, second = ops.split(_gamma(ops, 1.0 + excess, noise), [self.dims, self.dims])
        more, less = ops.split(excess + EDGE, [self.dims, self.dims])
        drawn, mode = first / (first + second), more / (more + less)
        chosen = ops.where(explore[..., None], drawn, mode)
        raw = 2.0 * ops.clip(chosen, EDGE, 1.0 - EDGE) - 1.0
        return raw, raw, self.evaluate(ops, out, legal, raw)[0]

    def evaluate(self, ops: Ops, out: Any, legal: Any, raw: Any) -> tuple[Any, Any]:
        """Return (log-density of `raw`, entropy), each [K, B]: sums over the dimensions."""
        alpha, beta = self.parameters(ops, out)
        total, log_norm = alpha + beta, _log_beta(ops, alpha, beta) + math.log(2.0)
        log_x, log_rest = ops.log(0.5 + 0.5 * raw), ops.log(0.5 - 0.5 * raw)
        log_prob = (alpha - 1.0) * log_x + (beta - 1.0) * log_rest - log_norm
        entropy = (
            log_norm
            - (alpha - 1.0) * ops.digamma(alpha)
            - (beta - 1.0) * ops.digamma(beta)
            + (total - 2.0) * ops.digamma(total)
        )
        return ops.sum(log_prob, -1), ops.sum(entropy, -1)

    def kl(self, ops: Ops, old_out: Any, new_out: Any, legal: Any) -> Any:
        """Return KL(old, new) of two outputs, [K, B]: the sum over the dimensions."""
        old_alpha, old_beta = self.parameters(ops, old_out)
        alpha, beta = self.parameters(ops, new_out)
        more_alpha, more_beta = old_alpha - alpha, old_beta - beta
        divergence = (
            _log_beta(ops, alpha, beta)
            - _log_beta(ops, old_alpha, old_beta)
            + more_alpha * ops.digamma(old_alpha)
            + more_beta * ops.digamma(old_beta)
            - (more_alpha + more_beta) * ops.digamma(old_alpha + old_beta)
        )
        return ops.sum(divergence, -1)

    def parameters(self, ops: Ops, out: Any) -> tuple[Any, Any]:
        """Return (alpha, beta), each [K, B, A] and at least 1."""
        alpha, beta = ops.split(1.0 + ops.softplus(out), [self.dims, self.dims])
        return alpha, beta


def _log_beta(ops: Ops, alpha: Any, beta: Any) -> Any:
    """Return the logarithm of the Beta function."""
    return ops.lgamma(alpha) + ops.lgamma(beta) - ops.lgamma(alpha + beta)


def _noise_from(ops: Ops, uniform: Any) -> Any:
    """Return the noise of `Beta.sample` from uniform numbers [K, B, 2A * 2 * TRIES]."""
    proposal, acceptance = ops.split(ops.unflatten(uniform, 2 * TRIES), [TRIES, TRIES])
    return ops.stack([normal_from(ops, proposal), ops.log(1.0 - acceptance)], -2)


def _gamma(ops: Ops, shape: Any, noise: Any) -> Any:
    """Return gamma variates of shapes [...] of at least 1, by Marsaglia and Tsang 2000; noise: [..., 2, TRIES]."""
    d = shape - 1.0 / 3.0
    scale, found = 1.0 / ops.sqrt(9.0 * d), d
    for t in reversed(range(TRIES)):
        normal, log_uniform = noise[..., 0, t], noise[..., 1, t]
        root = 1.0 + scale * normal
        v = ops.maximum(root * root * root, ops.zeros_like(root) + 1e-12)
        accepted = (root > 0.0) & (log_uniform < 0.5 * ops.square(normal) + d * (1.0 - v + ops.log(v)))
        found = ops.where(accepted, d * v, found)
    return found
