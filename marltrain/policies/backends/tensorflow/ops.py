"""The array operations that algorithms use, for TensorFlow.

Arrays have a leading axis K (agents), whose size is known at tracing; the number of rows B may be unknown. Most names
are plain aliases; `axis` arguments are positional.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow import Tensor

exp, log, sqrt, square, absolute, tanh = tf.exp, tf.math.log, tf.sqrt, tf.square, tf.abs, tf.tanh
relu, elu, silu = tf.nn.relu, tf.nn.elu, tf.nn.silu
softplus, minimum, maximum, where, clip = tf.nn.softplus, tf.minimum, tf.maximum, tf.where, tf.clip_by_value
logsumexp, softmax, sigmoid = tf.reduce_logsumexp, tf.nn.softmax, tf.sigmoid
zeros_like, ones_like, isfinite, unstack = tf.zeros_like, tf.ones_like, tf.math.is_finite, tf.unstack
sum, mean, max, argmax = tf.reduce_sum, tf.reduce_mean, tf.reduce_max, tf.argmax
concat, stack, stop_gradient = tf.concat, tf.stack, tf.stop_gradient
lgamma, digamma, erf, cos, sin = tf.math.lgamma, tf.math.digamma, tf.math.erf, tf.cos, tf.sin


def gelu(x: Tensor) -> Tensor:
    """Return x * Phi(x), where Phi is the normal distribution function."""
    return tf.nn.gelu(x, approximate=False)


def log_softmax(x: Tensor, axis: int) -> Tensor:
    """Return the logarithm of the softmax."""
    return x - tf.reduce_logsumexp(x, axis, keepdims=True)


def take(x: Tensor, index: Tensor) -> Tensor:
    """Select x[..., index] along the last axis; index has one axis less than x.

    It compares indices, which for few choices is faster than a gather, whose gradient is a scatter.
    """
    chosen = tf.equal(index[..., tf.newaxis], tf.range(x.shape[-1], dtype=index.dtype))
    return tf.reduce_sum(tf.where(chosen, x, tf.zeros_like(x)), -1)


def one_hot(index: Tensor, choices: int) -> Tensor:
    """Return 1.0 at the index and 0.0 elsewhere, [..., choices], for indices [...]."""
    return tf.one_hot(index, choices)


def unflatten(x: Tensor, size: int) -> Tensor:
    """Split the last axis into two, the second of this size: [K, B, A * size] -> [K, B, A, size]."""
    return tf.reshape(x, [x.shape[0], -1, x.shape[-1] // size, size])


def time_steps(x: Tensor, length: int) -> Sequence[Tensor]:
    """Return the rows of each step of N sequences in a row: [K, N * length, ...] -> `length` x [K, N, ...]."""
    return tf.unstack(tf.reshape(x, [x.shape[0], -1, length, *x.shape[2:]]), axis=2)


def joined_steps(steps: Sequence[Tensor]) -> Tensor:
    """Join the rows of steps to sequences, the inverse of `time_steps`."""
    x = tf.stack(list(steps), 2)
    return tf.reshape(x, [x.shape[0], -1, *x.shape[3:]])


def only(x: Tensor, chosen: Tensor) -> Tensor:
    """Return x [..., A] in the rows that are `chosen` [...], 0 in the others."""
    return tf.where(chosen[..., tf.newaxis], x, tf.zeros_like(x))


def split(x: Tensor, sizes: Sequence[int]) -> Sequence[Tensor]:
    """Split the last axis into pieces of the given sizes."""
    return tf.split(x, list(sizes), -1)


def flag(x: Tensor) -> Tensor:
    """Convert booleans to 0.0 and 1.0."""
    return tf.cast(x, tf.float32)


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return x @ weight + bias for K layers at once: [K, B, in], [K, in, out], [K, out] -> [K, B, out]."""
    return tf.matmul(x, weight) + bias[:, tf.newaxis]


def append_constants(x: Tensor, constants: Tensor) -> Tensor:
    """Append [K, F] constants to every row of [K, B, N]."""
    return tf.concat([x, tf.zeros_like(x[..., :1]) + constants[:, tf.newaxis]], -1)


def repeat_agents(x: Tensor, members: int) -> Tensor:
    """Repeat the rows of every agent for the members of an ensemble: [K, ...] -> [K * members, ...]."""
    return tf.repeat(x, members, 0)


def unfold_agents(x: Tensor, members: int) -> Tensor:
    """Separate the members of an ensemble: [K * members, B, N] -> [K, members, B, N]."""
    return tf.reshape(x, [x.shape[0] // members, members, -1, x.shape[-1]])


def fold_agents(x: Tensor) -> Tensor:
    """Join the members of ensembles, the inverse of `unfold_agents`: [K, members, B, N] -> [K * members, B, N]."""
    return tf.reshape(x, [x.shape[0] * x.shape[1], -1, x.shape[-1]])


def constants(x: Tensor) -> Tensor:
    """Return constants [K, F] as one row, [K, 1, F]."""
    return x[:, tf.newaxis]


def tensor_like(x: Tensor, values: Sequence[Any]) -> Tensor:
    """Return constant numbers as a tensor of the type and on the device of x."""
    return tf.constant(values, x.dtype)


def scaled_image(x: Tensor, low: Any, span: Any) -> Tensor:
    """Convert uint8 pixels [K, B, ...] to float32: (x - low) / span.

    low, span: numbers, or numpy arrays that are broadcast to the axes of an image.
    """
    x = tf.cast(x, tf.float32)
    if isinstance(span, float):
        return x / span if low == 0 else (x - low) / span
    return (x - tf.constant(low)) / tf.constant(span)


def channels_first(x: Tensor, order: str) -> Tensor:
    """Convert images to [K, B, C, H, W]; order: of their axes, see `images.image_axes`."""
    if order == "none":
        return x[:, :, tf.newaxis]
    if order == "last":
        return tf.transpose(x, [0, 1, 4, 2, 3])
    if order == "frames, last":  # [K, B, frames, H, W, C]
        return _joined_frames(tf.transpose(x, [0, 1, 2, 5, 3, 4]))
    if order == "frames, first":
        return _joined_frames(x)
    return x


def _joined_frames(x: Tensor) -> Tensor:
    """Put the channels of all frames on one axis: [K, B, frames, C, H, W] -> [K, B, frames * C, H, W]."""
    frames, channels, height, width = x.shape[2:]
    return tf.reshape(x, [x.shape[0], -1, frames * channels, height, width])


def convolve(x: Tensor, weight: Tensor, bias: Tensor, stride: int, activate: Callable[[Tensor], Tensor]) -> Tensor:
    """Return activate(convolution) of K stacks: [K, B, C, H, W] with [K, O, C, h, w] -> [K, B, O, H', W'].

    On a CPU TensorFlow convolves only with the channels last; compiled, the transposes between two layers cancel.
    """
    last, kernel = tf.transpose(x, [0, 1, 3, 4, 2]), tf.transpose(weight, [0, 3, 4, 2, 1])
    rows = [tf.nn.conv2d(last[k], kernel[k], stride, "VALID") + bias[k] for k in range(x.shape[0])]
    return activate(tf.transpose(tf.stack(rows), [0, 1, 4, 2, 3]))


def flatten(x: Tensor) -> Tensor:
    """Flatten all axes after [K, B]."""
    return tf.reshape(x, [x.shape[0], -1, math.prod(x.shape[2:])])


def seats_apart(x: Tensor, seats: int) -> Tensor:
    """Separate the seats of every agent: [K, seats * B, ...] -> [K * seats, B, ...]."""
    return tf.reshape(x, [-1, tf.shape(x)[1] // seats, *x.shape[2:]]) if seats > 1 else x


def seats_joined(x: Tensor, seats: int) -> Tensor:
    """Join the rows of the seats of every agent, the inverse of `seats_apart`."""
    rows = tf.shape(x)
    return tf.reshape(x, [rows[0] // seats, seats * rows[1], *x.shape[2:]]) if seats > 1 else x


def players_last(x: Tensor) -> Tensor:
    """Put players side by side: [N, B] -> [1, B, N], [N, B, A] -> [1, B, N * A]."""
    if len(x.shape) == 2:
        return tf.transpose(x)[tf.newaxis]
    return tf.reshape(tf.transpose(x, [1, 0, 2]), [1, -1, x.shape[0] * x.shape[2]])
