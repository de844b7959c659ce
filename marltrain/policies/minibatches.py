"""Cuts a rollout [K, B] into minibatches: each agent's own permutation, shares as even as they can be."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from marltrain.layout import Array
from marltrain.policies.algorithm import TensorBatch

DONE_WITH = frozenset(
    {"boot", "boot_obs", "boot_legal", "cut", "extras", "metrics", "to_numpy", "to_tensor", "truncated", "weight"}
)
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

    def epochs(
        self, epochs: int, rngs: Sequence[np.random.Generator], tensors: TensorBatch, backend: Any
    ) -> Iterator[tuple[dict[str, Any], Array]]:
        """Yield (the columns of a minibatch, which agents have rows in it [K] bool), epochs x M times."""
        rows = {n: value for n, value in vars(tensors).items() if n not in DONE_WITH}
        for _ in range(epochs):
            index, weight, edges = self._deal(rngs)
            place = backend.tensor(index)
            dealt = {name: backend.rows(value, place) for name, value in rows.items()}
            dealt["weight"] = backend.tensor(weight)
            for m, (start, stop) in enumerate(edges):
                present = m < np.minimum(self.shares, self.counts)
                yield {n: backend.columns(v, start, stop) for n, v in dealt.items()}, present

    def _deal(self, rngs: Sequence[np.random.Generator]) -> tuple[Array, Array, list[tuple[int, int]]]:
        """Return row numbers [K, sum of widths], their weights (0 for padding), and each minibatch's columns."""
        parts = [
            np.array_split(rng.permutation(int(n)), int(m))
            for rng, n, m in zip(rngs, self.counts, self.shares, strict=True)
        ]
        longest = [max(len(own[m]) if m < len(own) else 0 for own in parts) for m in range(int(self.shares.max()))]
        widths = [self.width(rows) for rows in longest]
        stops = np.cumsum(widths)
        edges = [(int(stop - width), int(stop)) for stop, width in zip(stops, widths, strict=True)]
        index = np.zeros((len(parts), int(stops[-1])), np.int64)
        weight = np.zeros(index.shape, np.float32)
        for k, own in enumerate(parts):
            for (start, _), share in zip(edges, own, strict=False):
                index[k, start : start + len(share)] = share
                weight[k, start : start + len(share)] = shares_of(self.weight[k, share])
        return index, weight, edges


def shares_of(weight: Array) -> Array:
    """Return weights [..., B] scaled to a sum of 1 over the last axis; all zeros stay zeros."""
    return weight / np.maximum(weight.sum(-1, keepdims=True), 1e-8)
