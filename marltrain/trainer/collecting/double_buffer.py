"""`double_buffer=True`: two halves of the environments; one half steps while agents act for the other.

The next step also begins before the run has looked at the last one, where nothing can come of that which agents would
act on: no update, no test, no hook. So every number of a run is that of stepping all environments together.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np

from marltrain.envs import VectorEnv
from marltrain.envs.workers.subproc import SubprocVectorEnv, usual_workers
from marltrain.errors import ConfigError
from marltrain.spec import Step
from marltrain.trainer.callbacks import CallbackList
from marltrain.trainer.collecting.rollout import Recorder
from marltrain.trainer.seats import Unit
from marltrain.trainer.settings import TrainerSettings

CALLER = 7
"""Frames from a warning here to the call of `train` that it is about."""
ADVICE = 'use vector="subproc" with at least 2 workers and 2 environments, or leave double_buffer out'


def check_places(settings: TrainerSettings) -> None:
    """Raise ConfigError where the environments cannot be halved by their workers."""
    if not settings.double_buffer:
        return
    workers = settings.num_workers or usual_workers(settings.num_train_envs)
    lacking = (
        f'vector="{settings.vector}"' if settings.vector != "subproc"
        else f"num_train_envs={settings.num_train_envs}" if settings.num_train_envs < 2
        else f"{workers} worker" if workers < 2
        else ""
    )  # fmt: skip
    if lacking:
        raise ConfigError(f"double_buffer=True steps two halves of the environments in turn, not {lacking}: {ADVICE}")


def check_agents(units: Iterable[Unit]) -> None:
    """Raise ConfigError for agents that cannot decide for half of the environments before the other half."""
    for unit in units:
        if not unit.learner.acts_ahead:
            raise ConfigError(
                "double_buffer=True needs agents of marltrain's own algorithms, over NetworkSpecs; the agent of "
                f"{' and '.join(unit.labels)} is none. Leave double_buffer out"
            )


def nobody_interferes(callbacks: CallbackList) -> bool:
    """Return whether no callback may change at every step what agents act by; warn of the one that may."""
    if found := callbacks.interfering(("on_step", "on_collect", "on_episode_start", "on_episode_end")):
        warnings.warn(
            f"double_buffer=True speeds nothing up: {found} may change what agents act by, and no half goes ahead of "
            "it. Set only_watches = True in its class if it changes nothing",
            stacklevel=CALLER,
        )
    return not found


class DoubleBufferedCollector:
    """One batch step at a time, as `SyncCollector`, of which the next may have begun when it is returned.

    remembered, plans: never; see `SyncCollector`.
    under_way: whether it has. The environments, and the agents' random streams, are at rest where it has not.
    receive: calls what it is given, which returns a Step, and tells of faults.
    episodes_left: returns how many episodes may end before something is due that looks at the run, or changes it.
    """

    remembered = plans = False

    def __init__(
        self,
        envs: VectorEnv,
        collector: Recorder,
        receive: Callable[[Callable[[], Step]], Step],
        episodes_left: Callable[[], int],
    ) -> None:
        """Take what acts and remembers, and what steps."""
        if not isinstance(envs, SubprocVectorEnv):
            raise TypeError("only environments in worker processes are stepped in halves: ask `check_places` first")
        self.envs, self.collector, self.receive, self.episodes_left = envs, collector, receive, episodes_left
        self.under_way = False
        self._later = envs.num_envs - envs.halves[1].start
        self._step = Step.empty(envs.spec, envs.num_envs)
        self._parts = [self._step.part(half.start, half.stop) for half in envs.halves]
        self._arrays = [part.arrays() for part in self._parts]

    def advance(self, step: Step, most: int) -> tuple[Step, int]:
        """See `SyncCollector`. Where `most` is 1, everything is at rest afterwards."""
        if not self.under_way:
            self._send(step)
        self.collector.remember()
        return self.receive(partial(self._received, most)), 1

    def _received(self, most: int) -> Step:
        """Take what the halves show, and begin the next step of each meanwhile, where nothing can come in between."""
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
        """Decide for all, and begin the step of all."""
        self.collector.act(step)
        for half in (0, 1):
            self.envs.send_half(half, self.collector.actors.actions)

    def _send_first(self, step: Step) -> None:
        """Decide for the first half; what the others see is of the step before, and what they decide is dropped.

        All rows are computed, for a product of fewer of them may differ in its last bits.
        """
        self.collector.act(step, self.envs.halves[0])
        for unit in self.collector.actors.units:
            unit.learner.take_back()
        self.envs.send_half(0, self.collector.actors.actions)

    def _send_second(self, step: Step) -> None:
        """Decide for the second half, by the noise of the same act."""
        self.collector.act(step, self.envs.halves[1])
        self.envs.send_half(1, self.collector.actors.actions)

    def _take(self, half: int) -> None:
        """Copy what a half shows, which its next step overwrites."""
        shown, kept = self.envs.recv_half(half), self._arrays[half]
        over = any(np.count_nonzero(event) for event in (shown.terminated, shown.truncated, shown.ended))
        for name, array in shown.arrays().items():
            if over or not name.startswith("final"):
                kept[name][...] = array
