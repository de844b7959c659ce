"""The names that algorithms are written in, for plain numpy: for acting, where a framework costs more than it computes.

Sixteen environments give an act a few dozen rows, for which a framework's calls cost several times what they compute
(benchmarks/kernels.py). Nothing here records gradients.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from marltrain.layout import Array

exp, log, sqrt, square, absolute, tanh = np.exp, np.log, np.sqrt, np.square, np.abs, np.tanh
minimum, maximum, where, clip = np.minimum, np.maximum, np.where, np.clip
zeros_like, ones_like = np.zeros_like, np.ones_like

_erf = np.vectorize(math.erf, otypes=[np.float32])


def relu(x: Array) -> Array:
    """Return max(x, 0)."""
    return np.maximum(x, np.float32(0))


def elu(x: Array) -> Array:
    """Return x where positive, exp(x) - 1 elsewhere."""
    return np.where(x > 0, x, np.expm1(np.minimum(x, np.float32(0))))


def silu(x: Array) -> Array:
    """Return x * sigmoid(x)."""
    return x / (np.float32(1) + np.exp(-x))


def gelu(x: Array) -> Array:
    """Return x * Phi(x), Phi being the normal distribution function."""
    return x * np.float32(0.5) * (np.float32(1) + _erf(x / np.float32(math.sqrt(2))))


def softplus(x: Array) -> Array:
    """Return log(1 + exp(x))."""
    return np.logaddexp(x, np.float32(0))


def logsumexp(x: Array, axis: int) -> Array:
    """Return log(sum(exp(x))) over one axis."""
    top = x.max(axis, keepdims=True)
    return np.log(np.exp(x - top).sum(axis)) + top.squeeze(axis)


def softmax(x: Array, axis: int) -> Array:
    """Return exp(x) / sum(exp(x)) over one axis."""
    raised = np.exp(x - x.max(axis, keepdims=True))
    return raised / raised.sum(axis, keepdims=True)


def log_softmax(x: Array, axis: int) -> Array:
    """Return the logarithm of the softmax."""
    return x - np.expand_dims(logsumexp(x, axis), axis)


def sum(x: Array, axis: int) -> Array:
    """Sum over one axis."""
    return x.sum(axis)


def mean(x: Array, axis: int) -> Array:
    """Mean over one axis."""
    return x.mean(axis)


def max(x: Array, axis: int) -> Array:
    """Largest value along one axis."""
    return x.max(axis)


def argmax(x: Array, axis: int) -> Array:
    """Place of the (first) largest value along one axis."""
    return x.argmax(axis)


def take(x: Array, index: Array) -> Array:
    """Pick x[..., index] along the last axis; index has one axis less than x."""
    return np.take_along_axis(x, index[..., None], -1)[..., 0]


def concat(parts: Sequence[Array], axis: int) -> Array:
    """Join along an axis."""
    return np.concatenate(parts, axis)


def split(x: Array, sizes: Sequence[int]) -> Sequence[Array]:
    """Cut the last axis into pieces of the given sizes."""
    return np.split(x, np.cumsum(sizes)[:-1], -1)


def stack(parts: Sequence[Array], axis: int) -> Array:
    """Join along a new axis."""
    return np.stack(parts, axis)


def stop_gradient(x: Array) -> Array:
    """Return the values as they are: there is no history."""
    return x


def flag(x: Array) -> Array:
    """Turn booleans into 0.0 and 1.0."""
    return x.astype(np.float32)


def linear(x: Array, weight: Array, bias: Array) -> Array:
    """Return x @ weight + bias for K layers at once: [K, B, in], [K, in, out], [K, out] -> [K, B, out]."""
    out: Array = x @ weight
    out += bias[:, None]
    return out


def append_constants(x: Array, constants: Array) -> Array:
    """Append [K, F] constants to every row of [K, B, N]."""
    rows = np.broadcast_to(constants[:, None], (*x.shape[:2], constants.shape[1]))
    return np.concatenate([x, rows], -1)
