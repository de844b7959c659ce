"""Cuts a rollout [K, B] into minibatches: each agent's own permutation, shares as even as they can be."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from marltrain.layout import Array
from marltrain.policies.algorithm import TensorBatch

DONE_WITH = frozenset(
    {"boot", "boot_obs", "boot_legal", "cut", "discount", "extras", "metrics", "reward", "to_numpy", "to_tensor",
     "truncated", "weight"}
)  # fmt: skip
"""What a rollout holds that is not [K, B, ...], or has done its part when the rollout is prepared."""


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
        rows = {n: value for n, value in vars(tensors).items() if n not in DONE_WITH}
        for _ in range(epochs):
            index, weight = self._deal(rngs)
            dealt = backend.rows(rows, index, self.weight.shape[1])
            dealt["weight"] = backend.tensor(weight)
            for m, (start, stop) in enumerate(self.edges):
                present = m < np.minimum(self.shares, self.counts)
                yield {n: backend.columns(v, start, stop) for n, v in dealt.items()}, present

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


def _even(rows: int, parts: int) -> Array:
    """Return the sizes of as even parts as can be, the larger first."""
    return np.array([rows // parts + (i < rows % parts) for i in range(parts)])


def shares_of(weight: Array) -> Array:
    """Return weights [..., B] scaled to a sum of 1 over the last axis; all zeros stay zeros."""
    return weight / np.maximum(weight.sum(-1, keepdims=True), 1e-8)
