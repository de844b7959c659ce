"""Optimizers in compiled code: the formulas of `policies.optimizers`, for the arrays of one agent."""

from __future__ import annotations

import math
from typing import Any

from numba import float32

from marltrain.jit.compiling import compiled
from marltrain.jit.views import f32, fma

ADAM, ADAMW, RMSPROP, SGD, ADAMAX = range(5)
LANES = 64
"""Independent partial sums of a norm, which the processor can compute in parallel."""


@compiled
def shrink(weights: int, size: int, share: Any) -> None:
    """Multiply weights by `share`: decoupled weight decay (Loshchilov and Hutter 2019)."""
    w = f32(weights, size)
    for i in range(size):
        w[i] *= share


@compiled
def add_penalty(gradient: int, weights: int, size: int, factor: Any, decay: Any) -> None:
    """Multiply a gradient by `factor` and add that of the L2 penalty decay / 2 * |weights|^2, in place."""
    g, w = f32(gradient, size), f32(weights, size)
    for i in range(size):
        g[i] = fma(decay, w[i], g[i] * factor)


@compiled
def norm(gradient: int, size: int, lanes: int) -> Any:
    """Return the Euclidean norm of a gradient; lanes: work array of LANES elements."""
    g, sums = f32(gradient, size), f32(lanes, LANES)
    sums[:] = float32(0.0)
    whole = size - size % LANES
    for start in range(0, whole, LANES):
        for i in range(LANES):
            sums[i] = fma(g[start + i], g[start + i], sums[i])
    total = float32(0.0)
    for i in range(LANES):
        total += sums[i]
    for i in range(whole, size):
        total = fma(g[i], g[i], total)
    return math.sqrt(total)


@compiled
def adam(
    weights: int, first: int, second: int, gradient: int, size: int, factor: Any, rate: Any, count: Any, epsilon: Any
) -> None:
    """Make step number `count` of Adam (Kingma and Ba 2015), betas 0.9 and 0.999, by a gradient times `factor`."""
    w, m, v, g = f32(weights, size), f32(first, size), f32(second, size), f32(gradient, size)
    step = float32(rate / -math.expm1(count * math.log(0.9)))
    spread = float32(1.0 / -math.expm1(count * math.log(0.999)))
    small = float32(epsilon)
    for i in range(size):
        slope = g[i] * factor
        mean = fma(float32(0.1), slope - m[i], m[i])
        square = fma(float32(0.001) * slope, slope, float32(0.999) * v[i])
        m[i], v[i] = mean, square
        w[i] -= step * mean / (math.sqrt(square * spread) + small)


@compiled
def adamax(
    weights: int, first: int, largest: int, gradient: int, size: int, factor: Any, rate: Any, count: Any, epsilon: Any
) -> None:
    """Make step number `count` of Adamax (Kingma and Ba 2015, section 7.1) by a gradient times `factor`."""
    w, m, v, g = f32(weights, size), f32(first, size), f32(largest, size), f32(gradient, size)
    step, small = float32(rate / -math.expm1(count * math.log(0.9))), float32(epsilon)
    for i in range(size):
        slope = g[i] * factor
        mean, decayed, present = fma(float32(0.1), slope - m[i], m[i]), float32(0.999) * v[i], abs(slope) + small
        most = present if present > decayed else decayed
        m[i], v[i] = mean, most
        w[i] -= step * mean / most


@compiled
def rmsprop(weights: int, second: int, gradient: int, size: int, factor: Any, rate: Any, epsilon: Any) -> None:
    """Make a step of RMSprop (Tieleman and Hinton 2012), decay 0.99, by a gradient times `factor`."""
    w, v, g = f32(weights, size), f32(second, size), f32(gradient, size)
    small = float32(epsilon)
    for i in range(size):
        slope = g[i] * factor
        square = fma(float32(0.01) * slope, slope, float32(0.99) * v[i])
        v[i] = square
        w[i] -= rate * slope / (math.sqrt(square) + small)


@compiled
def sgd(weights: int, gradient: int, size: int, factor: Any, rate: Any) -> None:
    """Make a step of plain stochastic gradient descent by a gradient times `factor`."""
    w, g = f32(weights, size), f32(gradient, size)
    for i in range(size):
        w[i] -= rate * (g[i] * factor)


@compiled
def sgd_with_momentum(
    weights: int, first: int, gradient: int, size: int, factor: Any, rate: Any, momentum: Any
) -> None:
    """Make a step of stochastic gradient descent with momentum (Polyak 1964) by a gradient times `factor`."""
    w, m, g = f32(weights, size), f32(first, size), f32(gradient, size)
    for i in range(size):
        m[i] = fma(momentum, m[i], g[i] * factor)
        w[i] -= rate * m[i]


@compiled
def update_target(target: int, online: int, size: int, share: Any) -> None:
    """Move target weights by a share towards the online weights; a share of 1 copies them."""
    moved, towards = f32(target, size), f32(online, size)
    if share == float32(1.0):
        for i in range(size):
            moved[i] = towards[i]
    else:
        for i in range(size):
            moved[i] = fma(share, towards[i] - moved[i], moved[i])
