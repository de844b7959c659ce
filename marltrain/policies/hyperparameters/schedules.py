"""Schedules: hyperparameters as functions of the env steps of a run.

They are evaluated at the start of a run, and by `UpdateScheduler.update` (or by the plan of compiled updates) each time
that an update is due, before it is made. In between, hyperparameters are constant.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from marltrain.core.errors import ConfigError
from marltrain.core.settings import checked_arguments, setting, validate

KINDS = ("linear", "cosine", "exponential", "decay", "switch")


@dataclass(frozen=True)
class Schedule:
    """A value that changes from `start` to `stop` over `steps` env steps and then stays constant.

    `linear`, `cosine`, `exponential`, `decay` and `switch` create schedules. Call a schedule with the env steps of the
    run.
    """

    kind: str = setting(doc="kind of curve", choices=KINDS)
    start: float = setting(doc="initial value")
    stop: float = setting(doc="final value")
    steps: int = setting(doc="duration in env steps (decay: its time constant)", low=1)

    def __post_init__(self) -> None:
        """Raise ConfigError for an unknown kind, an invalid `start` or `stop`, or `steps` below 1."""
        validate(self, f"a {self.kind} schedule" if self.kind in KINDS else "a schedule")
        if self.kind == "exponential" and not (self.start > 0 and self.stop > 0):
            raise ConfigError(
                f"an exponential schedule: start and stop must be positive, got {self.start:g} and {self.stop:g}"
            )

    def __call__(self, env_steps: int) -> float:
        """Return the value after `env_steps` env steps of the run."""
        if self.kind == "decay":
            return self.stop + (self.start - self.stop) * math.exp(-max(env_steps, 0) / self.steps)
        if self.kind == "switch":
            return self.start if env_steps < self.steps else self.stop
        done = min(max(env_steps / self.steps, 0.0), 1.0)
        if self.kind == "linear":
            return self.start + (self.stop - self.start) * done
        if self.kind == "cosine":
            return self.stop + (self.start - self.stop) * 0.5 * (1.0 + math.cos(math.pi * done))
        return float(self.start * (self.stop / self.start) ** done)

    def describe(self) -> dict[str, Any]:
        """Return the schedule as JSON values."""
        return asdict(self)


@checked_arguments
def linear(start: float, stop: float, steps: int) -> Schedule:
    """Return a schedule that changes linearly from `start` to `stop` over `steps` env steps."""
    return Schedule("linear", start, stop, steps)


@checked_arguments
def cosine(start: float, stop: float, steps: int) -> Schedule:
    """Return a schedule that follows half a cosine from `start` to `stop` over `steps` env steps."""
    return Schedule("cosine", start, stop, steps)


@checked_arguments
def exponential(start: float, stop: float, steps: int) -> Schedule:
    """Return a schedule that changes by a constant factor from `start` to `stop` over `steps` env steps.

    `start` and `stop` must be positive.
    """
    return Schedule("exponential", start, stop, steps)


@checked_arguments
def decay(start: float, stop: float, steps: int) -> Schedule:
    """Return a schedule whose distance to `stop` decays: stop + (start - stop) * exp(-env_steps / steps).

    It never ends. With rate = 1 / steps it is the "adaptive" epsilon of some libraries.
    """
    return Schedule("decay", start, stop, steps)


@checked_arguments
def switch(start: float, stop: float, steps: int) -> Schedule:
    """Return a schedule that is `start` for the first `steps` env steps and `stop` from then on."""
    return Schedule("switch", start, stop, steps)
