"""The interpreter: one compiled function that carries out the instructions of every table."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from marltrain.jit.compiling import compiled, inner, program
from marltrain.jit.switch import switch
from marltrain.jit.views import bools, i64, record_at
from marltrain.policies.tape.instructions import BYTES, FORMS, SEGMENTS
from marltrain.policies.tape.interpreter import elementwise, images, learning, moves, reductions


@inner
def nothing(i: int, s: int) -> None:
    """Do nothing; measures the cost of an instruction."""


INSTRUCTIONS: dict[str, Any] = {
    **elementwise.INSTRUCTIONS, **reductions.INSTRUCTIONS, **moves.INSTRUCTIONS, **images.INSTRUCTIONS,
    **learning.INSTRUCTIONS, "nothing": nothing,
}  # fmt: skip
"""The function of each operation of `instructions.FORMS`: (address of the instruction, address of the segments)."""
carry_out = switch(tuple(INSTRUCTIONS[name] for name in FORMS))
RUN = np.dtype([(name, np.int64) for name in (
    "code", "before", "block", "rest", "after", "stop",
    "segments", "bases", "agent_steps", "block_steps", "used",
    "agents", "due", "blocks", "has_rest",
)])  # fmt: skip
"""Arguments of a run.

code: the table of instructions.  before, block, rest, after, stop: where its sections begin, and where the last ends.
segments: [SEGMENTS] int64, the addresses of the segments now; one array for each thread.
bases, agent_steps, block_steps: [SEGMENTS], the first addresses, and the bytes from one agent, and from one block of
  rows, to the next.  used: how many segments there are.
agents: K.  due: [K] bool, the agents that are computed.  blocks: the blocks of rows.  has_rest: whether rows remain
  behind them, which the section `rest` computes.
"""


@inner
def execute(code: int, start: int, stop: int, segments: int) -> None:
    """Carry out the instructions from `start` to `stop` of a table."""
    for number in range(start, stop):
        i = code + BYTES * number
        carry_out(i64(i, 1)[0], i, segments)


@inner
def move_to(u: Any, agent: int, block: int) -> None:
    """Write the addresses of the segments for an agent and a block of rows."""
    segments, bases = i64(u.segments, SEGMENTS), i64(u.bases, SEGMENTS)
    agent_steps, block_steps = i64(u.agent_steps, SEGMENTS), i64(u.block_steps, SEGMENTS)
    for n in range(u.used):
        segments[n] = bases[n] + agent * agent_steps[n] + block * block_steps[n]


@compiled
def run(address: int) -> int:
    """Carry out a table for each agent that is due: before, for each block of rows, after; return 0."""
    u = record_at(address, RUN)
    due = bools(u.due, u.agents)
    for agent in range(u.agents):
        if due[agent]:
            move_to(u, agent, 0)
            execute(u.code, u.before, u.block, u.segments)
            for block in range(u.blocks):
                move_to(u, agent, block)
                execute(u.code, u.block, u.rest, u.segments)
            if u.has_rest:
                move_to(u, agent, u.blocks)
                execute(u.code, u.rest, u.after, u.segments)
            move_to(u, agent, 0)
            execute(u.code, u.after, u.stop, u.segments)
    return 0


@functools.cache
def run_program() -> Any:
    """Return `run` as machine code: compiled once for all tables, or loaded from disk."""
    return program(run, RUN)
