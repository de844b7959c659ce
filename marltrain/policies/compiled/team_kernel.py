"""A gradient step of a team in compiled code: the equivalent of `ValueMixing` and `JointStep`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import float32

from marltrain.jit.compiling import compiled
from marltrain.jit.views import bools, f32, i64, record_at
from marltrain.policies.compiled.mixer_kernel import mix_backward, mix_next, mix_taken, mixer_at
from marltrain.policies.compiled.network import backward, forward, outputs_at, transpose_weights
from marltrain.policies.compiled.optimizers import norm, optimizer_step, update_target
from marltrain.policies.compiled.q_kernel import Q_NETWORKS, update_targets, write_next_values

METRICS = 6
LOSS, MEAN, NORM, CLIPPED, MIXER_NORM, MIXER_CLIPPED = range(METRICS)
"""Rows of the metrics of a gradient step; a team without a mixer has those before MIXER_NORM."""

_ONE = (
    "players", "batch",  # N players, those of an agent together; B batch steps; an agent has N / K * B rows
    "present", "next_present",  # [N, B] bool
    "learned",  # [N, B] bool, or 0: all; see `TeamRows`
    "reward", "discount", "share",  # [B]
    "limit",  # [K]; the first is that of the team
    "mixer", "mixer_rate",  # address of a MIXER, or 0: the values are added; [K], the first is its step size
    "metrics", "measured",  # [measured, K]
    "stored",  # elements of the activations of an agent, which are kept for all agents
    "values", "slopes",  # work arrays [N, B]
    "targets", "totals",  # work arrays [B]
)  # fmt: skip
TEAM_STEP = np.dtype(Q_NETWORKS + [(name, np.int64) for name in _ONE])
"""Arguments of a gradient step of a team: numbers and addresses; `gradient` is [K, size]."""


@compiled
def team_step_at(address: int) -> Any:
    """Return the TEAM_STEP record at an address."""
    return record_at(address, TEAM_STEP)


@compiled
def team_step(t: Any) -> bool:
    """Make a gradient step for the agents that are due; return whether the loss and the gradients are finite."""
    write_team_targets(t)
    write_values(t)
    if t.mixer:
        mix_taken(mixer_at(t.mixer), t.values, t.totals)
    else:
        add_values(t, t.totals)
    loss = write_errors(t)
    add_gradients(t)
    return apply_team_gradients(t, loss)


@compiled
def write_team_targets(t: Any) -> None:
    """Write the targets r + discount * Q_tot_target(s', a'), where a'_i is best by agent i alone."""
    following, present = f32(t.values, t.players * t.batch), bools(t.next_present, t.players * t.batch)
    for k in range(t.agents):
        write_next_values(t, k, t.values + 4 * k * t.rows)
    for i in range(t.players * t.batch):
        if not present[i]:
            following[i] = float32(0.0)
    if t.mixer:
        mix_next(mixer_at(t.mixer), t.values, t.targets)
    else:
        add_values(t, t.targets)
    targets, reward, discount = f32(t.targets, t.batch), f32(t.reward, t.batch), f32(t.discount, t.batch)
    for b in range(t.batch):
        targets[b] = reward[b] + discount[b] * targets[b]


@compiled
def write_values(t: Any) -> None:
    """Write the values of the players' actions; 0 for players that are absent."""
    for k in range(t.agents):
        place = k * t.rows
        x, activations = t.obs + 4 * place * t.width, t.activations + 4 * k * t.stored
        q = f32(forward(t, x, t.rows, t.weights + 4 * k * t.size, activations), t.rows * t.choices)
        action, present = i64(t.action + 8 * place, t.rows), bools(t.present + place, t.rows)
        values = f32(t.values + 4 * place, t.rows)
        for row in range(t.rows):
            values[row] = q[row * t.choices + action[row]] if present[row] else float32(0.0)


@compiled
def add_values(t: Any, made: int) -> None:
    """Write the sums of the players' values to `made` [B]."""
    totals, values = f32(made, t.batch), f32(t.values, t.players * t.batch)
    totals[:] = float32(0.0)
    for i in range(t.players):
        for b in range(t.batch):
            totals[b] += values[i * t.batch + b]


@compiled
def write_errors(t: Any) -> Any:
    """Write the metrics of the loss and replace Q_tot by the loss's gradient with respect to it; return the loss."""
    totals, targets, share = f32(t.totals, t.batch), f32(t.targets, t.batch), f32(t.share, t.batch)
    loss = mean = float32(0.0)
    for b in range(t.batch):
        error = totals[b] - targets[b]
        loss += share[b] * (error * error)
        mean += share[b] * totals[b]
        totals[b] = float32(2.0) * share[b] * error
    metrics = f32(t.metrics, t.measured * t.agents)
    for k in range(t.agents):
        metrics[LOSS * t.agents + k], metrics[MEAN * t.agents + k] = loss, mean
    return loss


@compiled
def add_gradients(t: Any) -> None:
    """Write the gradients of the agents that are due, and that of the mixer."""
    slopes, totals = f32(t.slopes, t.players * t.batch), f32(t.totals, t.batch)
    if t.mixer:
        mix_backward(mixer_at(t.mixer), t.values, t.totals, t.slopes)
    else:
        for i in range(t.players):
            slopes[i * t.batch : (i + 1) * t.batch] = totals
    due = bools(t.due, t.agents)
    for k in range(t.agents):
        if due[k]:
            add_agent_gradient(t, k)


@compiled
def add_agent_gradient(t: Any, k: int) -> None:
    """Write the gradient of the loss with respect to agent k's weights."""
    place, weights, activations = k * t.rows, t.weights + 4 * k * t.size, t.activations + 4 * k * t.stored
    x, gradient = t.obs + 4 * place * t.width, t.gradient + 4 * k * t.size
    output_grads = f32(outputs_at(t, t.rows, activations), t.rows * t.choices)
    action, present = i64(t.action + 8 * place, t.rows), bools(t.present + place, t.rows)
    slopes = f32(t.slopes + 4 * place, t.rows)
    output_grads[:] = float32(0.0)
    for row in range(t.rows):
        if present[row]:
            output_grads[row * t.choices + action[row]] = slopes[row]
    if t.learned:
        learned = bools(t.learned + place, t.rows)
        for row in range(t.rows):
            if not learned[row]:
                output_grads[row * t.choices + action[row]] = float32(0.0)
    transpose_weights(t, weights, t.transposed)
    f32(gradient, t.size)[:] = float32(0.0)
    backward(t, x, t.rows, t.transposed, activations, gradient, t.zeros, t.scratch)


@compiled
def apply_team_gradients(t: Any, loss: Any) -> bool:
    """Update the weights by the gradients, which are clipped together; return whether the loss and they are finite."""
    metrics, due = f32(t.metrics, t.measured * t.agents), bools(t.due, t.agents)
    squares = float32(0.0)
    for k in range(t.agents):
        length = norm(t.gradient + 4 * k * t.size, t.size, t.scratch) if due[k] else float32(0.0)
        metrics[NORM * t.agents + k] = length
        squares += length * length
    of_mixer = float32(0.0)
    if t.mixer:
        m = mixer_at(t.mixer)
        of_mixer = norm(m.gradient, m.size, m.scratch)
        squares += of_mixer * of_mixer
    length = math.sqrt(squares)
    factor = min(f32(t.limit, t.agents)[0] / (length + float32(1e-6)), float32(1.0))
    fine = math.isfinite(loss + length)
    for k in range(t.agents):
        write_norm(t, NORM, k, metrics[NORM * t.agents + k], factor, fine)
        if t.mixer:
            write_norm(t, MIXER_NORM, k, of_mixer, factor, fine)
        if due[k]:
            optimizer_step(t, t.rule, t.agents, k, t.gradient + 4 * k * t.size, factor, fine)
    if t.mixer:
        m = mixer_at(t.mixer)
        m.rate, m.weight_decay, m.momentum = t.mixer_rate, t.weight_decay, t.momentum
        optimizer_step(m, t.rule, 1, 0, m.gradient, factor, fine)
    return fine


@compiled
def write_norm(t: Any, row: int, k: int, length: Any, factor: Any, fine: bool) -> None:
    """Write the norm of a gradient and that of the clipped one, which follows it, to the metrics of agent k."""
    metrics = f32(t.metrics, t.measured * t.agents)
    metrics[row * t.agents + k] = length if fine else float32(np.nan)
    metrics[(row + 1) * t.agents + k] = length * factor


@compiled
def update_team_targets(t: Any, shares: int, of_team: Any) -> None:
    """Move the target networks towards the online networks: those of the agents by shares float32 [K] at an address.

    of_team: the share of the mixer, float32.
    """
    update_targets(t, shares)
    if t.mixer and of_team != float32(0.0):
        m = mixer_at(t.mixer)
        update_target(m.target, m.weights, m.size, of_team)
