"""`collect="overlap"`: AsyncScheduler makes updates in a thread while the loop collects."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager

from marltrain.core.layout import Array
from marltrain.policies.batches.batch import Rollout, Transitions
from marltrain.policies.memory.streams import Streams
from marltrain.trainer.seats.seats import Seats
from marltrain.trainer.updating.scheduler import UpdateScheduler
from marltrain.trainer.updating.update_schedule import Defaults

TURN = 2e-4
"""Switch interval of Python threads in seconds. The default of 5 ms delays gradient passes, which run mostly outside
Python and only need it for moments."""


@contextmanager
def learning_thread(collect: str) -> Iterator[Executor | None]:
    """Yield the thread for updates, or None for collect="serial"; wait for the thread at the end."""
    if collect == "serial":
        yield None
        return
    before = sys.getswitchinterval()
    sys.setswitchinterval(TURN)
    try:
        with ThreadPoolExecutor(1, thread_name_prefix="marltrain-learning") as thread:
            yield thread
    finally:
        sys.setswitchinterval(before)


class AsyncScheduler(UpdateScheduler):
    """Scheduler whose updates run in a thread while the loop collects; agents act one update behind.

    `update` starts the updates that are due and returns the metrics of the previous ones.
    """

    reads_late = False  # the thread waits for the metrics

    def __init__(self, seated: Seats, streams: Streams, num_envs: int, defaults: Defaults, thread: Executor) -> None:
        """Let the agents act with copies of their networks; raises ConfigError if the learner does not support it."""
        super().__init__(seated, streams, num_envs, defaults)
        self._thread = thread
        self._under_way: Future[dict[str, dict[str, float]]] | None = None
        self._gradient_steps = 0  # before the updates under way
        self._copies = seated.learner.fork(seated.who, self._rest)

    @property
    def gradient_steps(self) -> int:
        """Number of gradient passes of the agents, without those of updates under way."""
        return super().gradient_steps if self._under_way is None else self._gradient_steps

    def wait(self) -> dict[str, dict[str, float]]:
        """See `UpdateScheduler`."""
        if self._under_way is None:
            return {}
        metrics = self._under_way.result()
        self._under_way, self._behind = None, True
        return metrics

    def settle(self) -> dict[str, dict[str, float]]:
        """See `UpdateScheduler`."""
        metrics = self.wait()
        if self._behind:
            self._copies.sync()
            self._behind = False
        return metrics

    def close(self) -> None:
        """Let the agents act with the networks that are trained."""
        self._copies.end()

    def _make(
        self, batches: Iterable[tuple[int, Rollout | Transitions]], ready: Array, env_steps: int
    ) -> dict[str, dict[str, float]]:
        """Start one update for each batch; the batches are read before the environments go on."""
        self._gradient_steps = self.gradient_steps
        self._under_way = self._thread.submit(super()._make, list(batches), ready, env_steps)
        return {}

    def _rest(self) -> None:
        """Wait for the updates under way; an error of theirs is not raised here."""
        if self._under_way is not None:
            wait([self._under_way])
