"""Rewards of goals: `compute_reward` of an environment with goals, as in Gymnasium-Robotics."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from marltrain.envs.registry import Source


def goal_reward(source: Source, stack: ExitStack) -> Callable[..., Any] | None:
    """Return `compute_reward(achieved, desired, info)` of an environment object in this process, or None.

    It is an object of its own, which `stack` closes: the environments of a run may be in other processes.
    """
    made = source.make()
    stack.callback(made.close)
    inner = getattr(made, "unwrapped", made)
    found: Callable[..., Any] | None = getattr(inner, "compute_reward", None)
    return found
