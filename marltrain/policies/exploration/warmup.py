"""Warm-up: uniformly random actions for the first env steps of a run, or for a share of the acts."""

from __future__ import annotations

from dataclasses import dataclass

from marltrain.core.errors import ConfigError, shown
from marltrain.core.settings import setting
from marltrain.policies.hyperparameters.schedules import Schedule, switch


@dataclass(frozen=True, kw_only=True)
class Warmup:
    """Settings of random actions; part of the settings of an algorithm that explores."""

    random_steps: int = setting(0, doc="env steps at the start of a run with random (legal) actions of exploring seats",
                                low=0)  # fmt: skip
    random_share: float | Schedule | None = setting(
        None, doc="share of random (legal) actions of exploring seats; random_steps=n sets switch(1, 0, n)",
        low=0, high=1, per_row=True,
    )  # fmt: skip

    def __post_init__(self) -> None:
        """Set `random_share` for `random_steps`; raises ConfigError if both are given."""
        if not self.random_steps:
            return
        share = switch(1.0, 0.0, self.random_steps)
        if self.random_share not in (None, share):
            raise ConfigError(
                f"random_steps={self.random_steps} and random_share={shown(self.random_share)} exclude each other: "
                "random_steps sets the share to 1 and then to 0"
            )
        object.__setattr__(self, "random_share", share)
