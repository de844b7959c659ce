"""Acts of the members of a set in compiled code: rows are dealt to the agents that play them, which then act."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from marltrain.jit.compiling import compiled, program
from marltrain.jit.views import bools, copy, f32, i64, record_at
from marltrain.policies.compiled.acting import ACT, act_at, choose
from marltrain.policies.compiled.network import forward

PART = np.dtype([(name, np.int64) for name in ("act", "begin", "noise", "by_row", "used")])
"""Members that are computed together: numbers and addresses.

act: of the ACT of its K agents, or 0: compiled code does not act for them.  The arrays of observations, masks, flags
and actions have one row for each seat and environment, [B], and all parts have the same.
begin: number of the part's first agent among those of all parts.
noise: number of the act in the noise with which the first act of a call is chosen.
by_row: whether each row that acts reads the noise of an act of its own.  used: [blocks] int64, the number of the next.
"""
PART_SIZE = PART.itemsize
DEALT = np.dtype([(name, np.int64) for name in (
    "parts", "part", "agents", "members", "agent", "greedy", "explore", "exploring", "order", "first",
    "rows", "width", "action", "turn", "blocks", "picked", "acts", "obs",
)])  # fmt: skip
"""Arguments of `deal` and `act_dealt`: numbers and addresses.

parts, part: the number of parts, and their PARTs.  agents: A, the number of agents of all parts.
members, agent: [members] int64, the agent of each member by its number, negative ones from the end; -1: compiled code
does not act for it.  greedy: [A] bool, agents that never explore.
explore, exploring: [B] bool, the rows that may explore, and those that do.
order, first: [B] and [A + 2] int64, the rows by agent, and the place of each agent's first one.
rows: B.  width: numbers of an observation.  action: [B] int64.  turn: [B] bool.
blocks: of environments, which act at the same time.
picked, acts, obs: [B] int64, [B] int64 and [B, width] float32, work arrays.
"""


@compiled
def deal(address: int, numbers: int) -> int:
    """Deal the rows to the agents of their members, `numbers` [B] int64; return 1, or 0 if that is impossible."""
    d = record_at(address, DEALT)
    number, agent, order = i64(numbers, d.rows), i64(d.agent, d.members), i64(d.order, d.rows)
    first, greedy = i64(d.first, d.agents + 2), bools(d.greedy, d.agents)
    explore, exploring = bools(d.explore, d.rows), bools(d.exploring, d.rows)
    first[:] = 0
    for row in range(d.rows):
        own = agent[number[row]]
        if own < 0:
            return 0
        first[own + 2] += 1
        exploring[row] = explore[row] and not greedy[own]
    for k in range(d.agents):
        first[k + 2] += first[k + 1]
    for row in range(d.rows):
        own = agent[number[row]]
        order[first[own + 1]] = row
        first[own + 1] += 1
    return 1


@compiled
def act_dealt(address: int, step: int, low: int, high: int, envs: int) -> int:
    """Choose the actions in the environments `low` to `high`, each by its member, in act `step` of a call; return 0.

    The action of a row without the turn is 0. See `compiled.acting.act`.
    """
    d = record_at(address, DEALT)
    turn, action = bools(d.turn, d.rows), i64(d.action, d.rows)
    for first in range(0, d.rows, envs):
        for row in range(first + low, first + high):
            action[row] = action[row] if turn[row] else 0
    for i in range(d.parts):
        p = record_at(d.part + i * PART_SIZE, PART)
        if p.act:
            act_part(d, p, act_at(p.act), step, low, high, envs)
    return 0


@compiled
def act_part(d: Any, p: Any, u: Any, step: int, low: int, high: int, envs: int) -> None:
    """Choose the actions of the agents of a part."""
    start, size = d.rows // envs * low, 4 * d.width
    picked, acts = i64(d.picked + 8 * start, d.rows - start), i64(d.acts + 8 * start, d.rows - start)
    for k in range(u.agents):
        count = pick(d, p, k, step, low, high, envs)
        if count == 0:
            continue
        for i in range(count):
            copy(u.obs + picked[i] * size, d.obs + (start + i) * size, size)
        out = forward(u, d.obs + start * size, count, u.weights + 4 * k * u.size, u.activations + 4 * start * u.kept)
        for i in range(count):
            choose(u, 0, k, picked[i], acts[i], f32(out + 4 * i * u.choices, u.choices))


@compiled
def pick(d: Any, p: Any, k: int, step: int, low: int, high: int, envs: int) -> int:
    """Write the rows of agent k of a part that have the turn in the environments `low` to `high`; return their number.

    Each gets the number of the act in the noise that it reads.
    """
    bounds = i64(d.first + 8 * (p.begin + k), 2)
    order, turn, start = i64(d.order, d.rows), bools(d.turn, d.rows), d.rows // envs * low
    picked, acts = i64(d.picked + 8 * start, d.rows - start), i64(d.acts + 8 * start, d.rows - start)
    block = -(-low * d.blocks // envs)
    count, act = 0, i64(p.used, d.blocks)[block] if p.by_row else p.noise + step
    for row in order[bounds[0] : bounds[1]]:
        if turn[row]:
            if low <= row % envs < high:
                picked[count], acts[count] = row, act
                count += 1
            act += p.by_row
    if p.by_row:
        i64(p.used, d.blocks)[block] = act
    return count


@functools.cache
def deal_program() -> Any:
    """Return the compiled `deal`, from the disk cache if it is there."""
    return program(deal, DEALT)


@functools.cache
def dealt_program() -> Any:
    """Return the compiled `act_dealt`, from the disk cache if it is there."""
    return program(act_dealt, ACT, PART, DEALT)
