"""RingPart: the newest rows of some environments, from which another ring goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from marltrain.core.layout import Array
from marltrain.policies.memory.ring import Ring


@dataclass(frozen=True)
class RingPart:
    """The rows of some environments from batch step `oldest` to `now`, before the decisions of `now`.

    Final observations are left out: the rows that lead to them have `next` -1 and are never closed.

    rows: column -> [P, H, n, ...], or [P, H] for `learnable`.  open, turn: [P, n], see `Ring`.
    """

    now: int
    oldest: int
    rows: Mapping[str, Array]
    open: Array
    turn: Array

    @classmethod
    def of(cls, ring: Ring, oldest: int) -> RingPart:
        """Return copies of the rows of a ring since batch step `oldest`, of all environments."""
        oldest = max(min(oldest, ring.now), ring.oldest)
        slots = np.arange(oldest, ring.now + 1) % ring.capacity
        rows = {name: column[:, slots] for name, column in ring.columns.items()}
        rows["next"][rows["next"] < -1] = -1
        return cls(ring.now, oldest, rows, ring.open.copy(), ring.turn.copy())

    def columns(self, envs: slice) -> RingPart:
        """Return the rows of some of the environments."""
        rows = {
            name: np.ascontiguousarray(column[:, :, envs]) if column.ndim > 2 else column
            for name, column in self.rows.items()
        }
        return replace(self, rows=rows, open=self.open[:, envs].copy(), turn=self.turn[:, envs].copy())

    def load(self, ring: Ring) -> None:
        """Load the rows into an empty ring of their environments; it counts none of them as drawable."""
        others = {"open": self.open, "turn": self.turn, "whole": np.zeros(ring.group.size, np.int64)}
        ring.load(self.now - self.oldest + 1, self.now, self.oldest, self.rows, others)
