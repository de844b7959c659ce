"""The mean of log(1 - tanh(u)^2) over a normal distribution, by a logistic distribution as a mixture of normal ones.

Derivation. 1 - tanh^2 is twice the density of a logistic variable L of scale 1/2, and -1/2 times the second derivative
of log(1 - tanh^2). The second derivative of E|u + L| is twice that density, too. Both sides have the same limits, so
that log(1 - tanh(u)^2) = 2 log 2 - 2 E|u + L|. L is K Z for a standard normal Z and a variable K with the distribution
of Kolmogorov (Andrews and Mallows 1974, "Scale mixtures of normal distributions"). For a normal variable u, u + K Z is
normal, too, and the mean of its absolute value has a closed form. Only the mean over K is left to a quadrature.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.policies.ops import Ops

NODES = 10
"""Nodes of the quadrature over K: an error of at most 8e-8 for all means and deviations, as small as float32's own."""
LOWEST, HIGHEST, POINTS, TERMS = 0.15, 4.0, 4_001, 60
"""Range and points of the grid for the density of K, which is below 1e-13 outside, and terms of its series."""


def mean_log_slope(ops: Ops, mean: Any, log_std: Any) -> Any:
    """Return E[log(1 - tanh(u)^2)] for normal u with these means and log standard deviations, [...] each.

    The error is at most 8e-8, that of the gradients 1e-6, plus the rounding of the type. Large deviations do not
    overflow before exp(log_std) does.
    """
    nodes, weights = _quadrature(NODES)
    std: Any = ops.exp(log_std)[..., None]
    unit = ops.stop_gradient(ops.maximum(std, ops.ones_like(std)))  # keeps squares finite; cancels out
    spread = unit * ops.sqrt(ops.square(std / unit) + ops.square(ops.tensor_like(std, nodes) / unit))
    center = mean[..., None]
    ratio = center / spread
    bell = math.sqrt(2 / math.pi) * ops.exp(-0.5 * ops.square(ratio))
    size = center * ops.erf(ratio * math.sqrt(0.5)) + spread * bell  # E|.| of a normal variable
    return 2.0 * math.log(2.0) - 2.0 * ops.sum(ops.tensor_like(std, weights) * size, -1)


@functools.cache
def _quadrature(count: int) -> tuple[list[float], list[float]]:
    """Return nodes and weights of the Gauss quadrature for the distribution of Kolmogorov.

    Its density is 8 k sum_j (-1)^(j - 1) j^2 exp(-2 j^2 k^2). The orthogonal polynomials are those of a fine grid
    (Stieltjes' procedure, in Gautschi 2004, section 2.2); the eigenvalues of their recurrence are the nodes (Golub and
    Welsch 1969).
    """
    k, j = np.linspace(LOWEST, HIGHEST, POINTS), np.arange(1, TERMS)[:, None]
    density: Array = k * (-((-1.0) ** j) * np.square(j) * np.exp(-2.0 * np.square(j * k))).sum(0)
    density /= density.sum()
    centers, ratios = np.zeros(count), np.ones(count)
    before, now, length = np.zeros(POINTS), np.ones(POINTS), 1.0
    for i in range(count):
        square = float((density * np.square(now)).sum())
        centers[i], ratios[i], length = (density * k * np.square(now)).sum() / square, square / length, square
        before, now = now, (k - centers[i]) * now - ratios[i] * before
    side = np.sqrt(ratios[1:])
    nodes, vectors = np.linalg.eigh(np.diag(centers) + np.diag(side, 1) + np.diag(side, -1))
    return nodes.tolist(), np.square(vectors[0]).tolist()
