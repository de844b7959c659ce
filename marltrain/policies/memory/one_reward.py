"""One reward of several players: the comparison of their rewards."""

from __future__ import annotations

import numpy as np

from marltrain.core.layout import Array

SAME = 1e-5
"""Largest difference between equal rewards, as a share of their size."""


def compare(rewards: Array, valid: Array) -> tuple[Array, int | None]:
    """Return the largest reward of each column, [B], and the first column with different rewards, None without one.

    rewards: [N, B] float32, of N players.  valid: [N, B] bool, the rewards that count; -inf for a column without any.
    """
    low = np.where(valid, rewards, np.inf).min(0)
    high = np.where(valid, rewards, -np.inf).max(0)
    differs = high - low > SAME * np.maximum(1.0, np.abs(high))
    return high, int(differs.argmax()) if np.count_nonzero(differs) else None
