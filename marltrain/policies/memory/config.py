"""The memory of agents with external learning code: `Replay` or `Rollouts`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from marltrain.config import checked_arguments, setting, validate
from marltrain.errors import ConfigError, shown
from marltrain.policies.algorithms.base import MOST_STEPS

LONGEST = 10_000
"""Maximum number of rewards that a row may sum; they are added in a loop."""


@checked_arguments
@dataclass(frozen=True)
class Replay:
    """Learn off-policy from rows drawn uniformly, with replacement, from the last `capacity` env steps.

    capacity: env steps that stay readable.  n_step: rewards of a player summed before bootstrapping.
    Raises ConfigError for a value below 1.
    """

    capacity: int = setting(50_000, doc="env steps that stay readable", low=1, high=MOST_STEPS)
    n_step: int = setting(1, doc="rewards summed before bootstrapping", low=1, high=LONGEST)

    def __post_init__(self) -> None:
        """Check the values; raises ConfigError."""
        validate(self, "Replay")


@checked_arguments
@dataclass(frozen=True)
class Rollouts:
    """Learn on-policy from each row exactly once, in the first update after its outcome is known."""


def chosen_memory(memory: Any, allowed: tuple[type[Any], ...], who: str) -> Any:
    """Return the given memory, or the default of the first type in `allowed` for None.

    who: name for the error.  Raises ConfigError for any other value.
    """
    if memory is None:
        return allowed[0]()
    if isinstance(memory, allowed):
        return memory
    instead = " or ".join(
        f"marltrain.Replay(capacity={getattr(memory, 'maxsize', 50_000)})" if kind is Replay else "marltrain.Rollouts()"
        for kind in allowed
    )
    if hasattr(memory, "sample_indices"):
        raise ConfigError(
            f"{who}: memory got a buffer ({type(memory).__name__}), but the trainer itself stores all "
            f"transitions, once for all agents: set the size of the memory with memory={instead}"
        )
    raise ConfigError(f"{who}: memory must be {instead}, got {shown(memory)}")
