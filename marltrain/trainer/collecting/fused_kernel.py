"""The compiled loop of `FusedCollector`: several batch steps of a native game, in one or several threads."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from marltrain.envs.native.batch import FINE, STEP
from marltrain.envs.rotation_kernel import ROTATION, rotation_at, seat_actions, show_step
from marltrain.jit.compiling import compiled, program
from marltrain.jit.threads import LOOKS
from marltrain.jit.views import add_at, bools, call, i64, record_at, value_at
from marltrain.policies.learner.planned.rounds_kernel import ROUNDS, is_due, rounds_at
from marltrain.policies.memory.compiled.ring_kernel import (
    ROWS,
    fits,
    note_learning,
    record_actions,
    record_step,
    rows_at,
    settle_ends,
)
from marltrain.policies.memory.compiled.states_kernel import STATES, settle_states, state_arrived, states_at, states_fit
from marltrain.trainer.collecting.ended_episodes import ENDED, count_step, ended_at, list_ended
from marltrain.trainer.collecting.shared_rewards import SHARED, share, shared_at

MOST = 32
"""Maximum number of learners, ring buffers and groups."""
ACT, MOVE, SETTLE, RECORD, BEHIND = 1, 2, 4, 8, 16
"""Parts of the phases of a batch step: the acts; the record of the actions and the step of the game; the offers of
decisions to reservoirs, the ends of episodes and of players' parts; the record of the outcome, and due updates.
BEHIND: the record of the previous batch step's outcome, where compiled code makes no updates; it stands before the acts
of the next step.
"""
PHASES = 3
"""Maximum number of phases of a batch step."""
ANY_STEP, ALL_ACT, NO_ENDS = range(3)
"""Kinds of steps that compiled code records."""
_ONE = ("most", "before", "envs", "columns", "players", "actors", "rings", "groups", "schedulers", "game", "batch",
        "wrong", "rotation", "states", "shared", "episodes", "plain", "phases", "blocks", "low", "high", "counts",
        "give_way", "offer")  # fmt: skip
_ARRAYS = ("learned", "ended", "terminated", "truncated")
_LISTS = ("act", "actor", "noise", "ring", "time", "reservoir", "turn", "size", "scheduler", "read")
FUSED = np.dtype(
    [(n, np.int64) for n in (*_ONE, *_ARRAYS)]
    + [(name, np.int64, (MOST,)) for name in _LISTS]
    + [("parts", np.int64, (PHASES,))]
)
"""Arguments of the fused kernel: numbers and addresses.

most: maximum batch steps.  before: batch steps made since `time`.
envs, players, actors, rings, groups, schedulers: how many there are, for the line-up.
columns: number of environments of the games: `envs` of each match.
game: address of the game kernel.  batch: address of its arguments.
wrong: return values of the game kernel, [blocks] int64.
rotation: address of ROTATION, or 0 if no player changes seats.
states: address of STATES, or 0 if no global states are stored.
shared: address of SHARED, or 0 if all players learn from their own rewards.
episodes: address of ENDED.  plain: which steps are recorded: ANY_STEP; ALL_ACT: those in
  which all players have the turn; NO_ENDS: of these, those in which no episode or player's part ends.
phases: number of phases of a batch step.  parts: of each phase, the sum of its parts.
low, high: the environments in which actions are chosen and that are stepped; outcomes of all are recorded.
blocks: number of blocks of environments, the tasks of a phase.  counts: of COUNTS.  give_way: see `jit.threads`.
learned, ended, terminated, truncated: addresses of arrays; learned: the rewards to learn from.
act, actor: for each learner the address of the kernel that acts, and of its arguments; noise: number of its first act.
ring: addresses of ROWS, one for each ring buffer; time: batch step of its newest row, the same for all.
reservoir: addresses of RESERVOIR, or 0 if a ring has none.  offer: address of `reservoir_kernel.offer`.
turn, size: for each group the address of its turn flags, and their number.
scheduler: addresses of ROUNDS; read: index of the ring buffer that each reads.
"""
COUNTS = np.dtype([(name, np.int64) for name in ("tickets", "ready", "done", "moved", "special", "last", "stopped")])
"""Counts that the threads share.

tickets, ready: tasks taken, and tasks done for their blocks.  done: phases that are complete.
moved: batch steps made.  special: whether the last step needs Python.
last: whether no further step and update is made: an update was not finite, or enough episodes ended.
stopped: whether the remaining tasks are left out.
"""
_TICKETS, _READY, _DONE, _MOVED, _SPECIAL, _LAST, _STOPPED = (8 * i for i in range(len(COUNTS.names or ())))


@compiled
def fused_steps(address: int, _thread: int) -> int:
    """Make batch steps, together with other threads that run this; return 0.

    A batch step has phases, and a phase has a task for each block of environments. A thread takes the next free task,
    then waits until all earlier phases are complete. The thread that does the last task of a phase completes it, with
    what one thread does for all environments. No thread waits for a thread that has not started yet.
    """
    s = record_at(address, FUSED)
    while True:
        ticket = add_at(s.counts + _TICKETS, 1)
        phase, block = ticket // s.blocks, ticket % s.blocks
        step, part = phase // s.phases, s.parts[phase % s.phases]
        if step > s.most or (step == s.most and not part & BEHIND) or not begins(s, phase):
            return 0
        part = due_part(s, part, step)
        if part == 0:
            add_at(s.counts + _STOPPED, 1)
            return 0
        run_part(s, part, s.before + step, block)
        if add_at(s.counts + _READY, 1) % s.blocks == s.blocks - 1:
            complete_part(s, part, s.before + step)
            add_at(s.counts + _DONE, 1)


@compiled
def begins(s: Any, phase: int) -> bool:
    """Wait until all earlier phases are complete; return whether the phase is not left out."""
    looks = 0
    while value_at(s.counts + _DONE) < phase and value_at(s.counts + _STOPPED) == 0:
        looks += 1
        if looks > LOOKS and s.give_way:
            call(s.give_way, ())
    return bool(value_at(s.counts + _STOPPED) == 0)


@compiled
def due_part(s: Any, part: int, step: int) -> int:
    """Return what is done of the parts of a phase in the call's batch step number `step`.

    0: nothing, nor of later phases: the last step needs Python, or was the last one.
    """
    if part & (RECORD | BEHIND) and value_at(s.counts + _SPECIAL):
        return 0
    if part & BEHIND and step == 0:
        return part - BEHIND
    if part & BEHIND and (step == s.most or value_at(s.counts + _LAST)):
        return BEHIND
    return 0 if part & ACT and value_at(s.counts + _LAST) else part


@compiled
def run_part(s: Any, part: int, step: int, block: int) -> None:
    """Do the task of a phase, in batch step `step` since `time`, for a block of environments."""
    first, envs = (0, s.envs) if part & RECORD else (s.low, s.high - s.low)
    low, high = first + block * envs // s.blocks, first + (block + 1) * envs // s.blocks
    if part & BEHIND:
        record(s, step, low, high)
    if part & ACT:
        act(s, step, low, high)
    if part & MOVE:
        move(s, step, block, low, high)
    if part & RECORD:
        record(s, step + 1, low, high)


@compiled
def complete_part(s: Any, part: int, step: int) -> None:
    """Do what follows the tasks of a phase, for all environments: settle the ends, or make the updates that are due."""
    if part == BEHIND:
        add_at(s.counts + _STOPPED, 1)  # there are no further acts
    if part & MOVE:
        complete_move(s, step)
    if part & SETTLE:
        offer_decisions(s, step)
        if not value_at(s.counts + _SPECIAL):
            settle(s, step + 1)
    if part & RECORD and not value_at(s.counts + _LAST) and not learned(s, step + 1):
        add_at(s.counts + _LAST, 1)


@compiled
def complete_move(s: Any, step: int) -> None:
    """Note which seats learned in a batch step, and whether Python must report an illegal action."""
    for i in range(s.rings):
        note_learning(rows_at(s.ring[i]), s.time[i] + step)
    add_at(s.counts + _MOVED, 1)
    for wrong in i64(s.wrong, s.blocks):
        if wrong != FINE:
            add_at(s.counts + _SPECIAL, 1)


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
    wrong = FINE
    for first in range(0, s.columns, s.envs):
        wrong = max(wrong, step_games(s, first + low, first + high))
    i64(s.wrong, s.blocks)[block] = wrong


@compiled
def step_games(s: Any, low: int, high: int) -> int:
    """Step the environments `low` to `high` of the games; return the result of the game kernel."""
    if s.rotation == 0:
        return call(s.game, (s.batch, STEP, low, high, 0))
    seat_actions(rotation_at(s.rotation), low, high)
    wrong = call(s.game, (s.batch, STEP, low, high, 0))
    if wrong == FINE:
        show_step(rotation_at(s.rotation), low, high)
    return wrong


@compiled
def offer_decisions(s: Any, step: int) -> None:
    """Offer the decisions of batch step `step` since `time` to the reservoirs."""
    for i in range(s.rings):
        if s.reservoir[i]:
            call(s.offer, (s.reservoir[i], s.time[i] + step))


@compiled
def settle(s: Any, made: int) -> None:
    """Settle the ends in the last of `made` batch steps, unless Python must record it."""
    free = is_known(s)
    for i in range(s.rings):
        free = free and fits(rows_at(s.ring[i]), s.time[i] + made)
    if s.states:
        free = free and states_fit(states_at(s.states), s.time[0] + made, s.ended)
    if not free:
        add_at(s.counts + _SPECIAL, 1)
        return
    if s.states:
        settle_states(states_at(s.states), s.time[0] + made, s.ended)
    for i in range(s.rings):
        settle_ends(rows_at(s.ring[i]), s.time[i] + made)
    if not list_ended(ended_at(s.episodes), made):
        add_at(s.counts + _LAST, 1)


@compiled
def record(s: Any, made: int, low: int, high: int) -> None:
    """Record the outcome of a step in the environments `low` to `high`."""
    if s.shared:
        share(shared_at(s.shared), low, high)
    for i in range(s.rings):
        record_step(rows_at(s.ring[i]), s.time[i] + made, s.learned, low, high)
    if s.states:
        state_arrived(states_at(s.states), s.time[0] + made, s.ended, low, high)
    for first in range(0, s.columns, s.envs):
        count_step(ended_at(s.episodes), first + low, first + high)


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
def is_known(s: Any) -> bool:
    """Return whether the last step is of a kind that compiled code records, see `plain`."""
    size = s.players * s.envs
    if s.plain == NO_ENDS and (
        any_of(s.ended, s.envs, True) or any_of(s.terminated, size, True) or any_of(s.truncated, size, True)
    ):
        return False
    if s.plain != ANY_STEP:
        for i in range(s.groups):
            if any_of(s.turn[i], s.size[i], False):
                return False
    return True


@compiled
def any_of(address: int, size: int, wanted: bool) -> bool:
    """Return whether any flag [size] at an address is `wanted`."""
    found = False
    for value in bools(address, size):
        found = found or value == wanted
    return found


@functools.cache
def fused_program() -> Any:
    """Return the compiled `fused_steps`, from the disk cache if it is there."""
    return program(fused_steps, ROWS, STATES, SHARED, ENDED, FUSED, ROUNDS, ROTATION)
