"""When work is due: tests, the ends of budgets, and the number of batch steps until then."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import ClassVar

from marltrain.trainer.events.counters import Counters
from marltrain.trainer.settings import TrainerSettings


def passed(before: int, now: int, every: int | None) -> bool:
    """Return whether a count reached or passed a multiple of `every` between `before` and `now`; False for None."""
    return every is not None and now // every > before // every


def left(now: int, every: int | None) -> int:
    """Return the distance to the next multiple of `every`; a very large number for every=None."""
    return sys.maxsize if every is None else every - now % every


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
        for name, done, budget in budgets:
            if budget is not None and done >= budget:
                return name
        return ""


class TestSchedule:
    """Schedule of tests: before training, at multiples of episodes, at multiples of env steps, and after training.

    Both kinds of multiples count; a batch step that passes several multiples is followed by one test.
    tested_at: (episodes, env steps) of the last test; (-1, -1) before the first one.
    """

    __test__: ClassVar[bool] = False  # for pytest: not a test class

    def __init__(self, every_episodes: int | None, every_steps: int | None) -> None:
        """Take the number of episodes and of env steps between tests; with None for both no test is ever due."""
        self.every_episodes, self.every_steps = every_episodes, every_steps
        self.tested_at = (-1, -1)

    def due(self, now: Counters) -> bool:
        """Return whether a test is due."""
        episodes, env_steps = self.tested_at
        return passed(episodes, now.episodes, self.every_episodes) or passed(env_steps, now.env_steps, self.every_steps)

    def due_at_end(self, now: Counters) -> bool:
        """Return whether a test is due after training: tests are enabled and the last one is not at these counts."""
        enabled = (self.every_episodes or self.every_steps) is not None
        return enabled and self.tested_at != (now.episodes, now.env_steps)


@dataclass(frozen=True)
class Due:
    """The work that interrupts collecting.

    train_fn_episodes: episodes between calls of `train_fn`; None: there is no such function.
    checkpoint_steps: env steps between checkpoints; None: none by env steps.
    """

    budgets: Budgets
    tests: TestSchedule
    train_fn_episodes: int | None
    checkpoint_steps: int | None

    def steps_left(self, env_steps: int) -> int:
        """Return the number of env steps until a test, a checkpoint or the end of the budget is due by env steps."""
        budget = self.budgets.env_steps
        return min(
            left(env_steps, self.tests.every_steps), left(env_steps, self.checkpoint_steps),
            sys.maxsize if budget is None else budget - env_steps,
        )  # fmt: skip

    def episodes_left(self, episodes: int) -> int:
        """Return the number of episodes until a test, `train_fn` or the end of the budget is due by episodes."""
        budget = self.budgets.episodes
        return min(
            left(episodes, self.tests.every_episodes), left(episodes, self.train_fn_episodes),
            sys.maxsize if budget is None else budget - episodes,
        )  # fmt: skip
