"""Rounds of updates in compiled code: draw rows, run the programs of the gradient steps, move the target networks."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from marltrain.jit.compiling import compiled, program
from marltrain.jit.views import bools, call, copy, f32, i64, record_at
from marltrain.policies.compiled.observation_kernel import OBSERVING, observe
from marltrain.policies.compiled.reward_kernel import SCALING, scale_rewards, scaling_at

_ONE = (
    "program",  # address of `make_round`
    "rounds", "after", "updates",  # R rounds: batch steps of the plan before each [R]; updates of each [R]
    "begun",  # batch steps of the plan made before the call
    "round", "made", "broken",  # rounds begun and updates made so far; whether the last update could not be made
    "acting",  # address of the hyperparameters that acting reads, float32 [H, K], or 0
    "agents", "settings",  # K; number of hyperparameters H
    "hyper", "gamma",  # float32 [R, H, K], float64 [R, K]
    "scaling", "reward_scale",  # address of a SCALING, or 0: rewards do not change; its factors, float64 [R, ...]
    "observing",  # address of an OBSERVING, or 0: observations are not normalized
    "draw", "drawing",  # address of a program that writes the rows of an update: (address of the record, newest batch
             # step) -> 1, or 0: the rows cannot be learned from; address of its own arguments
    "numbers", "run", "phases", "phase",  # [H, K], hyperparameters that programs read; address of `runs.run`;
             # number of phases, and their PHASEs
    "learn",  # address of a program that reads the errors of rows: (address of the record) -> 0 if one is not finite
    "share", "shares", "moves",  # float32 [U, K + 1] and [K + 1], written: see `TargetMoves`; address of its RUN
    "metrics", "measured", "learns",  # per update: [measured, K]; [K] bool, the agents that learn
    "due",  # [U, phases, K] bool, the agents for which a phase is due in an update
)  # fmt: skip
ROUNDS = np.dtype([(name, np.int64) for name in _ONE])
"""Arguments of planned updates: numbers and addresses."""
PHASE = np.dtype([(name, np.int64) for name in (
    "run", "metrics", "measured", "norms", "norm", "due", "computed", "draws", "draw",
)])  # fmt: skip
"""Addresses and sizes of the program of a phase.

run: of its RUN.  metrics: [measured, K] float32.  norms, norm: [norms] int64, the metrics that are NaN after a loss or
a gradient that is not finite.  due: [K] bool, the agents whose weights the next run moves.  computed: [K] bool, those
that it computes; 0: always the same.  draws, draw: the number of its DRAWs, and their address.
"""
DRAW = np.dtype([(name, np.int64) for name in ("base", "start", "step")])
"""A column of random numbers that a program reads.

base: where the program has its address, int64.  start: address of its numbers for the first update.  step: bytes of the
numbers of an update.
"""
_PHASE_BYTES, _DRAW_BYTES = PHASE.itemsize, DRAW.itemsize


@compiled
def rounds_at(address: int) -> Any:
    """Return the ROUNDS record at an address."""
    return record_at(address, ROUNDS)


@compiled
def is_due(u: Any, steps: int) -> bool:
    """Return whether a round is due after `steps` batch steps of the call."""
    return u.round < u.rounds and i64(u.after, u.rounds)[u.round] == u.begun + steps


@compiled
def make_round(address: int, now: int) -> int:
    """Make the updates of the next round; return 0. now: the batch step of the newest row."""
    u = rounds_at(address)
    for _ in range(begin_round(u)):
        if call(u.draw, (address, now)) == 0:
            u.broken = 1
            return 0
        if u.observing:
            observe(u.observing, u.learns)
        fine = make_steps(u)
        if u.learn and fine:
            fine = call(u.learn, (address,)) != 0
        copy(u.share + 4 * (u.agents + 1) * u.made, u.shares, 4 * (u.agents + 1))
        call(u.run, (u.moves,))
        u.made += 1
        if not fine:
            u.broken = 1
            return 0
    return 0


@compiled
def begin_round(u: Any) -> int:
    """Set the hyperparameters of the next round, of acting and of the programs; return the number of updates."""
    each, count = 4 * u.agents, i64(u.updates, u.rounds)[u.round]
    u.round += 1
    hyper = of_round(u, u.hyper, u.settings * each)
    copy(hyper, u.numbers, u.settings * each)
    if u.acting:
        copy(hyper, u.acting, u.settings * each)
    if u.scaling:
        s = scaling_at(u.scaling)
        s.scale = of_round(u, u.reward_scale, 8 * s.agents)
    return count


@compiled
def of_round(u: Any, start: int, size: int) -> int:
    """Return the address of an entry of `size` bytes of the present round, of an array with one for each round."""
    return start + size * (u.round - 1)


@compiled
def make_steps(u: Any) -> bool:
    """Run the programs of all phases, and write their metrics; return whether losses and gradients are finite."""
    fine, place = True, u.metrics + 4 * u.measured * u.agents * u.made
    due = u.due + u.phases * u.agents * u.made
    for i in range(u.phases):
        p = record_at(u.phase + _PHASE_BYTES * i, PHASE)
        if set_due(u, p, due + u.agents * i):
            set_draws(u, p)
            call(u.run, (p.run,))
            copy(p.metrics, place, 4 * p.measured * u.agents)
            fine = is_finite(u, p) and fine
        place += 4 * p.measured * u.agents
    return fine


@compiled
def set_due(u: Any, p: Any, due: int) -> bool:
    """Set the agents of a phase's next run; return whether there are any.  due: address of [K] bool."""
    copy(due, p.due, u.agents)
    if p.computed:
        copy(due, p.computed, u.agents)
    found = False
    for own in bools(due, u.agents):
        found = found or own
    return found


@compiled
def set_draws(u: Any, p: Any) -> None:
    """Let a phase's program read the random numbers of the next update."""
    for i in range(p.draws):
        d = record_at(p.draw + _DRAW_BYTES * i, DRAW)
        i64(d.base, 1)[0] = d.start + d.step * u.made


@compiled
def is_finite(u: Any, p: Any) -> bool:
    """Return whether the losses and gradients of a phase are finite, of the agents for which it was due."""
    due, metrics = bools(p.due, u.agents), f32(p.metrics, p.measured * u.agents)
    for metric in i64(p.norm, p.norms):
        for k in range(u.agents):
            if due[k] and math.isnan(metrics[metric * u.agents + k]):
                return False
    return True


@compiled
def scale_drawn(u: Any, rewards: int, weights: int, learn: int, rows: int) -> None:
    """Scale the rewards of a batch, see `scale_rewards`."""
    if u.scaling:
        scale_rewards(scaling_at(u.scaling), rewards, weights, learn, rows)


@functools.cache
def rounds_program() -> Any:
    """Return the compiled `make_round`, from the disk cache if it is there."""
    return program(make_round, DRAW, OBSERVING, PHASE, SCALING, ROUNDS)
