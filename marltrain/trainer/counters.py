"""Counts of a run: its counters, its running episodes and its duration."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from marltrain.core.layout import Array
from marltrain.core.spec import Step

DROPPED = -1
"""Length of a dropped episode: the next Step raises it to 0, and an ended episode of length 0 does not count."""


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


class FinishedEpisodes(NamedTuple):
    """Episodes that ended in one batch step.

    begun: [b] int64, environments in which an episode begins, those of dropped episodes included.
    envs: [n] int64, environments of the finished episodes.  numbers: [n] int64, the episodes' numbers.
    returns: [P, n] float64.  lengths: [n] int64, env steps.
    """

    begun: Array
    envs: Array
    numbers: Array
    returns: Array
    lengths: Array


class RunningEpisodes:
    """The running episodes of E environments: returns [P, E] float64, lengths [E] int64, numbers [E] int64."""

    def __init__(self, players: int, num_envs: int) -> None:
        """Start with empty episodes."""
        self.returns = np.zeros((players, num_envs))
        self.lengths, self.numbers = np.zeros(num_envs, np.int64), np.zeros(num_envs, np.int64)

    def begin(self, step: Step) -> None:
        """Begin an episode in every environment, with a Step of first observations."""
        self._start(np.arange(len(self.lengths)), step)

    def add(self, step: Step) -> FinishedEpisodes | None:
        """Add the rewards of a Step; return the episodes that ended, None if none did."""
        self.returns += step.reward
        self.lengths += 1
        if not np.count_nonzero(step.ended):
            return None
        begun = np.flatnonzero(step.ended)
        envs = begun[self.lengths[begun] > 0]  # the others were dropped
        finished = FinishedEpisodes(begun, envs, self.numbers[envs], self.returns[:, envs], self.lengths[envs])
        self._start(begun, step)
        self.numbers[...] = step.episode
        return finished

    def drop(self, envs: Array) -> int:
        """Drop the episodes of environments `envs` [n] int64 before their next Step is added; return their env steps.

        Their next Step is not part of the new episodes.
        """
        dropped = int((self.lengths[envs] + 1).sum())
        self.returns[:, envs], self.lengths[envs] = 0.0, DROPPED
        return dropped

    def restart(self, envs: Array, step: Step) -> int:
        """Begin new episodes in environments `envs` [n] int64, with a Step of their first observations.

        Returns the env steps of the dropped episodes.
        """
        dropped = int(self.lengths[envs].sum())
        self._start(envs, step)
        return dropped

    def _start(self, envs: Array, step: Step) -> None:
        """Start episodes in environments `envs` [n] int64: a new episode begins with the Step's `start_reward`."""
        self.returns[:, envs], self.lengths[envs] = step.start_reward[:, envs], 0
