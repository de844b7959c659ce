"""The array operations that algorithms use, for plain numpy, which is faster than a framework for small acts.

With 16 environments an act has a few dozen rows, for which the overhead of a framework's calls is several times the
computation (benchmarks/kernels.py). No gradients are recorded.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from marltrain.core.layout import Array

exp, log, sqrt, square, absolute, tanh = np.exp, np.log, np.sqrt, np.square, np.abs, np.tanh
minimum, maximum, where = np.minimum, np.maximum, np.where
zeros_like, ones_like, isfinite = np.zeros_like, np.ones_like, np.isfinite
sum, mean, max, argmax = np.ndarray.sum, np.ndarray.mean, np.ndarray.max, np.ndarray.argmax
concat, stack, cos, sin = np.concatenate, np.stack, np.cos, np.sin

_ZERO = np.float32(0)
erf = np.vectorize(math.erf, otypes=[np.float32])
lgamma = np.vectorize(math.lgamma, otypes=[np.float32])


def clip(x: Array, low: Array | float, high: Array | float) -> Array:
    """Return x limited to [low, high]; for small arrays, `np.clip` takes longer."""
    limited: Array = np.minimum(np.maximum(x, low), high)
    return limited


def relu(x: Array) -> Array:
    """Return max(x, 0)."""
    return np.maximum(x, _ZERO)


def elu(x: Array) -> Array:
    """Return x where positive, exp(x) - 1 elsewhere."""
    return np.where(x > 0, x, np.expm1(np.minimum(x, np.float32(0))))


def sigmoid(x: Array) -> Array:
    """Return 1 / (1 + exp(-x)), by the hyperbolic tangent, which does not overflow."""
    return np.float32(0.5) * np.tanh(np.float32(0.5) * x) + np.float32(0.5)


def silu(x: Array) -> Array:
    """Return x * sigmoid(x)."""
    return x / (np.float32(1) + np.exp(-x))


def gelu(x: Array) -> Array:
    """Return x * Phi(x), where Phi is the normal distribution function."""
    return x * np.float32(0.5) * (np.float32(1) + erf(x / np.float32(math.sqrt(2))))


def softplus(x: Array) -> Array:
    """Return log(1 + exp(x))."""
    return np.logaddexp(x, np.float32(0))


def digamma(x: Array) -> Array:
    """Return the derivative of lgamma for x > 0: the recurrence up to x + 6, then the asymptotic series.

    Abramowitz and Stegun, 6.3.5 and 6.3.18; it computes in float64 with an error below 1e-9.
    """
    y = x.astype(np.float64)
    total = np.zeros_like(y)
    for _ in range(6):
        total -= 1.0 / y
        y += 1.0
    square = 1.0 / (y * y)
    series = square * (1 / 12 - square * (1 / 120 - square * (1 / 252 - square * (1 / 240))))
    result: Array = (total + np.log(y) - 0.5 / y - series).astype(np.float32)
    return result


def logsumexp(x: Array, axis: int) -> Array:
    """Return log(sum(exp(x))) over one axis."""
    first = x.transpose(_with_first(axis, x.ndim)).copy()  # numpy is slow at reducing a short last axis
    top: Array = first.max(0)
    first -= top
    np.exp(first, out=first)
    summed: Array = first.sum(0)
    np.log(summed, out=summed)
    summed += top
    return summed


@functools.cache
def _with_first(axis: int, axes: int) -> tuple[int, ...]:
    """Return the order of axes that moves one axis to the front."""
    return (axis % axes, *(i for i in range(axes) if i != axis % axes))


def softmax(x: Array, axis: int) -> Array:
    """Return exp(x) / sum(exp(x)) over one axis."""
    raised = np.exp(x - x.max(axis, keepdims=True))
    return raised / raised.sum(axis, keepdims=True)


def log_softmax(x: Array, axis: int) -> Array:
    """Return the logarithm of the softmax."""
    return x - np.expand_dims(logsumexp(x, axis), axis)


def take(x: Array, index: Array) -> Array:
    """Select x[..., index] along the last axis; index has one axis less than x."""
    picked: Array = x.reshape(-1).take(index + _starts(x.shape))
    return picked


@functools.lru_cache(64)
def _starts(shape: tuple[int, ...]) -> Array:
    """Return the flat index at which each row along the last axis begins, for a contiguous array of this shape."""
    return np.arange(0, math.prod(shape), shape[-1]).reshape(shape[:-1])


def one_hot(index: Array, choices: int) -> Array:
    """Return 1.0 at the index and 0.0 elsewhere, [..., choices], for indices [...]."""
    return np.eye(choices, dtype=np.float32)[index]


def unflatten(x: Array, size: int) -> Array:
    """Split the last axis into two, the second of this size: [K, B, A * size] -> [K, B, A, size]."""
    return x.reshape(*x.shape[:-1], -1, size)


def time_steps(x: Array, length: int) -> Sequence[Array]:
    """Return the rows of each step of N sequences in a row: [K, N * length, ...] -> `length` x [K, N, ...]."""
    split = x.reshape(len(x), -1, length, *x.shape[2:])
    return [split[:, :, i] for i in range(length)]


def joined_steps(steps: Sequence[Array]) -> Array:
    """Join the rows of steps to sequences, the inverse of `time_steps`."""
    x = np.stack(steps, 2)
    return x.reshape(len(x), -1, *x.shape[3:])


def only(x: Array, chosen: Array) -> Array:
    """Return x [..., A] in the rows that are `chosen` [...], 0 in the others."""
    if np.count_nonzero(chosen) == chosen.size:  # the usual case: all rows explore
        return x
    return np.where(chosen[..., None], x, np.float32(0))


def unstack(x: Array) -> list[Array]:
    """Return the parts of x along its first axis."""
    return list(x)


def split(x: Array, sizes: Sequence[int]) -> Sequence[Array]:
    """Split the last axis into pieces of the given sizes."""
    return np.split(x, np.cumsum(sizes)[:-1], -1)


def stop_gradient(x: Array) -> Array:
    """Return x unchanged: there is no gradient history."""
    return x


def flag(x: Array) -> Array:
    """Convert booleans to 0.0 and 1.0."""
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


def repeat_agents(x: Array, members: int) -> Array:
    """Repeat the rows of every agent for the members of an ensemble: [K, ...] -> [K * members, ...]."""
    return np.repeat(x, members, 0)


def unfold_agents(x: Array, members: int) -> Array:
    """Separate the members of an ensemble: [K * members, B, N] -> [K, members, B, N]."""
    return x.reshape(-1, members, *x.shape[1:])


def fold_agents(x: Array) -> Array:
    """Join the members of ensembles, the inverse of `unfold_agents`: [K, members, B, N] -> [K * members, B, N]."""
    return x.reshape(-1, *x.shape[2:])


def constants(x: Array) -> Array:
    """Return constants [K, F] as one row, [K, 1, F]."""
    return x[:, None]


def tensor_like(x: Array, values: Sequence[Any]) -> Array:
    """Return constant numbers as an array of the type of x."""
    return np.array(values, x.dtype)


def seats_apart(x: Array, seats: int) -> Array:
    """Separate the seats of every agent: [K, seats * B, ...] -> [K * seats, B, ...]."""
    return x.reshape(-1, x.shape[1] // seats, *x.shape[2:])


def seats_joined(x: Array, seats: int) -> Array:
    """Join the rows of the seats of every agent, the inverse of `seats_apart`."""
    return x.reshape(-1, x.shape[1] * seats, *x.shape[2:])


def players_last(x: Array) -> Array:
    """Put players side by side: [N, B] -> [1, B, N], [N, B, A] -> [1, B, N * A]."""
    return np.moveaxis(x, 0, 1).reshape(1, x.shape[1], -1)
