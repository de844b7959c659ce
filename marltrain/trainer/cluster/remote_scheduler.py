"""RemoteScheduler: the updates of a learner are made in actors, at the same time as those of other learners."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from functools import partial

from marltrain.core.layout import Array
from marltrain.policies.batches.batch import Rollout, Transitions
from marltrain.policies.learner.learner import BegunUpdate
from marltrain.policies.memory.streams import Streams
from marltrain.trainer.cluster.learners import LearnerActors
from marltrain.trainer.cluster.remote_learner import RemoteLearner
from marltrain.trainer.seats.seats import Seats
from marltrain.trainer.updating.scheduler import Metrics, UpdateScheduler, by_agent
from marltrain.trainer.updating.update_schedule import Defaults, batch_size_of


class RemoteScheduler(UpdateScheduler):
    """Scheduler of a learner whose updates actors make; memory and sampling stay in this process.

    `update` orders the first update of a round; `advance` waits for it and orders the next.
    """

    gathers_on_device = False  # actors get arrays
    reads_late = False

    def __init__(
        self, seated: Seats, streams: Streams, num_envs: int, defaults: Defaults, remote: RemoteLearner,
        actors: LearnerActors,
    ) -> None:  # fmt: skip
        """Start without an update under way."""
        super().__init__(seated, streams, num_envs, defaults)
        self._remote, self._actors = remote, actors

    def settle(self) -> Metrics:
        """See `UpdateScheduler`: finish a round that an error elsewhere has left, unless the run is to end at once."""
        metrics: Metrics = {}
        if self._actors.leaving():
            self.advance = None
        while self.advance is not None:
            metrics = self.advance()
        return metrics

    def close(self) -> None:
        """Take the agents back."""
        self._remote.close()

    def _make(self, batches: Iterable[tuple[int, Rollout | Transitions]], ready: Array, env_steps: int) -> Metrics:
        """Order the first update."""
        self._actors.clock = env_steps
        return self._advanced(self._updates(batches, ready, env_steps))

    def _advanced(self, updates: Generator[None, None, Metrics]) -> Metrics:
        """Go on to where there is something to wait for; return the metrics at the end."""
        self.advance = None
        try:
            next(updates)
        except StopIteration as end:
            metrics: Metrics = end.value
            return metrics
        self.advance = partial(self._advanced, updates)
        return {}

    def _updates(
        self, batches: Iterable[tuple[int, Rollout | Transitions]], ready: Array, env_steps: int
    ) -> Generator[None, None, Metrics]:
        """Make one update for each batch; yield where there is something to wait for."""
        rounds, rows = [], batch_size_of(self.seated.learner.update_schedule, self.defaults)
        for number, batch in batches:
            self._remote.order(batch, ready, rows)
            yield
            begun = BegunUpdate(partial(dict, self._remote.result()), self.seated.learner.skipped)
            rounds.append(self._finish_update(begun, self._of_rows(), batch, number, ready, env_steps))
        if rounds:
            self._remote.order_weights()
            yield
            self._remote.take_weights()
        return by_agent(self.seated.labels, rounds, ready)
