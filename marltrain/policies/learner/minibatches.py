"""Cuts a rollout [K, B] into minibatches: each agent's own permutation, shares as even as they can be."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from marltrain.layout import Array
from marltrain.policies.algorithms.base import TensorBatch

DONE_WITH = frozenset(
    {"boot", "boot_obs", "boot_legal", "cut", "discount", "extras", "metrics", "reward", "to_numpy", "to_tensor",
     "truncated", "weight"}
)  # fmt: skip
"""What a rollout holds that is not [K, B, ...], or has done its part when the rollout is prepared."""


@dataclass(frozen=True)
class Dealt:
    """The minibatches of several epochs, by number: P = epochs x M of them.

    index, weight: [epochs, K, N]: the rows of an epoch side by side, int64, and their shares, float32; 0: padding.
    epoch, start, stop: [P] int64: where each minibatch is.  present: [P, K] bool: which agents have rows in it.
    """

    index: Array
    weight: Array
    epoch: Array
    start: Array
    stop: Array
    present: Array


class Minibatches:
    """Minibatch m of M takes each agent's own m-th share of its rows, padded with weight 0.

    With a fixed number M every agent is cut into M; with a batch size, an agent of n rows into ceil(n / batch_size),
    and one with fewer than the others sits out the last of an epoch.
    """

    def __init__(
        self, weight: Array, minibatches: int | None, batch_size: int, *, width: Callable[[int], int] = int
    ) -> None:
        """Count each agent's rows from `weight` [K, B]; real rows come first.

        width: rounds a minibatch's number of rows up to one that a compiled backend has met already.
        """
        self.weight, self.width = weight, width
        self.counts = (weight > 0).sum(1)
        per_agent = [minibatches or max(1, math.ceil(n / batch_size)) for n in self.counts]
        self.shares = np.array([min(m, max(1, int(n))) for m, n in zip(per_agent, self.counts, strict=True)])
        self._lay_out()

    def epochs(
        self, epochs: int, rngs: Sequence[np.random.Generator], tensors: TensorBatch, backend: Any
    ) -> Iterator[tuple[dict[str, Any], Array]]:
        """Yield (the columns of a minibatch, which agents have rows in it [K] bool), epochs x M times."""
        rows = columns_of(tensors)
        for _ in range(epochs):
            index, weight = self._deal(rngs)
            dealt = backend.rows(rows, index, self.weight.shape[1])
            dealt["weight"] = backend.tensor(weight)
            for present, (start, stop) in zip(self._present(), self.edges, strict=True):
                yield {n: backend.columns(v, start, stop) for n, v in dealt.items()}, present

    def dealt(self, epochs: int, rngs: Sequence[np.random.Generator]) -> Dealt:
        """Return the same by number, all at once."""
        index, weight = (np.stack(arrays) for arrays in zip(*(self._deal(rngs) for _ in range(epochs)), strict=True))
        starts, stops = np.array(self.edges).T
        return Dealt(
            index, weight, np.repeat(np.arange(epochs), len(starts)), np.tile(starts, epochs), np.tile(stops, epochs),
            np.tile(self._present(), (epochs, 1)),
        )  # fmt: skip

    def _present(self) -> Array:
        """Return which agents have rows in each minibatch of an epoch, [M, K]."""
        return np.arange(len(self.edges))[:, None] < np.minimum(self.shares, self.counts)

    def _lay_out(self) -> None:
        """Lay the minibatches side by side: how wide each is, and which columns hold each agent's rows."""
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
        """Return row numbers [K, sum of widths], and their weights: shares of the minibatch, 0 for padding."""
        index = np.zeros((len(rngs), self.edges[-1][1]), np.int64)
        weight = np.zeros(index.shape, np.float32)
        for k, rng in enumerate(rngs):
            dealt = rng.permutation(int(self.counts[k]))
            if not len(dealt):
                continue
            given = self.weight[k, dealt]
            sums = np.add.reduceat(given, self._first[k])
            index[k, self._columns[k]] = dealt
            weight[k, self._columns[k]] = given / sums[self._share[k]]
        return index, weight


def columns_of(tensors: TensorBatch) -> dict[str, Any]:
    """Return what of a prepared rollout its minibatches hold, but for the weight."""
    return {name: value for name, value in vars(tensors).items() if name not in DONE_WITH}


def _even(rows: int, parts: int) -> Array:
    """Return the sizes of as even parts as can be, the larger first."""
    return np.array([rows // parts + (i < rows % parts) for i in range(parts)])


def shares_of(weight: Array) -> Array:
    """Return weights [..., B] scaled to a sum of 1 over the last axis; all zeros stay zeros."""
    return weight / np.maximum(weight.sum(-1, keepdims=True), 1e-8)
