"""Counts of a run: its counters, the bytes that it sends, and its duration."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass
class Counters:
    """Counts of a run so far.

    episodes: finished training episodes.  env_steps: steps of training environments.
    updates: updates of the learner that has made most.  gradient_steps: gradient passes of all learners.
    dropped_steps: env steps of episodes that were dropped because of faults.
    """

    episodes: int = 0
    env_steps: int = 0
    updates: int = 0
    gradient_steps: int = 0
    dropped_steps: int = 0


@dataclass
class Traffic:
    """Bytes of arrays sent to runners and received from them in this call of `train`, and the number of fragments.

    to_learners, from_learners: bytes sent to learner actors and received from them.
    lag: updates between the weights of the newest batch step and the update that reads it; None: synchronous runners.
    max_lag: the largest so far.
    runners: that collect now; 0 without runners.  fewest_runners: so far.
    """

    sent: int = 0
    received: int = 0
    fragments: int = 0
    to_learners: int = 0
    from_learners: int = 0
    lag: int | None = None
    max_lag: int = 0
    runners: int = 0
    fewest_runners: int = 0

    def collect_with(self, runners: int) -> None:
        """Note the number of runners that collect from now on."""
        self.fewest_runners = min(self.fewest_runners, runners) if self.runners else runners
        self.runners = runners


class Clock:
    """Duration of a run, including tests and the time before it was resumed."""

    def __init__(self, before: float = 0.0) -> None:
        """Start; before: seconds that count already."""
        self.before, self._started_at = before, time.perf_counter()
        self._stopped_at: float | None = None

    @property
    def seconds(self) -> float:
        """Seconds so far, or until `stop`."""
        now = time.perf_counter() if self._stopped_at is None else self._stopped_at
        return self.before + now - self._started_at

    def stop(self) -> None:
        """Stop the clock."""
        self._stopped_at = time.perf_counter()
