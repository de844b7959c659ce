"""HalvesCollector: native games are stepped while a GPU computes, in one part of the environments or in two."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from time import perf_counter

from marltrain.core.spec import Step
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.trainer.collecting import stepped
from marltrain.trainer.collecting.act_parts import ActPart, give_back
from marltrain.trainer.collecting.episodes import RunningEpisodes
from marltrain.trainer.collecting.fused_kernel import MOVE, SETTLE
from marltrain.trainer.collecting.rollout import Noises, SyncCollector
from marltrain.trainer.collecting.work import Work
from marltrain.trainer.seats.team_reward import TeamRewards
from marltrain.trainer.updating.scheduler import UpdateScheduler

LEAST_OF_TWO = 8192
"""Least number of environments that are divided into two parts."""


def most_parts(sync: SyncCollector) -> int:
    """Return the largest number of parts of the environments; 0 unless all agents compute on a GPU.

    Acts that were started and are not used must leave nothing behind: noise is drawn ahead, and no members are drawn.
    Counts of actions are read by the next acts: these cannot start before all actions of a batch step are known.
    """
    learners = [seated.learner for seated in sync.recorder.actors.learners]
    actors = [learner.actor for learner in learners if isinstance(learner, AlgorithmLearner)]
    if sync.recorder.actors.cast.sets or len(actors) < len(learners) or not all(actor.on_gpu for actor in actors):
        return 0
    return 1 if any(actor.counts.size for actor in actors) else min(2, sync.envs.num_envs)


def parts_of(sync: SyncCollector) -> int:
    """Return the number of parts of the environments: at most 1 with few environments."""
    return min(most_parts(sync), 1 + (sync.envs.num_envs >= LEAST_OF_TWO))


class HalvesCollector(stepped.SteppedCollector):
    """Starts the acts of each part of the environments as soon as the part has been stepped.

    Then the other part is stepped, and the batch step is recorded, while the GPU computes. The noise of a batch step is
    drawn at once for all environments. Acts that have been started when a call ends are dropped, with their noise: the
    agents may change before the next call.
    """

    def __init__(
        self,
        sync: SyncCollector,
        episodes: RunningEpisodes,
        schedulers: Sequence[UpdateScheduler],
        team_rewards: TeamRewards | None = None,
        *,
        parts: int,
    ) -> None:
        """See `SteppedCollector`.  parts: number of parts of the environments."""
        super().__init__(sync, episodes, schedulers, team_rewards)
        envs = sync.envs.num_envs
        cuts = [envs * i // parts for i in range(parts + 1)]
        self._parts = [ActPart(self.recorder, low, high) for low, high in itertools.pairwise(cuts)]
        self.moves = [
            Work(self._arguments, self.threads, MOVE | (SETTLE if part is self._parts[-1] else 0), part.low, part.high)
            for part in self._parts
        ]
        learners = [seated.learner for seated in self.recorder.actors.learners]
        self._actors = [learner.actor for learner in learners if learner.actor is not None]

    def _made(self, step: Step, most: int) -> tuple[int, bool]:
        """See `SteppedCollector`."""
        actors = self.recorder.actors
        for part in self._parts:
            part.follow(actors)
        result = self._overlapped(step, most)
        if result[0]:
            give_back(self._parts, actors)
        return result

    def _overlapped(self, step: Step, most: int) -> tuple[int, bool]:
        """Make batch steps; return their number, and whether the outcome of the last one is recorded."""
        given, made, until, noises = self._arguments, 0, perf_counter() + stepped.SECONDS, self._drawn()
        for part in self._parts:
            self._start(part, step, noises)
        while noises and self._error is None:
            given.record["before"] = made
            noises = self._drawn() if made + 1 < most and perf_counter() < until else []
            if not self._moved(step, noises):
                break
            made, last = made + 1, given.last
            if given.special:
                break
            self.records.run()
            if last:
                break
        self._drop(noises)
        return made, not given.special

    def _start(self, part: ActPart, step: Step, noises: Sequence[Noises]) -> None:
        """Start the acts of a part; an error of an agent is kept, since other parts may have to be stepped yet."""
        try:
            part.start(step, noises)
        except Exception as error:
            self._error = error

    def _moved(self, step: Step, noises: Sequence[Noises]) -> bool:
        """Step all parts, and start their next acts; return False if an agent fails before the first part is stepped.

        If an agent fails later, its error is raised at once: only some environments have been stepped.
        """
        given = self._arguments
        for part, move in zip(self._parts, self.moves, strict=True):
            try:
                part.finish()
            except Exception as error:
                if part is not self._parts[0]:
                    raise
                self._error = error
                return False
            move.run()
            if given.special or given.last:
                break
            if noises and self._error is None:
                self._start(part, step, noises)
        return True

    def _drawn(self) -> list[Noises]:
        """Draw the noise of a batch step for each learner."""
        learners = zip(self._actors, self.recorder.actors.rngs, self.recorder.actors.exploring, strict=True)
        return [actor.noise.next(rngs, exploring.shape[1]) for actor, rngs, exploring in learners]

    def _drop(self, noises: Sequence[Noises]) -> None:
        """Drop the acts that have been started, and their noise."""
        for part in self._parts:
            part.drop()
        for actor in self._actors if noises else ():
            actor.noise.skip(-1)
