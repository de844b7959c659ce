"""The compiled loop of `FusedCollector`: several batch steps of a native game, in one or several threads."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from marltrain.envs.native.batch import FINE, STEP
from marltrain.jit.compiling import compiled, program
from marltrain.jit.views import add_at, bools, call, f32, f64, i64, record_at, value_at
from marltrain.policies.learner.planned.rounds_kernel import ROUNDS, is_due, rounds_at
from marltrain.policies.memory.compiled.ring_kernel import ROWS, is_free, record_actions, record_step, rows_at
from marltrain.policies.memory.compiled.states_kernel import STATES, has_room, state_arrived, states_at
from marltrain.trainer.collecting.shared_rewards import SHARED, share, shared_at

MOST = 32
"""Maximum number of learners, ring buffers and groups."""
ACT, MOVE, RECORD, LEARN = 1, 2, 4, 8
"""Parts of the phases of a batch step: the acts; the record of the actions and the step of the game; the record
of its outcome; the updates that are due."""
PHASES = 4
"""Maximum number of phases of a batch step."""
_ONE = ("most", "envs", "players", "actors", "rings", "groups", "schedulers", "game", "batch",
        "wrong", "states", "shared", "phases", "blocks", "counts", "give_way")  # fmt: skip
_ARRAYS = ("reward", "learned", "returns", "ended", "terminated", "truncated")
_LISTS = ("act", "actor", "noise", "ring", "time", "turn", "size", "scheduler", "read")
FUSED = np.dtype(
    [(n, np.int64) for n in (*_ONE, *_ARRAYS)]
    + [(name, np.int64, (MOST,)) for name in _LISTS]
    + [("parts", np.int64, (PHASES,))]
)
"""Arguments of the fused kernel: numbers and addresses.

most: maximum batch steps.  envs, players, actors, rings, groups, schedulers: how many there are.
game: address of the game kernel.  batch: address of its arguments.
wrong: return values of the game kernel, [blocks] int64.
states: address of STATES, or 0 if no global states are stored.
shared: address of SHARED, or 0 if all players learn from their own rewards.
phases: number of phases of a batch step.  parts: of each phase, the sum of ACT, MOVE, RECORD and LEARN.
blocks: number of blocks of environments, the tasks of a phase.  counts: of COUNTS.  give_way: see `jit.threads`.
reward, learned, returns, ended, terminated, truncated: addresses of arrays; learned: the rewards to learn from.
act, actor: for each learner the address of the kernel that acts, and of its arguments; noise: number of its first act.
ring: addresses of ROWS, one for each ring buffer; time: batch step of its newest row, the same for all.
turn, size: for each group the address of its turn flags, and their number.
scheduler: addresses of ROUNDS; read: index of the ring buffer that each reads.
"""
COUNTS = np.dtype([(name, np.int64) for name in ("tickets", "done", "moved", "special", "broken", "stopped")])
"""Counts that the threads share.

tickets, done: tasks taken, and tasks done.  moved: batch steps made.  special: blocks whose last step needs Python.
broken: whether an update was not finite.  stopped: whether the remaining tasks are left out.
"""
_TICKETS, _DONE, _MOVED, _SPECIAL, _BROKEN, _STOPPED = (8 * i for i in range(len(COUNTS.names or ())))


@compiled
def fused_steps(address: int, _thread: int) -> int:
    """Make batch steps, together with other threads that run this; return 0.

    A batch step has phases, and a phase has a task for each block of environments. A thread takes the next free task,
    then waits until all earlier phases are complete. No thread waits for a thread that has not started yet.
    """
    s = record_at(address, FUSED)
    while True:
        ticket = add_at(s.counts + _TICKETS, 1)
        phase, block = ticket // s.blocks, ticket % s.blocks
        step, part = phase // s.phases, s.parts[phase % s.phases]
        if step >= s.most:
            return 0
        while value_at(s.counts + _DONE) < phase * s.blocks:
            if value_at(s.counts + _STOPPED):
                return 0
            if s.give_way:
                call(s.give_way, ())
        if is_last(s, part):
            add_at(s.counts + _STOPPED, 1)
            return 0
        run_part(s, part, step, block)
        add_at(s.counts + _DONE, 1)


@compiled
def is_last(s: Any, part: int) -> bool:
    """Return whether a phase and all later ones are left out: the last step needs Python, or an update was broken."""
    if part & RECORD and value_at(s.counts + _SPECIAL):
        return True
    return bool(part & ACT and value_at(s.counts + _BROKEN))


@compiled
def run_part(s: Any, part: int, step: int, block: int) -> None:
    """Do the task of a phase, in batch step `step` from the start of the call, for a block of environments."""
    low, high = block * s.envs // s.blocks, (block + 1) * s.envs // s.blocks
    if part & ACT:
        act(s, step, low, high)
    if part & MOVE:
        move(s, step, block, low, high)
    if part & RECORD:
        record(s, step + 1, low, high)
    if part & LEARN and block == 0 and not learned(s, step + 1):
        add_at(s.counts + _BROKEN, 1)


@compiled
def act(s: Any, step: int, low: int, high: int) -> None:
    """Choose the actions in the environments `low` to `high`, or a part of all actions; see `act_by_program`."""
    for i in range(s.actors):
        call(s.act[i], (s.actor[i], s.noise[i] + step, low, high, s.envs))


@compiled
def move(s: Any, step: int, block: int, low: int, high: int) -> None:
    """Record the actions in the environments `low` to `high`, and step them."""
    for i in range(s.rings):
        record_actions(rows_at(s.ring[i]), s.time[i] + step, low, high)
    wrong = call(s.game, (s.batch, STEP, low, high, 0))
    i64(s.wrong, s.blocks)[block] = wrong
    if block == 0:
        add_at(s.counts + _MOVED, 1)
    if wrong != FINE or not is_common(s, step + 1, low, high):
        add_at(s.counts + _SPECIAL, 1)


@compiled
def record(s: Any, made: int, low: int, high: int) -> None:
    """Record the outcome of a step in the environments `low` to `high`."""
    if s.shared:
        share(shared_at(s.shared), low, high)
    for i in range(s.rings):
        record_step(rows_at(s.ring[i]), s.time[i] + made, s.learned, low, high)
    if s.states:
        state_arrived(states_at(s.states), s.time[0] + made, low, high)
    rewards, returns = f32(s.reward, s.players * s.envs), f64(s.returns, s.players * s.envs)
    for p in range(s.players):
        for e in range(p * s.envs + low, p * s.envs + high):
            returns[e] += rewards[e]


@compiled
def learned(s: Any, made: int) -> bool:
    """Make the updates that are due; return whether their losses and gradients are finite."""
    for i in range(s.schedulers):
        u = rounds_at(s.scheduler[i])
        if is_due(u, made):
            call(u.program, (s.scheduler[i], s.time[s.read[i]] + made))
            if u.broken:
                return False
    return True


@compiled
def is_common(s: Any, made: int, low: int, high: int) -> bool:
    """Return whether the last step is ordinary and each ring buffer has a free row for the next step.

    In an ordinary step no episode or player's part ends, and all players have the turn. Only the environments `low` to
    `high` count.
    """
    if any_of(s.ended, 1, s.envs, low, high, True):
        return False
    if any_of(s.terminated, s.players, s.envs, low, high, True):
        return False
    if any_of(s.truncated, s.players, s.envs, low, high, True):
        return False
    for i in range(s.groups):
        if any_of(s.turn[i], s.size[i] // s.envs, s.envs, low, high, False):
            return False
    free = True
    for i in range(s.rings):
        free = free and is_free(rows_at(s.ring[i]), s.time[i] + made, low, high)
    if s.states:
        free = free and has_room(states_at(s.states), s.time[0] + made, low, high)
    return free


@compiled
def any_of(address: int, players: int, envs: int, low: int, high: int, wanted: bool) -> bool:
    """Return whether any flag [players, envs] at an address is `wanted`, in the environments `low` to `high`."""
    found = False
    for p in range(players):
        for value in bools(address + p * envs, envs)[low:high]:
            found = found or value == wanted
    return found


@functools.cache
def fused_program() -> Any:
    """Return the compiled `fused_steps`, from the disk cache if it is there."""
    return program(fused_steps, ROWS, STATES, SHARED, FUSED, ROUNDS)
