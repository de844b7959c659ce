"""Split a rollout [K, B] into minibatches of nearly equal size, with a separate permutation for each agent.

What is dealt are blocks of consecutive rows: single rows, or the sequences of recurrent networks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np

from marltrain.core.layout import Array, map_tree
from marltrain.policies.backends.base import Backend


@dataclass(frozen=True)
class Dealt:
    """The minibatches of several epochs as row numbers; P = epochs x M minibatches.

    index: [epochs, K, N] int64, the row numbers of an epoch, minibatch after minibatch.
    weight: [epochs, K, N] float32, the rows' weights; 0 for padding.
    epoch, start, stop: [P] int64, the epoch and the range of columns of each minibatch.
    present: [P, K] bool, whether an agent has rows in the minibatch.
    """

    index: Array
    weight: Array
    epoch: Array
    start: Array
    stop: Array
    present: Array

    def weights(self) -> list[Array]:
        """Return the weights of each minibatch, [K, n] for P minibatches."""
        parts = zip(self.epoch, self.start, self.stop, strict=True)
        return [self.weight[epoch, :, start:stop] for epoch, start, stop in parts]


class Minibatches:
    """M minibatches of a rollout; minibatch m holds part m of each agent's blocks, padded with weight 0.

    With a fixed number of minibatches each agent's blocks are split into that many parts. With a batch size, n rows are
    split into ceil(n / batch_size) parts. An agent with fewer parts than others has no rows in the last minibatches.
    """

    def __init__(
        self, weight: Array, minibatches: int | None, batch_size: int, *, width: Callable[[int], int] = int,
        block: int = 1,
    ) -> None:  # fmt: skip
        """Count each agent's rows in `weight` [K, B]; padding must follow the rows.

        width: function that rounds the block count of a minibatch up, so that a compiled backend sees few shapes.
        block: rows of a block; B is a multiple of it.
        """
        self.weight, self.width, self.block = weight, width, block
        rows = (weight > 0).sum(1)
        self.counts = -(-rows // block)
        per_agent = [minibatches or max(1, math.ceil(n / batch_size)) for n in rows]
        self.shares = np.array([min(m, max(1, int(n))) for m, n in zip(per_agent, self.counts, strict=True)])
        self._lay_out()

    def epochs(
        self, epochs: int, rngs: Sequence[np.random.Generator], rows: Mapping[str, Any], backend: Backend
    ) -> Iterator[tuple[dict[str, Any], Array]]:
        """Yield (columns of a minibatch, present [K] bool: whether an agent has rows in it), epochs x M times.

        rows: the columns of the rollout, [K, B, ...], without the weight.
        """
        for _ in range(epochs):
            index, weight = self._deal(rngs)
            dealt = backend.rows(rows, index, self.weight.shape[1])
            dealt["weight"] = backend.tensor(weight)
            for present, (start, stop) in zip(self._present(), self.edges, strict=True):
                rows_of = slice(start * self.block, stop * self.block)
                yield map_tree(itemgetter((slice(None), rows_of)), dealt), present

    def dealt(self, epochs: int, rngs: Sequence[np.random.Generator]) -> Dealt:
        """Return the row numbers of all minibatches of `epochs` from the same random streams; single rows only."""
        index, weight = (np.stack(arrays) for arrays in zip(*(self._deal(rngs) for _ in range(epochs)), strict=True))
        starts, stops = np.array(self.edges).T
        return Dealt(
            index, weight, np.repeat(np.arange(epochs), len(starts)), np.tile(starts, epochs), np.tile(stops, epochs),
            np.tile(self._present(), (epochs, 1)),
        )  # fmt: skip

    def _present(self) -> Array:
        """Return whether each agent has rows in each minibatch of an epoch, [M, K] bool."""
        return np.arange(len(self.edges))[:, None] < np.minimum(self.shares, self.counts)

    def _lay_out(self) -> None:
        """Compute the range of blocks of each minibatch, and the places that hold each agent's blocks."""
        own = [_even(int(n), int(m)) for n, m in zip(self.counts, self.shares, strict=True)]
        longest = [max(int(sizes[m]) if m < len(sizes) else 0 for sizes in own) for m in range(int(self.shares.max()))]
        stops = np.cumsum([self.width(rows) for rows in longest])
        starts = np.concatenate([[0], stops[:-1]])
        self.edges = [(int(start), int(stop)) for start, stop in zip(starts, stops, strict=True)]
        self._first = [np.concatenate([[0], np.cumsum(sizes)[:-1]]) for sizes in own]
        self._share = [np.repeat(np.arange(len(sizes)), sizes) for sizes in own]
        self._columns = [
            starts[share] + np.arange(len(share)) - first[share]
            for share, first in zip(self._share, self._first, strict=True)
        ]

    def _deal(self, rngs: Sequence[np.random.Generator]) -> tuple[Array, Array]:
        """Return row numbers and weights, each [K, block * sum of widths].

        The weights of an agent sum to 1 in each minibatch; they are 0 for padding.
        """
        index = np.zeros((len(rngs), self.edges[-1][1]), np.int64)
        weight = np.zeros((*index.shape, self.block), np.float32)
        blocks = self.weight.reshape(len(rngs), -1, self.block)
        for k, rng in enumerate(rngs):
            dealt = rng.permutation(int(self.counts[k]))
            if not len(dealt):
                continue
            given = blocks[k, dealt]
            sums = np.add.reduceat(given.sum(1), self._first[k])
            index[k, self._columns[k]] = dealt
            weight[k, self._columns[k]] = given / sums[self._share[k], None]
        rows = index[..., None] * self.block + np.arange(self.block)
        return rows.reshape(len(rngs), -1), weight.reshape(len(rngs), -1)


def _even(rows: int, parts: int) -> Array:
    """Return the sizes of `parts` parts of `rows` rows that differ by at most 1, larger parts first."""
    return np.array([rows // parts + (i < rows % parts) for i in range(parts)])


def shares_of(weight: Array) -> Array:
    """Return weights [..., B] scaled to a sum of 1 over the last axis; all zeros stay zeros."""
    return weight / np.maximum(weight.sum(-1, keepdims=True), 1e-8)
