"""Writes the row numbers and weights of minibatches, in compiled code."""

from __future__ import annotations

from marltrain.core.layout import Array
from marltrain.jit.compiling import program


@program
def place(parts: Array, dealt: Array, given: Array, sums: Array, epoch: int, index: Array, weight: Array) -> None:
    """Write the rows of dealt blocks into their minibatches.

    parts: see `minibatches.Layout`.  dealt: [n] int64, the numbers of the blocks, part after part.
    given: [n, block] float32, the weights of their rows.  sums: [parts] float32, those of each part.
    index, weight: [K, epochs, W, block], written in one epoch; see `minibatches.Dealt`.
    """
    block, n = given.shape[1], 0
    for p in range(len(parts)):
        agent, start = parts[p, 0], parts[p, 1]
        for at in range(start, start + parts[p, 2]):
            for row in range(block):
                index[agent, epoch, at, row] = dealt[n] * block + row
                weight[agent, epoch, at, row] = given[n, row] / sums[p]
            n += 1
