"""Updates of a team from a replay buffer in compiled code: draw, read, gradient step, target update."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from marltrain.jit.compiling import compiled, program
from marltrain.jit.views import call, f32, record_at
from marltrain.policies.compiled.acting import ACT
from marltrain.policies.compiled.mixer_kernel import MIXER
from marltrain.policies.compiled.reward_kernel import SCALING
from marltrain.policies.compiled.rounds_kernel import (
    ROUNDS,
    begin_round,
    metrics_of_update,
    scale_drawn,
    shares_of_update,
)
from marltrain.policies.compiled.team_kernel import TEAM_STEP, team_step_at, update_team_targets
from marltrain.policies.memory.compiled.replay_kernel import READING, reading_at
from marltrain.policies.memory.compiled.team_replay_kernel import TEAM_READING, draw_steps, read_steps, team_reading_at

_ONE = (
    "reading",  # address of a TEAM_READING
    "make_step",  # address of the program that makes a gradient step: (address of a TEAM_STEP) -> 1 if it is finite
    "mixer_rate_index",  # among the hyperparameters
    "of_team",  # per update: float32, by which the target network of the mixer moves
)  # fmt: skip
TEAM_UPDATE = np.dtype(ROUNDS + [(name, np.int64) for name in _ONE])
"""Arguments of the updates of a team that are due within a call of compiled code: numbers and addresses."""


@compiled
def team_update(address: int, now: int) -> int:
    """Make the next round of the TEAM_UPDATE at an address; return 0. now: the batch step of the newest row."""
    u = record_at(address, TEAM_UPDATE)
    t, d = team_step_at(u.step), team_reading_at(u.reading)
    r = reading_at(d.reading)
    r.gamma = u.gamma + 8 * u.round * u.agents
    t.mixer_rate = u.hyper + 4 * u.agents * (u.round * u.settings + u.mixer_rate_index)
    for _ in range(begin_round(u, t)):
        t.metrics = metrics_of_update(u)
        draw_steps(d, r, now)
        read_steps(d, r)
        if d.differs:
            u.broken = 1
            return 0
        scale_drawn(u, d.reward, 0, 0, d.batch)
        fine = call(u.make_step, (u.step,)) != 0
        update_team_targets(t, shares_of_update(u), f32(u.of_team, u.made + 1)[u.made])
        u.made += 1
        if not fine:
            u.broken = 1
            return 0
    return 0


@functools.cache
def team_update_program() -> Any:
    """Return the compiled `team_update`, from the disk cache if it is there."""
    return program(team_update, ACT, MIXER, READING, SCALING, TEAM_READING, TEAM_STEP, TEAM_UPDATE)
