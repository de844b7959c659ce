"""The running episodes of environments: returns, lengths and numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from marltrain.core.layout import Array
from marltrain.core.spec import Step

DROPPED = -1
"""Length of a dropped episode: the next Step raises it to 0, and an ended episode of length 0 does not count."""


class FinishedEpisodes(NamedTuple):
    """Episodes that ended in one batch step.

    begun: [b] int64, environments in which an episode begins, those of dropped episodes included.
    following: [b] int64, the numbers of the episodes that begin.
    envs: [n] int64, environments of the finished episodes.  numbers: [n] int64, the episodes' numbers.
    returns: [P, n] float64.  lengths: [n] int64, env steps.
    """

    begun: Array
    following: Array
    envs: Array
    numbers: Array
    returns: Array
    lengths: Array


class EndedEpisodes(NamedTuple):
    """Episodes that ended within a call of several batch steps, in the order of their ends.

    steps: [n] int64, the batch step in which each ended, the first one of the call is 1.
    envs, numbers, lengths, following: [n] int64.  returns: [P, n] float64.  See `FinishedEpisodes`.
    """

    steps: Array
    envs: Array
    numbers: Array
    lengths: Array
    following: Array
    returns: Array

    def part(self, rows: slice = slice(None)) -> FinishedEpisodes:
        """Return some of the episodes, or all."""
        envs = self.envs[rows]
        numbers, returns, lengths = self.numbers[rows], self.returns[:, rows], self.lengths[rows]
        return FinishedEpisodes(envs, self.following[rows], envs, numbers, returns, lengths)

    def by_step(self) -> Iterator[tuple[int, FinishedEpisodes]]:
        """Yield each batch step in which episodes ended, with these episodes."""
        steps, firsts = np.unique(self.steps, return_index=True)
        for step, first, end in zip(steps.tolist(), firsts, [*firsts[1:], len(self.steps)], strict=True):
            yield step, self.part(slice(first, end))


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
        finished = FinishedEpisodes(
            begun, step.episode[begun], envs, self.numbers[envs], self.returns[:, envs], self.lengths[envs]
        )
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
