"""SyncCollector: one batch step at a time, for any environment."""

from __future__ import annotations

from collections.abc import Callable

from marltrain.envs import VectorEnv
from marltrain.spec import Step
from marltrain.trainer.collecting.rollout import Recorder


class SyncCollector:
    """One batch step at a time: everybody acts, then every environment steps.

    receive: returns the Step that `envs.send` started.
    under_way: whether some environments are, so that a run is not at rest between two steps; never here.
    remembered: whether the steps are already in the streams and in the returns; always False here.
    plans: whether it sees to it itself that updates are made when they are due; never here.
    """

    under_way = remembered = plans = False

    def __init__(self, envs: VectorEnv, collector: Recorder, receive: Callable[[], Step]) -> None:
        """Take what acts and remembers, and what steps."""
        self.envs, self.collector, self.receive = envs, collector, receive

    def advance(self, step: Step, most: int) -> tuple[Step, int]:
        """Act on a Step, and make at most `most` batch steps; return the last Step and how many were made.

        What came before the returned Step is remembered; what it tells of is not, unless `remembered` says so.
        """
        self.envs.send(self.collector.decide(step))
        return self.receive(), 1
