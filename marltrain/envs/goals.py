"""Rewards of goals: `compute_reward` of an environment with goals, as in Gymnasium-Robotics."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, cast

from marltrain.core.errors import ConfigError
from marltrain.envs.layers import outermost
from marltrain.envs.registry import Source


def goal_reward(source: Source, stack: ExitStack) -> Callable[..., Any]:
    """Return `compute_reward(achieved, desired, info)` of an environment object in this process.

    It is that of the outermost wrapper that defines it. The object is built for this purpose, because the environments
    of a run may be in other processes; `stack` closes it.

    Raises ConfigError for an environment without this function.
    """
    result = source.make()
    stack.callback(result.close)
    found = getattr(outermost(result, "compute_reward"), "compute_reward", None)
    if not callable(found):
        raise ConfigError(
            f"{source.name} has no compute_reward(achieved, desired, info), which gives the rewards of other goals: "
            "give Hindsight(reward_fn=...)"
        )
    return cast("Callable[..., Any]", found)
