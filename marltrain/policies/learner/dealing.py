"""Permutes the rows of minibatches and writes their numbers and weights, in compiled code."""

from __future__ import annotations

import numpy as np

from marltrain.core.layout import Array
from marltrain.jit.compiling import program
from marltrain.jit.views import next_bits
from marltrain.policies.memory.compiled.replay_kernel import function_of


def permutation(rng: np.random.Generator, count: int) -> Array:
    """Return `rng.permutation(count)`, [count] int64; other threads run meanwhile.  count: below 2**31."""
    order = np.arange(count)
    shuffle(function_of(rng, "next_uint32"), rng.bit_generator.ctypes.state_address, order)
    return order


@program
def shuffle(bits: int, generator: int, order: Array) -> None:
    """Shuffle numbers [n] int64 as `numpy.random.Generator.shuffle` does.

    bits, generator: addresses of the generator's function for the next 32 bits, and of its state.
    """
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


@program
def place(parts: Array, dealt: Array, given: Array, sums: Array, index: Array, weight: Array) -> None:
    """Write the rows of an agent's dealt blocks into its minibatches.

    parts: [parts, 2] int64, the first place of each part of its blocks, and its number of blocks.
    dealt: [n] int64, the numbers of the blocks, part after part.  given: [n, block] float32, the weights of their rows.
    sums: [parts] float32, those of each part.  index, weight: [W, block], written; see `minibatches.Dealt`.
    """
    block, n = given.shape[1], 0
    for p in range(len(parts)):
        start, total = parts[p, 0], sums[p]
        for at in range(start, start + parts[p, 1]):
            for row in range(block):
                index[at, row] = dealt[n] * block + row
                weight[at, row] = given[n, row] / total
            n += 1
