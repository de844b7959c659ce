"""Schedule of recurring work: at multiples of finished episodes or of env steps."""

from __future__ import annotations

from typing import ClassVar


def passed(before: int, now: int, every: int | None) -> bool:
    """Return whether a count reached or passed a multiple of `every` between `before` and `now`; False for None."""
    return every is not None and now // every > before // every


def left(now: int, every: int | None) -> int | None:
    """Return the distance to the next multiple of `every`; None for every=None."""
    return None if every is None else every - now % every


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

    def due(self, episodes: int, env_steps: int) -> bool:
        """Return whether a test is due."""
        last = self.tested_at
        return passed(last[0], episodes, self.every_episodes) or passed(last[1], env_steps, self.every_steps)

    def due_at_end(self, episodes: int, env_steps: int) -> bool:
        """Return whether a test is due after training: tests are enabled and the last one is not at these counts."""
        return (self.every_episodes or self.every_steps) is not None and self.tested_at != (episodes, env_steps)
