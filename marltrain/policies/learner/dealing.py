"""Permutes the rows of minibatches and writes their numbers and weights, in compiled code and in several threads."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.jit.compiling import compiled, program
from marltrain.jit.threads import Threads, give_way, wait_until
from marltrain.jit.views import add_at, address_of, f32, function_of, i32, i64, next_bits, record_at
from marltrain.policies.compiled.sums import sum_in_pairs

MANY = 2**13
"""Rows of all agents and epochs from which on threads deal them: about 0.1 ms of work."""
AGENT = np.dtype([(name, np.int64) for name in (
    "shuffled", "bits", "generator", "count", "given", "parts", "num_parts", "orders"
)])  # fmt: skip
"""What is dealt for an agent: numbers and addresses.

shuffled: epochs whose order is known.  bits, generator: of the next 32 random bits, and the generator's state.
count: n, blocks of rows, below 2**31.  given: [n, block] float32, the weights of their rows.
parts: [num_parts, 2] int64, the first place of each part of its blocks, ascending, and its number of blocks.
orders: [epochs, n] int32, the numbers of the blocks in the order in which they are dealt.
"""
_AGENT_SIZE = AGENT.itemsize
DEALING = np.dtype([(name, np.int64) for name in (
    "tickets", "agents", "epochs", "block", "width", "agent", "index", "weight", "give_way"
)])  # fmt: skip
"""Arguments of `deal_rows`: numbers and addresses.

tickets: tasks taken.  agents: K.  block: rows of a block.  width: W, places of an epoch.  agent: [K] AGENT.
index, weight: [K, epochs, W, block] int64 and float32, which are written; see `minibatches.Dealt`.
"""


def deal(
    rngs: Sequence[np.random.Generator], given: Array, counts: Sequence[int], parts: Array, num_parts: Sequence[int],
    index: Array, weight: Array, threads: tuple[Threads, int] | None = None,
) -> None:  # fmt: skip
    """Write the rows of K agents into the minibatches of all epochs, in orders as those of `rng.permutation(n)`.

    given: [K, B] float32, the weights of the rows.  counts: K numbers n of blocks, the first of an agent's rows.
    parts: [N, 2] int64, see AGENT, `num_parts` of each agent, one agent after another; each agent's have n blocks.
    index, weight: [K, epochs, W, block] int64 and float32, written.  The weights of a part sum to 1.  Padding is the
      first block, with weight 0.
    threads: in which many rows are dealt, and how many of them at most; None: in the calling one.
    """
    agents, epochs, width, block = index.shape
    blocks = sum(counts)
    orders = np.empty(epochs * blocks, np.int32)
    held, one = np.zeros(agents, AGENT), np.zeros(1, DEALING)
    rows, part, order = map(address_of, (given, parts, orders))
    for k, rng in enumerate(rngs):
        bits, state = function_of(rng, "next_uint32"), rng.bit_generator.ctypes.state_address
        held[k] = 0, bits, state, counts[k], rows + k * given.strides[0], part, num_parts[k], order
        part, order = part + num_parts[k] * parts.strides[0], order + epochs * counts[k] * orders.itemsize
    places = map(address_of, (held, index, weight))
    one[0] = 0, agents, epochs, block, width, *places, give_way()
    if threads is None or blocks * epochs * block < MANY:
        _deal_rows()(address_of(one), 0)
    else:
        others, count = threads
        others.run(_deal_rows(), address_of(one), min(count, 2 * agents))


@compiled
def deal_rows(address: int, _thread: int) -> int:
    """Do what `deal` does, together with other threads that run this; return 0.

    Stages are: order epoch 0; order epoch 1, write epoch 0; order epoch 2, write epoch 1; and so on. Each has a task
    for each agent. A thread takes the next free task, then waits for the orders that it needs. No thread waits for a
    thread that has not started yet.
    """
    d = record_at(address, DEALING)
    while True:
        ticket = add_at(address, 1)
        stage, k = ticket // d.agents, ticket % d.agents
        if stage > 2 * d.epochs:
            return 0
        place = d.agent + k * _AGENT_SIZE
        if stage == 0 or stage % 2:
            epoch = (stage + 1) // 2
            if epoch < d.epochs:
                wait_until(place, epoch, d.give_way)
                order_blocks(record_at(place, AGENT), epoch)
                add_at(place, 1)
        else:
            epoch = stage // 2 - 1
            wait_until(place, epoch + 1, d.give_way)
            write_rows(d, record_at(place, AGENT), epoch, (k * d.epochs + epoch) * d.width)


@compiled
def order_blocks(a: Any, epoch: int) -> None:
    """Write the order of an epoch; shuffle as `numpy.random.Generator.shuffle` does."""
    order, mask = i32(a.orders + 4 * epoch * a.count, a.count), 1
    for i in range(a.count):
        order[i] = i
    while mask < a.count - 1:
        mask = 2 * mask + 1
    for i in range(a.count - 1, 0, -1):
        if mask >> 1 >= i:
            mask >>= 1
        j = next_bits(a.bits, a.generator) & mask  # redrawn until it is at most i
        while j > i:
            j = next_bits(a.bits, a.generator) & mask
        order[i], order[j] = order[j], order[i]


@compiled
def write_rows(d: Any, a: Any, epoch: int, first: int) -> None:
    """Write the rows of an agent in an epoch.  first: number of the epoch's first place."""
    order, given = i32(a.orders + 4 * epoch * a.count, a.count), f32(a.given, a.count * d.block)
    parts, sums = i64(a.parts, 2 * a.num_parts), np.empty(a.count, np.float32)
    for i in range(a.count):
        start = order[i] * d.block
        sums[i] = given[start] if d.block == 1 else sum_in_pairs(given[start : start + d.block])
    at, n = 0, 0
    for p in range(a.num_parts):
        begin, blocks = parts[2 * p], parts[2 * p + 1]
        pad_rows(d, first + at, first + begin)
        total = sums[n] + sum_in_pairs(sums[n + 1 : n + blocks])  # as numpy adds parts of an array
        for i in range(blocks):
            index = i64(d.index + 8 * (first + begin + i) * d.block, d.block)
            weight = f32(d.weight + 4 * (first + begin + i) * d.block, d.block)
            start = order[n + i] * d.block
            for row in range(d.block):
                index[row], weight[row] = start + row, given[start + row] / total
        at, n = begin + blocks, n + blocks
    pad_rows(d, first + at, first + d.width)


@compiled
def pad_rows(d: Any, low: int, high: int) -> None:
    """Write padding to places: the rows of the first block, with weight 0."""
    for place in range(low, high):
        index = i64(d.index + 8 * place * d.block, d.block)
        weight = f32(d.weight + 4 * place * d.block, d.block)
        for row in range(d.block):
            index[row], weight[row] = row, np.float32(0.0)


@functools.cache
def _deal_rows() -> Any:
    return program(deal_rows, DEALING, AGENT)
