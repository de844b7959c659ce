"""A gradient step of K Q-learning agents in compiled code: the equivalent of `DQNAlgorithm` and `GradientStep`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import float32

from marltrain.jit.compiling import compiled
from marltrain.jit.views import bools, copy, f32, f64, i64, record_at
from marltrain.policies.compiled.acting import best
from marltrain.policies.compiled.network import NETWORK, backward, forward, transpose_weights
from marltrain.policies.compiled.optimizers import norm, optimizer_step, products_of_part, update_target

METRICS = 4
LOSS, MEAN, NORM, CLIPPED = range(METRICS)
"""Rows of the metrics of a gradient step."""

Q_NETWORKS = NETWORK + [(name, np.int64) for name in (
    "agents", "rows", "double", "rule", "due",  # K agents, B rows each; due [K]
    "weights", "target", "first", "second", "count",  # [K, size], and steps so far [K]
    "obs", "action", "next_obs", "next_legal",  # [K, B, ...]; next_legal may be 0 (none)
    "rate", "weight_decay", "momentum", "epsilon",  # [K] each, and one float64
    "activations", "next_activations", "transposed", "gradient", "zeros", "scratch",  # work arrays
)]  # fmt: skip
"""Fields of a record for the Q-networks of K agents and their rows: numbers and addresses."""
_ONE = (
    "reward", "discount", "share",  # [K, B]
    "limit",  # [K]
    "metrics",  # [4, K]
    "part", "products",  # gradient of the first half of the rows [size], its products float64 [2, K]; 0: not measured
    "scale", "errors",  # [K], factors of the losses; [K, B], sizes of the rows' errors, written; both may be 0 (none)
    "targets",  # work array
)  # fmt: skip
Q_STEP = np.dtype(Q_NETWORKS + [(name, np.int64) for name in _ONE])
"""Arguments of a gradient step: numbers and addresses."""


@compiled
def step_at(address: int) -> Any:
    """Return the Q_STEP record at an address."""
    return record_at(address, Q_STEP)


@compiled
def step(p: Any) -> bool:
    """Make a gradient step for the agents that are due; return whether all losses and gradients are finite."""
    due, metrics, fine = bools(p.due, p.agents), f32(p.metrics, METRICS * p.agents), True
    for k in range(p.agents):
        if due[k]:
            write_targets(p, k)
            loss_gradient(p, k, metrics)
            fine = apply_gradients(p, k, metrics) and fine
        else:
            for metric in range(METRICS):
                metrics[metric * p.agents + k] = float32(0.0)
    return fine


@compiled
def write_targets(p: Any, k: int) -> None:
    """Write the targets r + discount * Q_target(s', a') of an agent's rows; see `write_next_values`."""
    rows = p.rows
    write_next_values(p, k, p.targets)
    targets = f32(p.targets, rows)
    reward, discount = f32(p.reward + 4 * k * rows, rows), f32(p.discount + 4 * k * rows, rows)
    for row in range(rows):
        targets[row] = reward[row] + discount[row] * targets[row]


@compiled
def write_next_values(p: Any, k: int, made: int) -> None:
    """Write Q_target(s', a') of agent k's rows to `made` [B]; a' is the best legal action.

    The online network chooses a' if `double` is set, otherwise the target network.  p: a record with Q_NETWORKS.
    """
    x, rows = p.next_obs + 4 * k * p.rows * p.width, p.rows
    valued = forward(p, x, rows, p.target + 4 * k * p.size, p.next_activations)
    judged = forward(p, x, rows, p.weights + 4 * k * p.size, p.activations) if p.double else valued
    values, following = f32(valued, rows * p.choices), f32(made, rows)
    for row in range(rows):
        legal = p.next_legal and p.next_legal + (k * rows + row) * p.choices
        action = best(f32(judged + 4 * row * p.choices, p.choices), legal)
        following[row] = values[row * p.choices + action]


@compiled
def loss_gradient(p: Any, k: int, metrics: Any) -> None:
    """Write the gradient of the Huber loss, the loss and the mean value, and the products of the first half's gradient.

    The products are written only if they are measured.
    """
    metrics[LOSS * p.agents + k] = metrics[MEAN * p.agents + k] = float32(0.0)
    transpose_weights(p, p.weights + 4 * k * p.size, p.transposed)
    f32(p.gradient, p.size)[:] = float32(0.0)
    half = (p.rows + 1) // 2 if p.part else p.rows
    add_loss_gradient(p, k, 0, half, metrics)
    if p.part:
        copy(p.gradient, p.part, 4 * p.size)
        add_loss_gradient(p, k, half, p.rows, metrics)
        products_of_part(p.part, p.gradient, p.size, f64(p.products, 2 * p.agents), p.agents, k)


@compiled
def add_loss_gradient(p: Any, k: int, start: int, stop: int, metrics: Any) -> None:
    """Add the gradient of the Huber loss of the rows from `start` to `stop`, the loss and the mean value."""
    rows, place, weights = stop - start, k * p.rows + start, p.weights + 4 * k * p.size
    x = p.obs + 4 * place * p.width
    values = f32(forward(p, x, rows, weights, p.activations), rows * p.choices)
    targets, share = f32(p.targets + 4 * start, rows), f32(p.share + 4 * place, rows)
    action = i64(p.action + 8 * place, rows)
    loss = mean = float32(0.0)
    scale = f32(p.scale, p.agents)[k] if p.scale else float32(1.0)
    for row in range(rows):
        value = values[row * p.choices + action[row]]
        error = value - targets[row]
        size = abs(error)
        if p.errors:
            f32(p.errors + 4 * place, rows)[row] = size
        near = float32(1.0) if size > float32(1.0) else size
        loss += share[row] * (near * (size - float32(0.5) * near))
        mean += share[row] * value
        for i in range(p.choices):
            values[row * p.choices + i] = float32(0.0)
        values[row * p.choices + action[row]] = scale * share[row] * (near if error > 0 else -near)
    metrics[LOSS * p.agents + k] += loss
    metrics[MEAN * p.agents + k] += mean
    backward(p, x, rows, p.transposed, p.activations, p.gradient, p.zeros, p.scratch)


@compiled
def apply_gradients(p: Any, k: int, metrics: Any) -> bool:
    """Update the weights by the clipped gradient; return whether the loss and the gradient are finite."""
    length = norm(p.gradient, p.size, p.scratch)
    limit = f32(p.limit, p.agents)[k]
    factor = min(limit / (length + float32(1e-6)), float32(1.0))
    fine = math.isfinite(metrics[LOSS * p.agents + k] + length)
    metrics[NORM * p.agents + k] = length if fine else float32(np.nan)
    metrics[CLIPPED * p.agents + k] = length * factor
    optimizer_step(p, p.rule, p.agents, k, p.gradient, factor, fine)
    return fine


@compiled
def update_targets(p: Any, shares: int) -> None:
    """Move each agent's target network towards its online network, by shares float32 [K] at an address."""
    for k in range(p.agents):
        share = f32(shares, p.agents)[k]
        if share != float32(0.0):
            update_target(p.target + 4 * k * p.size, p.weights + 4 * k * p.size, p.size, share)
