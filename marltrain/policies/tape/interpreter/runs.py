"""Runs of tables: agents, groups of blocks of rows, minibatches and threads, around the interpreter.

The rows of an agent are divided into groups of blocks, whose sums are added in order. The groups do not depend on the
number of threads, and so the results do not, either.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from marltrain.jit.compiling import compiled, inner, program
from marltrain.jit.threads import wait_until
from marltrain.jit.views import add_at, bools, call, f32, i64, record_at
from marltrain.policies.tape.instructions import SEGMENTS

RUN = np.dtype([(name, np.int64) for name in (
    "execute", "code", "before", "start", "block", "rest", "after", "stop",
    "segments", "bases", "thread_steps", "minibatch_steps", "agent_steps", "row_steps", "used",
    "agents", "due", "blocks", "rests", "block_rows", "rest_rows", "groups", "sums", "summed", "going",
)])  # fmt: skip
"""Arguments of a table with its arrays.

execute: the address of `interpreter.execute`.  code: the table of instructions.
before, start, block, rest, after, stop: where its sections begin, and where the last ends.
segments: [threads, SEGMENTS] int64, the addresses of the segments now.
bases, thread_steps, minibatch_steps, agent_steps, row_steps: [SEGMENTS], the first addresses, and the bytes from one
  thread, minibatch, agent and row to the next.  used: how many segments there are.
agents: K.  due: [K] bool, the agents that `run` computes.
blocks, rests: [minibatches, K] int64, the blocks of rows of each, and the smaller ones behind them, which the section
  `rest` computes.  block_rows, rest_rows: their rows.
groups: G, of the blocks of an agent.  sums: [summed] SUM, what is summed over blocks, if there are several groups.
going: the number of a segment with a float32 number that is 0 where an agent makes no further steps; 0: it goes on.
"""
SUM = np.dtype([(name, np.int64) for name in ("segment", "size", "parts")])
"""What is summed over blocks: the number of its segment, float32 numbers of an agent, and [K, G, size], the sums of the
groups.
"""
_SUM_SIZE = SUM.itemsize
FEW_ROWS = 128
"""Fewer rows than these that fill no block are in the first group: to add sums would take as long as to compute them.
"""
PASSES = np.dtype([(name, np.int64) for name in (
    "phases", "runs", "minibatches", "agents", "tasks", "due", "tickets", "done", "moved", "ended", "give_way",
)])  # fmt: skip
"""Arguments of gradient passes over several minibatches.

phases: F.  runs: [F] int64, the addresses of their RUN records.  agents: K.
tasks: groups of blocks of all phases and agents, in a minibatch.
due: [minibatches, F, K] bool, the steps to make; those that an agent did not make, because it ended, become False.
tickets: [1], tasks taken.  done, moved, ended: [K], the tasks done of an agent's step, its steps so far, whether its
  update has ended.  give_way: the address of a function that lets other threads run, or 0.
All of them are int64, unless they say otherwise.
"""


@inner
def move_to(u: Any, thread: int, minibatch: int, agent: int, row: int) -> int:
    """Write the addresses of the segments for a thread, minibatch, agent and row; return the place of the first."""
    at = u.segments + 8 * SEGMENTS * thread
    segments, bases, threads = i64(at, SEGMENTS), i64(u.bases, SEGMENTS), i64(u.thread_steps, SEGMENTS)
    minibatches, agents = i64(u.minibatch_steps, SEGMENTS), i64(u.agent_steps, SEGMENTS)
    rows = i64(u.row_steps, SEGMENTS)
    for n in range(u.used):
        offset = thread * threads[n] + minibatch * minibatches[n] + agent * agents[n] + row * rows[n]
        segments[n] = bases[n] + offset
    return at


@inner
def move_to_group(u: Any, thread: int, minibatch: int, agent: int, row: int, group: int) -> int:
    """Do the same as `move_to`, with the sums of a group of blocks in place of those of the agent."""
    at = move_to(u, thread, minibatch, agent, row)
    segments = i64(at, SEGMENTS)
    for i in range(u.summed):
        each = record_at(u.sums + i * _SUM_SIZE, SUM)
        segments[each.segment] = each.parts + 4 * (agent * u.groups + group) * each.size
    return at


@inner
def carry_out_part(u: Any, start: int, stop: int, segments: int) -> None:
    """Carry out a section of a table."""
    if start < stop:
        call(u.execute, (u.code, start, stop, segments))


@inner
def begin(u: Any, thread: int, minibatch: int, agent: int) -> None:
    """Compute what a thread needs for all groups of an agent's blocks."""
    carry_out_part(u, u.before, u.start, move_to(u, thread, minibatch, agent, 0))


@inner
def add_group(u: Any, thread: int, minibatch: int, agent: int, group: int) -> None:
    """Compute the sums over a group of blocks, after `begin` in the same thread."""
    place, size = minibatch * u.agents + agent, (minibatch + 1) * u.agents
    blocks, rests = i64(u.blocks, size)[place], i64(u.rests, size)[place]
    every, behind = blocks + rests, blocks * u.block_rows
    groups = u.groups if blocks or rests * u.rest_rows >= FEW_ROWS else 1  # by the agent's own rows
    carry_out_part(u, u.start, u.block, move_to_group(u, thread, minibatch, agent, 0, group))
    for block in range(group * every // groups, min(group + 1, groups) * every // groups):
        if block < blocks:
            at = move_to_group(u, thread, minibatch, agent, block * u.block_rows, group)
            carry_out_part(u, u.block, u.rest, at)
        else:
            at = move_to_group(u, thread, minibatch, agent, behind + (block - blocks) * u.rest_rows, group)
            carry_out_part(u, u.rest, u.after, at)


@inner
def complete(u: Any, thread: int, minibatch: int, agent: int) -> bool:
    """Add the sums of all groups, and compute what follows; return whether the agent makes further steps."""
    at = move_to(u, thread, minibatch, agent, 0)
    segments = i64(at, SEGMENTS)
    for i in range(u.summed):
        each = record_at(u.sums + i * _SUM_SIZE, SUM)
        size, parts = each.size, each.parts + 4 * agent * u.groups * each.size
        total, first, second = f32(segments[each.segment], size), f32(parts, size), f32(parts + 4 * size, size)
        for j in range(size):
            total[j] = first[j] + second[j]
        for group in range(2, u.groups):
            part = f32(parts + 4 * group * size, size)
            for j in range(size):
                total[j] += part[j]
    carry_out_part(u, u.after, u.stop, at)
    return u.going == 0 or f32(segments[u.going], 1)[0] != np.float32(0.0)


@compiled
def run(address: int) -> int:
    """Carry out a table for each agent that is due, in this thread; return 0."""
    u = record_at(address, RUN)
    due = bools(u.due, u.agents)
    for agent in range(u.agents):
        if due[agent]:
            begin(u, 0, 0, agent)
            for group in range(u.groups):
                add_group(u, 0, 0, agent, group)
            complete(u, 0, 0, agent)
    return 0


@compiled
def run_passes(address: int, thread: int) -> int:
    """Make the steps of several phases for each minibatch, together with other threads that run this; return 0.

    Each step of an agent has a task for each group of blocks. A thread takes the next free task, then waits until the
    agent's previous step is complete. The thread that completes the last group of a step completes the step. No thread
    waits for a thread that has not started yet.
    """
    p = record_at(address, PASSES)
    due, ended = bools(p.due, p.minibatches * p.phases * p.agents), i64(p.ended, p.agents)
    runs, begun = i64(p.runs, p.phases), -1
    while True:
        ticket = add_at(p.tickets, 1)
        if ticket >= p.minibatches * p.tasks:
            return 0
        minibatch, task, phase = ticket // p.tasks, ticket % p.tasks, 0
        groups = record_at(runs[0], RUN).groups
        while task >= groups * p.agents:
            task, phase = task - groups * p.agents, phase + 1
            groups = record_at(runs[phase], RUN).groups
        u, agent, group, number = (
            record_at(runs[phase], RUN),
            task // groups,
            task % groups,
            minibatch * p.phases + phase,
        )
        wait_until(p.moved + 8 * agent, number, p.give_way)
        step = number * p.agents + agent
        makes = due[step] and ended[agent] == 0
        if makes:
            if begun != step:
                begin(u, thread, minibatch, agent)
                begun = step
            add_group(u, thread, minibatch, agent, group)
        if add_at(p.done + 8 * agent, 1) == groups - 1:
            due[step] = makes
            if makes and not complete(u, thread, minibatch, agent):
                ended[agent] = 1
            add_at(p.done + 8 * agent, -groups)
            add_at(p.moved + 8 * agent, 1)


@functools.cache
def run_program() -> Any:
    """Return `run` as machine code."""
    return program(run, RUN, SUM)


@functools.cache
def passes_program() -> Any:
    """Return `run_passes` as machine code."""
    return program(run_passes, PASSES, RUN, SUM)
