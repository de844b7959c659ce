"""Budgets of a run in episodes, env steps and updates."""

from __future__ import annotations

from dataclasses import dataclass

from marltrain.trainer.counters import Counters
from marltrain.trainer.settings import TrainerSettings


@dataclass(frozen=True)
class Budgets:
    """Counts at which training ends, measured from the start of the run; None: no limit."""

    episodes: int | None
    env_steps: int | None
    updates: int | None

    @classmethod
    def of(cls, settings: TrainerSettings, counters: Counters) -> Budgets:
        """Return the trainer's budgets, added to the current counts."""

        def total(budget: int | None, before: int) -> int | None:
            return None if budget is None else before + budget

        return cls(
            total(settings.episode_budget, counters.episodes),
            total(settings.steps_per_train, counters.env_steps),
            total(settings.updates_per_train, counters.updates),
        )

    def reached(self, counters: Counters) -> str:
        """Return the name of the first budget that is used up, or "" if none is."""
        budgets = (
            ("episodes_per_train", counters.episodes, self.episodes),
            ("steps_per_train", counters.env_steps, self.env_steps),
            ("updates_per_train", counters.updates, self.updates),
        )
        return next((name for name, done, budget in budgets if budget is not None and done >= budget), "")
