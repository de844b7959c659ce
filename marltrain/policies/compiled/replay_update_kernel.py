"""Updates from a replay buffer in compiled code: draw, read, gradient step, target update."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from marltrain.jit.compiling import compiled, program
from marltrain.jit.views import copy, f32, f64, i64, next_double, record_at
from marltrain.policies.compiled.acting import ACT
from marltrain.policies.compiled.q_kernel import Q_STEP, step, step_at, update_targets
from marltrain.policies.compiled.reward_kernel import SCALING
from marltrain.policies.compiled.rounds_kernel import (
    ROUNDS,
    begin_round,
    metrics_of_update,
    scale_drawn,
    shares_of_update,
)
from marltrain.policies.memory.compiled.priority_kernel import (
    PRIORITIES,
    draw_rows,
    follow_ring,
    set_priorities,
    share_out,
    trees_at,
)
from marltrain.policies.memory.compiled.replay_kernel import READING, draw, read, reading_at

_ONE = (
    "reading",  # address of a READING
    "trees", "beta",  # address of PRIORITIES, or 0 (uniform draws); float64 [R, K]
    "random", "numbers", "importance",  # float64 [K, B], int64 [K, B] (rows) and float32 [K, B], of prioritized draws
)  # fmt: skip
UPDATE = np.dtype(ROUNDS + [(name, np.int64) for name in _ONE])
"""Arguments of the updates of a learner that are due within a call of compiled code: numbers and addresses."""


@compiled
def update(address: int, now: int) -> int:
    """Make the next round of the UPDATE at an address; return 0. now: the batch step of the newest row."""
    u = record_at(address, UPDATE)
    p, r = step_at(u.step), reading_at(u.reading)
    r.gamma = u.gamma + 8 * u.round * u.agents
    if u.trees:
        copy(u.beta + 8 * u.round * u.agents, trees_at(u.trees).beta, 8 * u.agents)
    for _ in range(begin_round(u, p)):
        p.metrics = metrics_of_update(u)
        if u.trees:
            draw_prioritized(u, r, p, now)
        else:
            draw(r, now)
        read(r)
        scale_drawn(u, r.to_reward, u.importance if p.errors else 0, p.due, r.rows)
        fine = step(p)
        if p.errors and fine:
            fine = learn_priorities(u, r, p)
        update_targets(p, shares_of_update(u))
        u.made += 1
        if not fine:
            u.broken = 1
            return 0
    return 0


@compiled
def draw_prioritized(u: Any, r: Any, p: Any, now: int) -> None:
    """Draw cells as `PrioritizedChoice.draw` does, and write the shares and scales of the rows' weights."""
    t, rows = trees_at(u.trees), r.rows
    follow_ring(t, now)
    generators, doubles = i64(r.generator, r.agents), i64(r.draw_double, r.agents)
    cells, firsts = i64(r.cells, r.agents * rows), i64(r.first_seat, r.agents)
    for k in range(r.agents):
        if generators[k] == 0:
            cells[k * rows : (k + 1) * rows] = i64(r.seats + 8 * firsts[k], 1)[0]
            continue
        random = f64(u.random + 8 * k * rows, rows)
        for i in range(rows):
            random[i] = next_double(doubles[k], generators[k])
        weights = f32(u.importance + 4 * k * rows, rows)
        draw_rows(t, k, random, cells[k * rows : (k + 1) * rows], weights, i64(u.numbers + 8 * k * rows, rows))
        if p.errors:
            f32(p.scale, r.agents)[k] = share_out(weights, f32(p.share + 4 * k * rows, rows))


@compiled
def learn_priorities(u: Any, r: Any, p: Any) -> bool:
    """Set the priorities of the rows drawn last; return whether their errors are finite."""
    fine, rows, generators = True, r.rows, i64(r.generator, r.agents)
    for k in range(r.agents):
        if generators[k] != 0:
            errors = f32(p.errors + 4 * k * rows, rows)
            drawn = i64(u.numbers + 8 * k * rows, rows)
            fine = set_priorities(trees_at(u.trees), k, drawn, errors, False) and fine
    return fine


@functools.cache
def update_program() -> Any:
    """Return the compiled `update`, from the disk cache if it is there."""
    return program(update, ACT, PRIORITIES, Q_STEP, READING, SCALING, UPDATE)
