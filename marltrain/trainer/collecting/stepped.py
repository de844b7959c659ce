"""SteppedCollector: batch steps of a native game whose agents act in Python, such as those that compute on a GPU.

Compiled code steps the games and records each batch step, in several threads. `HalvesCollector` does so while a GPU
computes. Their results are bit-identical to those of `SyncCollector`, but for the rounding of a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from marltrain.core.spec import Step
from marltrain.jit.threads import Threads
from marltrain.trainer.collecting.episodes import RunningEpisodes
from marltrain.trainer.collecting.fused_arguments import FusedArguments, can_record, records_fields
from marltrain.trainer.collecting.fused_kernel import ANY_STEP, MOVE, NO_ENDS, RECORD, SETTLE
from marltrain.trainer.collecting.rollout import Collected, SyncCollector
from marltrain.trainer.collecting.work import Work
from marltrain.trainer.seats.team_reward import TeamRewards
from marltrain.trainer.updating.scheduler import UpdateScheduler

SECONDS = 0.1
"""Time after which a call begins no further batch step: it bounds the latency of a stop request."""


def can_step(sync: SyncCollector) -> bool:
    """Return whether compiled code steps the environments and records, while agents act in Python."""
    return can_record(sync) and not (sync.envs.spec.turn_based and recorded_steps(sync) != ANY_STEP)


def recorded_steps(sync: SyncCollector) -> int:
    """Return which steps compiled code records: ANY_STEP or NO_ENDS."""
    return NO_ENDS if records_fields(sync) else ANY_STEP


class SteppedCollector:
    """Makes batch steps until an update is due; see the module docstring and `Collector`.

    moves, records: the parts of a batch step after the acts.
    """

    def __init__(
        self,
        sync: SyncCollector,
        episodes: RunningEpisodes,
        schedulers: Sequence[UpdateScheduler],
        team_rewards: TeamRewards | None = None,
    ) -> None:
        """Fill in the arguments of the kernel that stay the same.

        sync: makes single batch steps.  episodes: the running ones.  schedulers: those of all learners.
        team_rewards: the rewards to learn from, not computed by a function; None: the players' own.
        """
        self.sync, self.recorder, self._schedulers = sync, sync.recorder, schedulers
        given = self._arguments = FusedArguments(sync, episodes, team_rewards, recorded_steps(sync))
        given.record["most"] = 1
        self.recorder.actors.actions = given.games.actions  # agents write where compiled code reads
        self.threads, envs = Threads(), sync.envs.num_envs
        self.moves = [Work(given, self.threads, MOVE | SETTLE, 0, envs)]
        self.records = Work(given, self.threads, RECORD, 0, envs)
        self._error: Exception | None = None

    def advance(self, step: Step, most: int, episodes: int) -> Collected:
        """Make batch steps until an update is due, or a step needs Python.

        An error of an agent is raised by the next call, if batch steps were made before it: they count.
        """
        self._raise_error()
        given = self._arguments
        most = min([most, given.room, *(scheduler.steps_left for scheduler in self._schedulers)])
        if most < 1:
            return self.sync.advance(step, most, episodes)
        if given.outdated:
            given.refresh(step)
        given.start(episodes)
        for work in (*self.moves, self.records):
            work.most = self._bound()
        result, recorded = self._made(step, most)
        if not result:
            given.leave()
            self._raise_error()
        given.finish(result, result if recorded else result - 1)
        return Collected(step, result, recorded, ended=given.ended.taken())

    def settle(self) -> None:
        """Nothing is ahead."""

    def close(self) -> None:
        """End the threads that step the games."""
        self.threads.close()

    def _raise_error(self) -> None:
        """Raise the error of an agent, if there is one."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _bound(self) -> int:
        """Return the largest number of threads: that of the agents' frameworks."""
        actors = [seated.learner.actor for seated in self.recorder.actors.learners]
        return max((actor.backend.threads() for actor in actors if actor is not None), default=1)

    def _made(self, step: Step, most: int) -> tuple[int, bool]:
        """Make batch steps; return their number, and whether the outcome of the last one is recorded.

        An error of an agent ends them, and is kept.
        """
        given, made, until = self._arguments, 0, perf_counter() + SECONDS
        while True:
            try:
                self.recorder.act(step)
            except Exception as error:
                self._error = error
                return made, True
            given.record["before"] = made
            self.moves[0].run()
            made += 1
            if given.special:
                return made, False
            last = given.last
            self.records.run()
            if last or made == most or perf_counter() > until:
                return made, True
