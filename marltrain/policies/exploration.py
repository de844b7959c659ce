"""Ways to explore, over `ops`: the randomness comes in as arrays from each agent's own stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from marltrain.layout import Array
from marltrain.policies.distributions import masked


def epsilon_noise(rngs: Sequence[np.random.Generator], rows: int, choices: int) -> dict[str, Array]:
    """Draw, for K agents, a coin [K, rows] and a score for each choice [K, rows, choices], uniform in [0, 1)."""
    drawn = np.stack([rng.random((rows, choices + 1), np.float32) for rng in rngs])
    return {"coin": drawn[..., 0], "choice": drawn[..., 1:]}


def epsilon_greedy(ops: Any, q: Any, legal: Any, noise: Mapping[str, Any], explore: Any, epsilon: Any) -> Any:
    """Return the best action [K, B], or where exploring, with probability epsilon [K, 1], a uniform legal one.

    Each row tosses its own coin (Watkins 1989).
    """
    random = ops.argmax(masked(ops, noise["choice"], legal), -1)
    return ops.where(explore & (noise["coin"] < epsilon), random, ops.argmax(q, -1))
