"""Updates: the updates of all learners of a run, their metrics and their counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np

from marltrain.core.errors import raised_by
from marltrain.policies.agents.agent import Agent
from marltrain.trainer.events.callbacks import Events
from marltrain.trainer.events.counters import Counters
from marltrain.trainer.reporting.history import History
from marltrain.trainer.updating.scheduler import Metrics, UpdateMetrics, UpdateScheduler


class Updates:
    """Makes the updates that are due, records their metrics, and calls the callbacks.

    It owns `updates` and `gradient_steps` of the counters.
    base: gradient passes of the agents that do not belong to this run.
    made: whether this call of `train` has made an update.
    """

    def __init__(
        self,
        schedulers: Sequence[UpdateScheduler],
        counters: Counters,
        history: History,
        events: Events,
        most: int | None,
        of_sets: Callable[[], Metrics] | None,
    ) -> None:
        """Take the schedulers of all learners.

        most: budget of updates, None for no limit.  of_sets: returns the numbers of sets of policies, which are
        recorded with each update; None without sets.
        """
        self.schedulers, self._most, self.made = schedulers, most, False
        self._of_sets = of_sets
        self._counters, self._history, self._events = counters, history, events
        self._callbacks_act = bool(events.callbacks.interfering(["on_update_start", "on_update_end"]))
        self.base = self._gradient_steps() - counters.gradient_steps

    def make(self, steps: int) -> None:
        """Make the updates that are due after a collector call of `steps` batch steps."""
        for scheduler in self.schedulers:
            scheduler.count_steps(steps)
        due = [scheduler for scheduler in self.schedulers if scheduler.is_due]
        if not due:
            return
        if self._events.callbacks.listens("on_update_start"):
            # the previous round must end before the next begins, and before rows are counted: it moves priorities
            self._gather(scheduler.settle for scheduler in due)
            if any(scheduler.will_update(self._most) for scheduler in due):
                self._events.tell("on_update_start")
        metrics = self._updated(due)
        self._counters.updates = max(scheduler.updates for scheduler in self.schedulers)
        self._record(metrics)

    def _updated(self, due: Sequence[UpdateScheduler]) -> Metrics:
        """Make the updates of schedulers that are due; those that are made in actors are made at the same time."""
        defers = self._defers
        for scheduler in due:
            scheduler.defers = defers and scheduler.reads_late and scheduler.on_not_finite is None
        result = [scheduler.update(self._counters.env_steps, self._most) for scheduler in due]
        while any(scheduler.advance for scheduler in due):
            for metrics, scheduler in zip(result, due, strict=True):
                metrics.update({} if scheduler.advance is None else scheduler.advance())
        for scheduler in due:
            scheduler.times_due += 1
        parts = map(_with_lag, due, result)
        return {label: values for metrics in parts for label, values in metrics.items()}

    @property
    def _defers(self) -> bool:
        """Whether metrics may be late: those of all learners, since they are recorded together, and without a lag."""
        if self._callbacks_act:
            return False
        learning = [scheduler for scheduler in self.schedulers if scheduler.learn.any()]
        return all(scheduler.lag is None and scheduler.seated.learner.begins_updates for scheduler in learning)

    def add(self, made: Iterable[UpdateMetrics]) -> None:
        """Count updates that the collector has made, and call the callbacks for them."""
        for metrics in made:
            if len(metrics.values):
                self._events.tell("on_update_start")
                self._history.add_updates(metrics.labels, metrics.names, metrics.values)
                self._finished(metrics.by_agent(), len(metrics.values))
            if metrics.error is not None:
                raise metrics.error

    def prepare(self, scheduler: UpdateScheduler, steps: int, acting: int) -> int:
        """Prepare the updates that compiled code makes during `steps` batch steps; return the number of steps allowed.

        There are none if a callback may change agents at each update.  acting: see `UpdateScheduler.prepare_updates`.
        """
        if self._callbacks_act:
            return min(steps, scheduler.steps_left)
        return scheduler.prepare_updates(self._counters.env_steps, steps, self._most, acting)

    def drop_rollouts(self, agent: Agent) -> None:
        """Exclude the past decisions of an agent from all rollouts: its weights have been replaced."""
        for scheduler in self.schedulers:
            rows = np.array([other is agent for other in scheduler.seated.agents])
            if rows.any():
                scheduler.drop_rollouts(rows)

    def settle(self) -> None:
        """Wait for updates that overlap with collecting; afterwards agents can be tested, saved or masked."""
        self._gather(scheduler.settle for scheduler in self.schedulers)

    def wait(self) -> None:
        """Wait for updates that overlap with collecting; the agents still act with the weights before them."""
        self._gather(scheduler.wait for scheduler in self.schedulers)

    def _gather(self, works: Iterable[Callable[[], Metrics]]) -> None:
        """Call every function and record the metrics that it returns; then raise the first error, if any."""
        metrics: Metrics = {}

        def note(work: Callable[[], Metrics]) -> None:
            metrics.update(work())

        errors = [error for work in works if (error := raised_by(partial(note, work)))]
        self._record(metrics)
        if errors:
            raise errors[0]

    def _record(self, metrics: Metrics) -> None:
        if metrics:
            self._history.add_update(metrics)
            self._finished(metrics, 1)

    def _finished(self, metrics: Metrics, rounds: int) -> None:
        """Refresh the counters, add the numbers of sets of policies, and call `on_update_end`."""
        self.made = True
        if self._of_sets is not None and (of_sets := self._of_sets()):
            self._history.add_update(of_sets, rounds)
            metrics = {**metrics, **{name: {**metrics.get(name, {}), **found} for name, found in of_sets.items()}}
        self._counters.updates = max(scheduler.updates for scheduler in self.schedulers)
        self._counters.gradient_steps = self._gradient_steps() - self.base
        self._events.tell("on_update_end", metrics=metrics, rounds=rounds)

    def _gradient_steps(self) -> int:
        return sum(scheduler.gradient_steps for scheduler in self.schedulers)


def _with_lag(scheduler: UpdateScheduler, metrics: Metrics) -> Metrics:
    """Return the metrics of an update with the lag of the actions that it was the first to read, if they may lag.

    Without an update, as with too few rows, the next one is the first to read them.
    """
    if scheduler.lag is None or not metrics:
        return metrics
    lag, scheduler.lag = float(scheduler.lag), 0
    return {label: {**values, "lag": lag} for label, values in metrics.items()}
