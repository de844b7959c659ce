"""Functions of the run's env steps, for any number that may change in training.

The loop gives them to a learner before it first acts and before each update.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from marltrain.errors import ConfigError

KINDS = ("linear", "cosine", "exponential")


@dataclass(frozen=True)
class Schedule:
    """A number that moves from `start` to `stop` over `steps` env steps, and stays there.

    Made by `linear`, `cosine` and `exponential`; call it with the run's env steps.
    """

    kind: str
    start: float
    stop: float
    steps: int

    def __post_init__(self) -> None:
        """Raise ConfigError for an unknown kind or a length below one env step."""
        if self.kind not in KINDS:
            raise ConfigError(f"a schedule is one of {', '.join(KINDS)}, got {self.kind!r}")
        if self.steps < 1:
            raise ConfigError(f"a schedule takes at least 1 env step, got steps={self.steps}")
        if self.kind == "exponential" and not (self.start > 0 and self.stop > 0):
            raise ConfigError(f"an exponential schedule needs positive ends, got {self.start:g} and {self.stop:g}")

    def __call__(self, env_steps: int) -> float:
        """Return the value after `env_steps` env steps of the run."""
        done = min(max(env_steps / self.steps, 0.0), 1.0)
        if self.kind == "linear":
            return self.start + (self.stop - self.start) * done
        if self.kind == "cosine":
            return self.stop + (self.start - self.stop) * 0.5 * (1.0 + math.cos(math.pi * done))
        return float(self.start * (self.stop / self.start) ** done)

    def describe(self) -> dict[str, Any]:
        """Return the schedule as JSON values."""
        return asdict(self)


def linear(start: float, stop: float, steps: int) -> Schedule:
    """Move in a straight line from `start` to `stop` over `steps` env steps."""
    return Schedule("linear", start, stop, steps)


def cosine(start: float, stop: float, steps: int) -> Schedule:
    """Move along half a cosine from `start` to `stop` over `steps` env steps."""
    return Schedule("cosine", start, stop, steps)


def exponential(start: float, stop: float, steps: int) -> Schedule:
    """Move by equal factors from `start` to `stop`, both positive, over `steps` env steps."""
    return Schedule("exponential", start, stop, steps)
