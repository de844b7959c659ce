"""Speed: the env steps a second of a run, and the time that is left, for all displays and loggers."""

from __future__ import annotations

import itertools
from collections import deque
from typing import NamedTuple

SHORTEST = 5.0
"""Seconds that a rate covers at least, once the run is so long."""
CYCLES = 3
"""Multiple of the longest pause between two steps that a rate covers at least: several rounds of steps and updates."""
HISTORY = 60.0
"""Seconds of which pauses are known at least."""
APART, PARTS = 0.25, 64
"""Minimum distance of two marks: in seconds, and as a part of the time that a rate covers."""


class Mark(NamedTuple):
    """Counts at a time of the run; done: share of the budget, None without one."""

    seconds: float
    env_steps: int
    updates: int
    done: float | None


class Speed:
    """Measures a run from its counts at any times.

    A rate is the number of env steps between two marks divided by the seconds between them, so that short and long
    intervals count by their length. Tests and updates are part of the time; the test before the first step is not.
    The first round of updates often compiles: once a second one has ended, the time before the end of the first no
    longer counts.

    due: seconds of the run from which the next counts are of use; others refine the rate of now.
    """

    def __init__(self) -> None:
        """Start without a mark."""
        self.due = 0.0
        self._marks: deque[Mark] = deque()
        self._first: Mark | None = None  # from which the time left is estimated
        self._start: Mark | None = None
        self._warm: Mark | None = None  # end of the first round of updates
        self._latest: Mark | None = None
        self._settled = False
        self._covered = SHORTEST

    def add(self, seconds: float, env_steps: int, updates: int, done: float | None = None) -> None:
        """Take the counts of the run; seconds: duration of the run.

        Until a count changes, as during a test, the time does not count; later it counts with the next step.
        """
        mark = Mark(seconds, env_steps, updates, done)
        if self._start is None or mark[1:] == self._start[1:]:
            self._begin(mark)
            return
        if self._latest is not None and mark[1:] == self._latest[1:]:
            return
        self._latest = mark
        if not self._settled and updates > self._start.updates:
            self._warm_up(mark)
        if seconds >= self.due:
            self._keep(mark)

    @property
    def rate(self) -> float | None:
        """Env steps a second over the last seconds; None before the first step."""
        if self._latest is None:
            return None
        begin = self._latest.seconds - self._covered
        since = next((mark for mark in reversed(self._marks) if mark.seconds <= begin), self._marks[0])
        steps, seconds = self._latest.env_steps - since.env_steps, self._latest.seconds - since.seconds
        return steps / seconds if steps > 0 and seconds > 0 else None

    def left(self, least: float = 0.0) -> float | None:
        """Return the seconds until the budget is used up, at the mean speed so far; None if they are not known.

        least: share of the budget that must be done before.
        """
        if self._latest is None or self._first is None or self._latest.done is None or self._first.done is None:
            return None
        share, seconds = self._latest.done - self._first.done, self._latest.seconds - self._first.seconds
        return (1 - self._latest.done) * seconds / share if share > least else None

    def _begin(self, mark: Mark) -> None:
        self._start = self._first = mark
        self._marks = deque([mark])
        self.due = mark.seconds + APART

    def _warm_up(self, mark: Mark) -> None:
        """Note the end of the first round of updates; begin there when the second one has ended."""
        if self._warm is None:
            self._warm = mark
        elif mark.updates > self._warm.updates:
            self._settled, self._first = True, self._warm
            self._marks = deque([self._warm, *(kept for kept in self._marks if kept.seconds > self._warm.seconds)])

    def _keep(self, mark: Mark) -> None:
        """Add a mark, and remove those that no rate needs."""
        self._marks.append(mark)
        times = [kept.seconds for kept in self._marks]
        pause = max(late - early for early, late in itertools.pairwise(times))
        self._covered = max(SHORTEST, CYCLES * pause)
        while len(self._marks) > 2 and self._marks[1].seconds <= mark.seconds - max(HISTORY, self._covered):
            self._marks.popleft()
        self.due = mark.seconds + max(APART, self._covered / PARTS)
