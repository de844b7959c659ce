"""Common functions of games in which the first players, `rules.adversaries` adversaries, chase good agents."""

from __future__ import annotations

import math
from typing import Any

from marltrain.envs.native.particle.world import touching
from marltrain.jit.compiling import inner

ADVERSARY_ACCEL, GOOD_ACCEL = 3.0, 4.0
ADVERSARY_TOP_SPEED, GOOD_TOP_SPEED = 1.0, 1.3
ADVERSARY_SIZE, OBSTACLE_SIZE = 0.075, 0.2
REACH = 0.9
"""Largest initial coordinate of landmarks, in each direction; good agents farther out are penalized."""


def chase_rules(adversaries: int, good: int, good_size: float, obstacles: int, others: list[float]) -> dict[str, Any]:
    """Return the rules that the physics needs.

    others: the sizes of the landmarks that are not obstacles.
    """
    landmarks = [OBSTACLE_SIZE] * obstacles + others
    return {
        "adversaries": adversaries,
        "size": [ADVERSARY_SIZE] * adversaries + [good_size] * good + landmarks,
        "solid": [True] * (adversaries + good + obstacles) + [False] * len(others),
        "accel": [ADVERSARY_ACCEL] * adversaries + [GOOD_ACCEL] * good,
        "top_speed": [ADVERSARY_TOP_SPEED] * adversaries + [GOOD_TOP_SPEED] * good,
    }


@inner
def catchers(s: Any, rules: Any, a: int) -> int:
    """Return the number of adversaries that touch the good agent `a`."""
    count = 0
    for adversary in range(rules.adversaries):
        count += touching(s, rules, a, adversary)
    return count


@inner
def straying(s: Any, a: int) -> float:
    """Return agent `a`'s penalty for a position near an edge or beyond it."""
    total = 0.0
    for axis in range(2):
        far = abs(s.pos[a, axis])
        if far >= 1.0:
            total += min(math.exp(2 * far - 2), 10.0)
        elif far >= REACH:
            total += (far - REACH) * 10
    return total
