"""Rewards of goals: `compute_reward` of an environment with goals, as in Gymnasium-Robotics."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from marltrain.envs.registry import Source
from marltrain.errors import ConfigError


def goal_reward(source: Source, stack: ExitStack) -> Callable[..., Any]:
    """Return `compute_reward(achieved, desired, info)` of an environment object in this process.

    It is an object of its own, which `stack` closes: the environments of a run may be in other processes.
    Raises ConfigError for an environment without this function.
    """
    made = source.make()
    stack.callback(made.close)
    inner = getattr(made, "unwrapped", made)
    found: Callable[..., Any] | None = getattr(inner, "compute_reward", None)
    if found is None:
        raise ConfigError(
            f"{source.name} has no compute_reward(achieved, desired, info), which gives the rewards of other goals: "
            "give Hindsight(reward_fn=...)"
        )
    return found
