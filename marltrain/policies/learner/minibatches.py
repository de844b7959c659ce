"""Split a rollout [K, B] into minibatches of nearly equal size, with a separate permutation for each agent.

What is dealt are blocks of consecutive rows: single rows, or the sequences of recurrent networks.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from marltrain.core.layout import Array, map_tree
from marltrain.policies.backends.base import Backend

if TYPE_CHECKING:  # loads numba
    from marltrain.jit.threads import Threads


@dataclass(frozen=True)
class Dealt:
    """The minibatches of several epochs as row numbers; P = epochs x M minibatches of W rows.

    index: [K, P, W] int64, the row numbers.  weight: [K, P, W] float32, the rows' weights; 0 for padding.
    rows: [P, K] int64, how many rows an agent has in a minibatch; the others are padding.
    """

    index: Array
    weight: Array
    rows: Array


@dataclass(frozen=True)
class Layout:
    """Places of the blocks of K agents in minibatches.

    sizes: [M, K] int64, blocks of each agent.  edges: range of places of each minibatch.
    parts: [N, 2] int64, the first place of each part of an agent's blocks, and its blocks, one agent after another.
    num_parts: how many parts each agent has.
    """

    sizes: Array
    edges: list[tuple[int, int]]
    parts: Array
    num_parts: list[int]


@functools.lru_cache(4)
def layout_of(counts: tuple[int, ...], shares: tuple[int, ...], width: Callable[[int], int], *, even: bool) -> Layout:
    """Return the layout of agents with `counts` blocks in `shares` minibatches; see `Minibatches`."""
    sizes = np.zeros((max(shares), len(counts)), np.int64)
    for k, (n, m) in enumerate(zip(counts, shares, strict=True)):
        sizes[:m, k] = n // m + (np.arange(m) < n % m)  # larger parts first
    widths = [width(int(most)) for most in sizes.max(1)]
    stops = np.cumsum([widths[0]] * len(widths) if even else widths)
    starts = np.concatenate([[0], stops[:-1]])
    own = [np.flatnonzero(blocks) for blocks in sizes.T]
    parts = [np.stack([starts[held], blocks[held]], 1) for held, blocks in zip(own, sizes.T, strict=True)]
    edges = list(zip(starts.tolist(), stops.tolist(), strict=True))
    return Layout(sizes, edges, np.concatenate(parts), [len(held) for held in own])


class Minibatches:
    """M minibatches of a rollout; minibatch m holds part m of each agent's blocks, padded with weight 0.

    With a fixed number of minibatches each agent's blocks are split into that many parts. With a batch size, n rows are
    split into ceil(n / batch_size) parts. An agent with fewer parts than others has no rows in the last minibatches.
    """

    def __init__(
        self, weight: Array, minibatches: int | None, batch_size: int, *, width: Callable[[int], int] = int,
        block: int = 1, even: bool = False, threads: tuple[Threads, int] | None = None,
    ) -> None:  # fmt: skip
        """Count each agent's rows in `weight` [K, B]; padding must follow the rows.

        width: function that rounds the block count of a minibatch up, so that a compiled backend sees few shapes.
        block: rows of a block; B is a multiple of it.  even: whether all minibatches are as wide as the widest.
        threads: in which many rows are dealt, and their number; None: in one.
        """
        self.weight, self.block, self._threads = weight, block, threads
        rows = (weight > 0).sum(1).tolist()
        self.counts = [-(-n // block) for n in rows]
        per_agent = [minibatches or max(1, math.ceil(n / batch_size)) for n in rows]
        shares = tuple(min(m, max(1, n)) for m, n in zip(per_agent, self.counts, strict=True))
        self._layout = layout_of(tuple(self.counts), shares, width, even=even)
        self.sizes, self.edges = self._layout.sizes, self._layout.edges

    def epochs(
        self, epochs: int, rngs: Sequence[np.random.Generator], rows: Mapping[str, Any], backend: Backend
    ) -> Iterator[tuple[dict[str, Any], Array]]:
        """Yield (columns of a minibatch, present [K] bool: whether an agent has rows in it), epochs x M times.

        rows: the columns of the rollout, [K, B, ...], without the weight.
        """
        for _ in range(epochs):
            (index, weight) = (each[:, 0] for each in self._deal(1, rngs))
            dealt = backend.rows(rows, index, self.weight.shape[1])
            dealt["weight"] = backend.tensor(weight)
            for present, (start, stop) in zip(self.present(), self.edges, strict=True):
                rows_of = slice(start * self.block, stop * self.block)
                yield map_tree(itemgetter((slice(None), rows_of)), dealt), present

    def dealt(self, epochs: int, rngs: Sequence[np.random.Generator]) -> Dealt:
        """Return the row numbers of all minibatches of `epochs` from the same random streams; they must be `even`."""
        shape = (len(self.counts), epochs * len(self.edges), self.rows)
        index, weight = (each.reshape(shape) for each in self._deal(epochs, rngs))
        return Dealt(index, weight, np.concatenate([self.sizes * self.block] * epochs))

    @property
    def rows(self) -> int:
        """Rows of the first minibatch, which is the widest, with padding."""
        return self.edges[0][1] * self.block

    def present(self) -> Array:
        """Return whether each agent has rows in each minibatch of an epoch, [M, K] bool."""
        return self.sizes > 0

    def _deal(self, epochs: int, rngs: Sequence[np.random.Generator]) -> tuple[Array, Array]:
        """Return row numbers and weights, each [K, epochs, block * sum of widths].

        The weights of an agent sum to 1 in each minibatch; they are 0 for padding.
        """
        from marltrain.policies.learner.dealing import deal  # loads numba

        shape = (len(rngs), epochs, self.edges[-1][1], self.block)
        index, weight = np.empty(shape, np.int64), np.empty(shape, np.float32)
        given, layout = np.ascontiguousarray(self.weight, np.float32), self._layout
        deal(rngs, given, self.counts, layout.parts, layout.num_parts, index, weight, self._threads)
        return index.reshape(*shape[:2], -1), weight.reshape(*shape[:2], -1)
