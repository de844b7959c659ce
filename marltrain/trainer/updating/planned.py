"""PlannedScheduler: updates that compiled code makes between the batch steps of one collector call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from marltrain.core.errors import AgentError
from marltrain.core.layout import Array
from marltrain.policies.learner.learner import UpdateSchedule
from marltrain.policies.learner.update_plan import DueUpdates
from marltrain.policies.memory.streams import Streams
from marltrain.trainer.seats.seats import Seats
from marltrain.trainer.updating.scheduler import UpdateMetrics, UpdateScheduler, not_finite, rngs_of
from marltrain.trainer.updating.update_schedule import Defaults, batch_steps_left, updates_due

if TYPE_CHECKING:
    from marltrain.policies.learner.planned.planned_updates import PlannedUpdates

MOST_PLANNED = 64
"""Maximum rounds of a plan, and maximum updates of several rounds; it bounds the latency of a stop request."""


class PlannedScheduler(UpdateScheduler):
    """Scheduler of a learner whose updates compiled code can make; it plans them, see `Learner.obstacle`."""

    plans = True

    def __init__(self, seated: Seats, streams: Streams, num_envs: int, defaults: Defaults) -> None:
        """Start without a plan."""
        super().__init__(seated, streams, num_envs, defaults)
        self._compiled: PlannedUpdates | None = None
        self._plan_steps = 0  # batch steps since the plan was made

    def set_learning(self, mask: Array) -> None:
        """Set the players that learn, [P] bool; the plan is dropped."""
        before = self._reader
        super().set_learning(mask)
        if self._reader is None:
            self._compiled = None
        elif self._reader is not before:
            self._compiled = self.seated.learner.planned_updates(self._reader, self._batch_size())
        elif self._compiled is not None:
            self._compiled.drop_plan()

    def count_steps(self, steps: int) -> None:
        """Count batch steps that have been made."""
        self._plan_steps += steps
        super().count_steps(steps)

    def prepare_updates(self, env_steps: int, steps: int, most: int | None, acting: int) -> int:
        """See `UpdateScheduler`."""
        compiled, self.address = self._compiled, 0
        if compiled is None or not (compiled.pending or self._new_plan(compiled, env_steps, most, acting)):
            return super().prepare_updates(env_steps, steps, most, acting)
        self.address = compiled.address
        compiled.prepare_call(self._plan_steps)
        return min(steps, compiled.plan[-1].after - self._plan_steps)

    def _new_plan(self, compiled: PlannedUpdates, env_steps: int, most: int | None, acting: int) -> bool:
        """Plan the next rounds; return whether there are any."""
        compiled.drop_plan()
        if compiled.batch_size != (batch_size := self._batch_size()):
            compiled.resize(batch_size)
        if not compiled.can_draw(self.learn):
            return False
        budget = None if most is None else most - self.updates
        plan = due_rounds(
            self.update_schedule,
            self.num_envs,
            self._steps_since_update,
            self._credit,
            env_steps,
            budget,
            self._started,
        )
        if not plan:
            return False
        ready, self._plan_steps = self._started(plan[0].after), 0
        return compiled.set_plan(plan, ready, rngs_of(self.seated, ready), acting)

    def take_metrics(self) -> UpdateMetrics | None:
        """See `UpdateScheduler`; call it before `count_steps` counts the batch steps of the call."""
        compiled = self._compiled
        if compiled is None or not compiled.plan or not (results := compiled.take_results()).rounds:
            return None
        last = results.rounds[-1]
        # `count_steps` adds the batch steps up to the last round, too
        self._steps_since_update = self.num_envs * (self._plan_steps - last.after)
        self._credit = last.credit
        self.updates += len(results.measured)
        self.seated.learner.apply_schedules(last.env_steps)
        error: AgentError | None = None
        if results.broken:
            measured = dict(zip(results.names, results.measured[-1], strict=False))
            error = not_finite(
                self.seated, measured, results.skipped, compiled.learn, self.updates, last.env_steps
            )  # fmt: skip
        labels = tuple(label for label, learns in zip(self.seated.labels, compiled.learn, strict=True) if learns)
        return UpdateMetrics(labels, results.names, results.means()[..., compiled.learn], error)

    def update(self, env_steps: int, most: int | None = None) -> dict[str, dict[str, float]]:
        """Make the updates that are due, in compiled code if they are planned; see `UpdateScheduler`."""
        compiled = self._compiled
        if compiled is None or not compiled.pending:
            return super().update(env_steps, most)
        compiled.prepare_call(self._plan_steps)
        compiled.make_round()
        metrics = self.take_metrics()
        if metrics is not None and metrics.error is not None:
            raise metrics.error
        return {} if metrics is None else metrics.by_agent()


def due_rounds(
    schedule: UpdateSchedule, num_envs: int, since_update: int, credit: float, env_steps: int, budget: int | None,
    started: Callable[[int], Array],
) -> list[DueUpdates]:  # fmt: skip
    """Return the next rounds of updates, at most `MOST_PLANNED`.

    It stops before the round that reaches `budget` updates, and before the round at which an agent starts to learn.
    since_update: env steps since the last update.  credit: fraction of an update carried over from it.
    env_steps: env steps of the run.  started: batch steps from now -> the agents that learn by then, [K] bool.
    """
    first, every = batch_steps_left(schedule, num_envs, since_update), batch_steps_left(schedule, num_envs)
    ready, steps = started(first), since_update + num_envs * first
    plan: list[DueUpdates] = []
    updates = total = 0
    for after in range(first, first + MOST_PLANNED * every, every):
        if ready.any():
            updates, credit = updates_due(schedule, credit, steps)
        total, steps = total + updates, num_envs * every
        if (budget is not None and total >= budget) or (plan and total > MOST_PLANNED):
            break
        if (ready != started(after)).any():
            break
        plan.append(DueUpdates(after, env_steps + num_envs * after, updates, credit))
    return plan
