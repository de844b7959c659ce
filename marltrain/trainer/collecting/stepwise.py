"""SyncCollector: one batch step at a time, for any environment."""

from __future__ import annotations

from collections.abc import Callable

from marltrain.envs import VectorEnv
from marltrain.spec import Step
from marltrain.trainer.collecting.rollout import Recorder


class SyncCollector:
    """Makes one batch step at a time: all agents act, then all environments step.

    receive: returns the Step that `envs.send` started.
    under_way: whether environments still step when `advance` returns; always False here.
    remembered: whether the streams and the returns already contain the returned Step; always False here.
    plans: whether the collector plans the updates itself; always False here.
    """

    under_way = remembered = plans = False

    def __init__(self, envs: VectorEnv, collector: Recorder, receive: Callable[[], Step]) -> None:
        """Take the environments, the recorder and the function that receives a Step."""
        self.envs, self.collector, self.receive = envs, collector, receive

    def advance(self, step: Step, most: int) -> tuple[Step, int]:
        """Act on a Step and make at most `most` batch steps; return the last Step and the number of steps made.

        All earlier Steps are recorded in the streams; the returned Step is recorded only if `remembered` is True.
        """
        self.envs.send(self.collector.decide(step))
        return self.receive(), 1
