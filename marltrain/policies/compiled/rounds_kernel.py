"""Rounds of updates in compiled code: when they are due, and the hyperparameters of each."""

from __future__ import annotations

from typing import Any

import numpy as np

from marltrain.jit.compiling import compiled
from marltrain.jit.views import copy, i64, record_at
from marltrain.policies.compiled.acting import act_at
from marltrain.policies.compiled.reward_kernel import scale_rewards, scaling_at

_ONE = (
    "program",  # address of the program that makes a round: (address of the record, batch step of the newest row) -> 0
    "rounds", "after", "updates",  # R rounds: batch steps of the plan before each [R]; updates of each [R]
    "begun",  # batch steps of the plan made before the call
    "round", "made", "broken",  # rounds and updates made so far; whether the last update could not be made
    "act", "step",  # address of an ACT, and of the arguments of the gradient step
    "agents", "settings",  # K; number of hyperparameters H
    "limit_index", "rate_index", "weight_decay_index", "momentum_index",  # among the hyperparameters
    "epsilon_index",  # the same; -1: none
    "hyper", "gamma",  # float32 [R, H, K], float64 [R, K]
    "scaling", "reward_scale",  # address of a SCALING, or 0: rewards do not change; its factors, float64 [R, ...]
    "share", "metrics", "measured",  # per update: float32 [K], and [measured, K]
)  # fmt: skip
ROUNDS = [(name, np.int64) for name in _ONE]
"""First fields of the arguments of updates that are due within a call of compiled code: numbers and addresses."""
_ROUNDS = np.dtype(ROUNDS)


@compiled
def rounds_at(address: int) -> Any:
    """Return the first fields of the record at an address."""
    return record_at(address, _ROUNDS)


@compiled
def is_due(u: Any, steps: int) -> bool:
    """Return whether a round is due after `steps` batch steps of the call."""
    return u.round < u.rounds and i64(u.after, u.rounds)[u.round] == u.begun + steps


@compiled
def begin_round(u: Any, p: Any) -> int:
    """Set the hyperparameters of the next round, for acting and the gradient step p; return the number of updates."""
    each = 4 * u.agents
    hyper = u.hyper + u.round * u.settings * each
    p.limit, p.rate = hyper + u.limit_index * each, hyper + u.rate_index * each
    p.weight_decay, p.momentum = hyper + u.weight_decay_index * each, hyper + u.momentum_index * each
    if u.epsilon_index >= 0:
        copy(hyper + u.epsilon_index * each, act_at(u.act).epsilon, each)
    due: int = i64(u.updates, u.rounds)[u.round]
    if u.scaling:
        s = scaling_at(u.scaling)
        s.scale = u.reward_scale + 8 * u.round * s.agents
    u.round += 1
    return due


@compiled
def scale_drawn(u: Any, rewards: int, weights: int, learn: int, rows: int) -> None:
    """Scale the rewards of a batch, see `scale_rewards`."""
    if u.scaling:
        scale_rewards(scaling_at(u.scaling), rewards, weights, learn, rows)


@compiled
def metrics_of_update(u: Any) -> int:
    """Return the address of the metrics of the next update."""
    return u.metrics + 4 * u.measured * u.agents * u.made


@compiled
def shares_of_update(u: Any) -> int:
    """Return the address of the shares of the next update, by which the target networks move."""
    return u.share + 4 * u.agents * u.made
