"""Permutes the rows of minibatches and writes their numbers and weights, in compiled code."""

from __future__ import annotations

from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.jit.compiling import compiled, program
from marltrain.jit.views import function_of, next_bits
from marltrain.policies.compiled.sums import sum_in_pairs


def deal_blocks(rng: np.random.Generator, given: Array, parts: Array, index: Array, weight: Array) -> None:
    """Write the rows of an agent's blocks into its minibatches, in the order `rng.permutation(n)`.

    Other threads run meanwhile. n is below 2**31.
    given: [n, block] float32, the weights of the blocks' rows, without gaps.
    parts: [parts, 2] int64, the first place of each part of its blocks, and its number of blocks; there are n in all.
    index, weight: [W, block], written; the weights of a part sum to 1; see `minibatches.Dealt`.
    """
    bits, generator = function_of(rng, "next_uint32"), rng.bit_generator.ctypes.state_address
    _deal(bits, generator, given, parts, index, weight)


@program
def _deal(bits: int, generator: int, given: Array, parts: Array, index: Array, weight: Array) -> None:
    """Do what `deal_blocks` does.

    bits, generator: addresses of the generator's function for the next 32 bits, and of its state.
    """
    count, block = given.shape
    order, n = np.arange(count), 0
    shuffle(bits, generator, order)
    sums, of_row = np.empty(count, np.float32), np.empty(block, np.float32)
    for i in range(count):
        for row in range(block):
            of_row[row] = given[order[i], row]
        sums[i] = sum_in_pairs(of_row)
    for p in range(len(parts)):
        start, blocks = parts[p, 0], parts[p, 1]
        total = sums[n] + sum_in_pairs(sums[n + 1 : n + blocks])  # as numpy adds parts of an array
        for at in range(start, start + blocks):
            for row in range(block):
                index[at, row] = order[n] * block + row
                weight[at, row] = given[order[n], row] / total
            n += 1


@compiled
def shuffle(bits: int, generator: int, order: Any) -> None:
    """Shuffle numbers [n] int64 as `numpy.random.Generator.shuffle` does; see `_deal`."""
    mask = 1
    while mask < len(order) - 1:
        mask = 2 * mask + 1
    for i in range(len(order) - 1, 0, -1):
        if mask >> 1 >= i:
            mask >>= 1
        j = next_bits(bits, generator) & mask  # redrawn until it is at most i
        while j > i:
            j = next_bits(bits, generator) & mask
        order[i], order[j] = order[j], order[i]
