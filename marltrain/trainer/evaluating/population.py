"""Tests of a population: every copy of the environment plays the test that it would play alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.envs.faults import Fault
from marltrain.envs.population import PopulationVectorEnv
from marltrain.envs.rotation import Rotation
from marltrain.trainer.collecting.rollout import Actors
from marltrain.trainer.evaluating.episode_log import EpisodeLog
from marltrain.trainer.evaluating.equal_rewards import EqualRewards
from marltrain.trainer.evaluating.evaluation import Evaluation, TestInterrupted, TestResult
from marltrain.trainer.seats.seats import LearnerSeats


class PopulationEvaluation(Evaluation):
    """Plays tests of all copies of a `PopulationVectorEnv` at once.

    In its results row j holds episode j of every copy. A copy whose test was cut has NaN in the episodes that had not
    begun; lengths are those of the longest episode j of any copy.
    """

    envs: PopulationVectorEnv

    def play(
        self,
        learners: Sequence[LearnerSeats],
        episodes: int,
        *,
        rotation: Rotation | None = None,
        sampled: bool = False,
        on_step: Callable[[int, int], Any] = lambda finished, steps: None,
        on_faults: Callable[[Sequence[Fault]], Any] = lambda faults: None,
        given_up: Callable[[], bool] = lambda: False,
        log: EpisodeLog | None = None,
        equal_rewards: EqualRewards | None = None,
    ) -> TestResult:
        """See `Evaluation.play`; counts and limits are those of one copy.

        Agents keep their seats. There is no log, and there are no teams, whose rewards would be checked.
        """
        envs = self.envs
        actors = Actors(envs.spec, learners, envs.num_envs, "test")
        actors.explore(np.full(len(envs.spec.players), sampled))
        step = envs.reset(self.seed)
        tally = _Tallies(envs, episodes, self.max_steps)
        while tally.open.any():
            if given_up():
                raise TestInterrupted
            actors.decide(step)
            envs.send(actors.actions)
            step = envs.recv()
            tally.add()
            on_step(int(tally.finished.min()), int(tally.steps.max()))
        return tally.result()


class _Tallies:
    """Adds up returns and lengths of the episodes of N copies in E environments each.

    open: [N] bool, copies whose test goes on.  finished, steps: [N] int64, episodes and env steps so far.
    """

    def __init__(self, envs: PopulationVectorEnv, episodes: int, max_steps: int | None) -> None:
        copies, num_envs = len(envs.seeds), envs.num_envs
        self.envs, self.episodes, self.max_steps = envs, episodes, max_steps
        self.running = envs.joined.start_reward.astype(np.float64)
        self.lengths = np.zeros(copies * num_envs, np.int64)
        self.copy, self.number = np.divmod(np.arange(copies * num_envs), num_envs)
        self.returns = np.full((episodes, len(envs.plain.players), copies), np.nan)
        self.episode_lengths = np.zeros((episodes, copies), np.int64)
        self.finished, self.steps = np.zeros(copies, np.int64), np.zeros(copies, np.int64)
        self.unfinished = np.zeros(episodes, bool)
        self.open = np.ones(copies, bool)

    def add(self) -> None:
        """Add the Step that the environments have made."""
        step = self.envs.joined
        playing = self.number < self.episodes
        self.steps += self._by_copy(playing & self.open[self.copy])
        self.running += step.reward
        self.lengths += 1
        ended = np.flatnonzero(step.ended)
        counted = ended[playing[ended] & self.open[self.copy[ended]]]
        self._enter(counted)
        self.finished += np.bincount(self.copy[counted], minlength=len(self.open))
        self.number[ended] += self.envs.num_envs
        self.lengths[ended] = 0
        self.running[:, ended] = step.start_reward[:, ended]
        self.open &= self.finished < self.episodes
        if self.max_steps is not None and (cut := self.open & (self.steps >= self.max_steps)).any():
            self._cut(cut)

    def result(self) -> TestResult:
        """Return the result of all copies."""
        names = self.envs.spec.names
        returns = self.returns.reshape(self.episodes, len(names))
        seats = np.tile(np.arange(len(names)), (self.episodes, 1))
        return TestResult(returns, self.episode_lengths.max(1), seats, names, self.unfinished)

    def _cut(self, copies: Array) -> None:
        """End the tests of copies [N] bool; running episodes count with their return so far."""
        running = np.flatnonzero(copies[self.copy] & (self.number < self.episodes) & (self.lengths > 0))
        self._enter(running)
        self.unfinished[self.number[running]] = True
        self.open &= ~copies

    def _enter(self, columns: Array) -> None:
        """Store returns and lengths of the episodes of some environments."""
        where = self.number[columns], self.copy[columns]
        self.returns[where[0], :, where[1]] = self.running[:, columns].T
        self.episode_lengths[where] = self.lengths[columns]

    def _by_copy(self, flags: Array) -> Array:
        """Return the number of true flags of each copy, [N]."""
        counts: Array = flags.reshape(len(self.open), -1).sum(1)
        return counts
