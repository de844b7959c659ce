"""`double_buffer=True`: one half of the environments steps while agents act for the other half.

The next step also starts before the run has processed the last one, if no update, test or callback is due in between
that could change how agents act. Therefore all results equal those of stepping all environments together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from marltrain.core.errors import ConfigError, warn
from marltrain.core.spec import Step
from marltrain.envs import VectorEnv
from marltrain.envs.workers.subproc import usual_workers
from marltrain.envs.workers.vector import WorkerVectorEnv
from marltrain.trainer.callbacks import CallbackList
from marltrain.trainer.collecting.rollout import Collected, Recorder
from marltrain.trainer.seats import LearnerSeats
from marltrain.trainer.settings import TrainerSettings
from marltrain.trainer.updating.scheduler import UpdateScheduler

ADVICE = 'use vector="subproc" with at least 2 workers and 2 environments, or leave double_buffer out'


def check_places(settings: TrainerSettings) -> None:
    """Raise ConfigError unless the environments run in at least two worker processes."""
    if not settings.double_buffer:
        return
    workers = settings.num_workers or usual_workers(settings.num_train_envs)
    lacking = (
        f'vector="{settings.vector}"' if settings.vector == "dummy"
        else f"num_train_envs={settings.num_train_envs}" if settings.num_train_envs < 2
        else f"{workers} worker" if workers < 2
        else ""
    )  # fmt: skip
    if lacking:
        raise ConfigError(f"double_buffer=True steps two halves of the environments in turn, not {lacking}: {ADVICE}")


def check_agents(learners: Iterable[LearnerSeats]) -> None:
    """Raise ConfigError for agents that cannot act for one half of the environments before the other half."""
    for seated in learners:
        actor = seated.learner.actor
        if actor is None or not actor.noise.ahead:
            raise ConfigError(
                "double_buffer=True needs agents of marltrain's own algorithms, over NetworkSpecs; the agent of "
                f"{seated.who} is of another kind. Leave double_buffer out"
            )


def no_callback_interferes(callbacks: CallbackList) -> bool:
    """Return whether no callback can change how agents act after every step; warn if one can."""
    if found := callbacks.interfering(("on_step", "on_collect", "on_episode_start", "on_episode_end")):
        warn(
            f"double_buffer=True speeds nothing up: {found} may change what agents act by, and no half goes ahead of "
            "it. Set only_watches = True in its class if it changes nothing"
        )
    return not found


class DoubleBufferedCollector:
    """Makes one batch step at a time, like `SyncCollector`; the next may have started when `advance` returns.

    under_way: see `Collector`. If False, environments and the agents' random streams are idle.
    episodes_left: returns the number of episodes that may end before a test, a hook, a checkpoint or the end of a
    budget is due.
    schedulers: the schedulers of all learners.
    """

    def __init__(
        self,
        envs: VectorEnv,
        recorder: Recorder,
        episodes_left: Callable[[], int],
        schedulers: Sequence[UpdateScheduler],
    ) -> None:
        """Take the environments and the recorder."""
        if not isinstance(envs, WorkerVectorEnv):
            raise TypeError("only environments in workers are stepped in halves: ask `check_places` first")
        self.envs, self.recorder = envs, recorder
        self.episodes_left, self.schedulers = episodes_left, schedulers
        self.under_way = False
        self._later = envs.num_envs - envs.halves[1].start
        self._step = Step.empty(envs.spec, envs.num_envs)
        self._parts = [self._step.part(half.start, half.stop) for half in envs.halves]
        self._arrays = [part.arrays() for part in self._parts]

    def advance(self, step: Step, most: int) -> Collected:
        """Make one batch step. With most=1, or if an update is due after it, no further step is started."""
        if not self.under_way:
            self._send(step)
        self.recorder.record_actions()
        most = min([most, *(scheduler.steps_left for scheduler in self.schedulers)])
        return Collected(self._received(most), 1)

    def settle(self) -> None:
        """Nothing is ahead unless `under_way`, and then nothing is saved or set."""

    def _received(self, most: int) -> Step:
        """Receive the Step of both halves, and start the next step of each half if nothing is due in between."""
        step, left = self._step, self.episodes_left() if most > 1 else 0
        self._take(0)
        ahead = int(np.count_nonzero(self._parts[0].ended)) + self._later < left
        if ahead:
            self._send_first(step)
        self._take(1)
        self.under_way = int(np.count_nonzero(step.ended)) < left
        if ahead:
            self._send_second(step)
        elif self.under_way:
            self._send(step)
        return step

    def _send(self, step: Step) -> None:
        """Act for all environments and start their step."""
        self.recorder.act(step)
        for half in (0, 1):
            self.envs.send_half(half, self.recorder.actors.actions)

    def _send_first(self, step: Step) -> None:
        """Act for the first half and start its step.

        All rows are computed, because a matrix product of fewer rows may differ in its last bits. Rows of the second
        half still hold the previous observations; their actions are discarded.
        """
        self.recorder.act(step, self.envs.halves[0])
        for seated in self.recorder.actors.learners:
            if seated.learner.actor is not None:
                seated.learner.actor.noise.skip(-1)
        self.envs.send_half(0, self.recorder.actors.actions)

    def _send_second(self, step: Step) -> None:
        """Act for the second half, with the random numbers of the same act, and start its step."""
        self.recorder.act(step, self.envs.halves[1])
        self.envs.send_half(1, self.recorder.actors.actions)

    def _take(self, half: int) -> None:
        """Receive and copy the arrays of a half; its next step overwrites them."""
        shown, kept = self.envs.recv_half(half), self._arrays[half]
        over = any(np.count_nonzero(event) for event in (shown.terminated, shown.truncated, shown.ended))
        for name, array in shown.arrays().items():
            if over or not name.startswith("final"):
                kept[name][...] = array
