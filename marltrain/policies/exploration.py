"""Exploration rules, written with `ops`; random numbers are arguments, drawn from each agent's own stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from marltrain.layout import Array
from marltrain.policies.distributions import masked


def epsilon_noise(rngs: Sequence[np.random.Generator], rows: int, choices: int) -> dict[str, Array]:
    """Draw "coin" [K, rows] and a score of each action, "choice" [K, rows, choices], uniform in [0, 1), float32."""
    drawn = np.stack([rng.random((rows, choices + 1), np.float32) for rng in rngs])
    return {"coin": drawn[..., 0], "choice": drawn[..., 1:]}


def epsilon_greedy(ops: Any, q: Any, legal: Any, noise: Mapping[str, Any], explore: Any, epsilon: Any) -> Any:
    """Return the best action [K, B]; where `explore`, a uniform legal action with probability epsilon [K, 1].

    Each row has its own coin (Watkins 1989).
    """
    random = ops.argmax(masked(ops, noise["choice"], legal), -1)
    return ops.where(explore & (noise["coin"] < epsilon), random, ops.argmax(q, -1))
