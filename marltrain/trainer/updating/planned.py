"""PlannedScheduler: updates that compiled code makes between the batch steps of one collector call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from marltrain.errors import AgentError
from marltrain.layout import Array
from marltrain.policies.learner.update_plan import DueUpdates
from marltrain.policies.memory.streams import Streams
from marltrain.trainer.seats import LearnerSeats
from marltrain.trainer.updating.pace import Defaults
from marltrain.trainer.updating.scheduler import UpdateMetrics, UpdateScheduler, not_finite, rngs_of

if TYPE_CHECKING:
    from marltrain.policies.compiled.replay_update import CompiledUpdates

MOST_PLANNED = 64
"""Maximum rounds of a plan, and maximum updates of several rounds; it bounds the latency of a stop request."""


class PlannedScheduler(UpdateScheduler):
    """Scheduler of an off-policy learner; it plans updates for compiled code if the learner has compiled updates."""

    def __init__(self, seated: LearnerSeats, streams: Streams, num_envs: int, defaults: Defaults) -> None:
        """Start without a plan."""
        super().__init__(seated, streams, num_envs, defaults)
        self._compiled: CompiledUpdates | None = None
        self._steps = 0  # batch steps since the plan was made

    def learning(self, mask: Array) -> None:
        """Set the players that learn, [P] bool; the plan is dropped."""
        before = self._reader
        super().learning(mask)
        if self._reader is None:
            self._compiled = None
        elif self._reader is not before:
            self._compiled = self.seated.learner.compiled_updates(self._reader, self.pace.batch_size or 1)
        elif self._compiled is not None:
            self._compiled.drop()

    def gathered(self, steps: int) -> bool:
        """Count batch steps; return whether an update is due."""
        self._steps += steps
        return super().gathered(steps)

    def plan(self, env_steps: int, steps: int, most: int | None, act: int) -> int:
        """See `UpdateScheduler`."""
        compiled, self.address = self._compiled, 0
        if compiled is None or not (compiled.pending or self._plan(compiled, env_steps, most, act)):
            return super().plan(env_steps, steps, most, act)
        self.address = compiled.address
        compiled.begin(self._steps)
        return min(steps, compiled.rounds[-1].after - self._steps)

    def _plan(self, compiled: CompiledUpdates, env_steps: int, most: int | None, act: int) -> bool:
        """Plan the next rounds; return whether there are any.

        The round that reaches `most` updates, and all later rounds, are left out.
        """
        compiled.drop()
        if not compiled.possible(self.learn):
            return False
        left, every = self.steps_left, -(-(self.pace.update_freq or 1) // self.num_envs)
        gathered, ready = self._gathered + self.num_envs * left, self._started(left)
        rounds: list[DueUpdates] = []
        made, credit = self.updates, self._credit
        for after in range(left, left + MOST_PLANNED * every, every):
            due, credit = self._due(credit, gathered) if ready.any() else (0, credit)
            made, gathered = made + due, self.num_envs * every
            if (most is not None and made >= most) or (rounds and made - self.updates > MOST_PLANNED):
                break
            if (ready != self._started(after)).any():
                break
            rounds.append(DueUpdates(after, env_steps + self.num_envs * after, due, credit))
        if rounds:
            compiled.plan(rounds, ready, rngs_of(self.seated, ready), act)
            self._steps = 0
        return bool(rounds)

    def take(self) -> UpdateMetrics | None:
        """See `UpdateScheduler`; call it before `gathered` counts the batch steps of the call."""
        compiled = self._compiled
        if compiled is None or not compiled.rounds or not (made := compiled.take()).rounds:
            return None
        last = made.rounds[-1]
        self._gathered = self.num_envs * (
            self._steps - last.after
        )  # `gathered` adds the steps up to the last round, too
        self._credit = last.credit
        self.updates += len(made.measured)
        self.seated.learner.apply_schedules(last.env_steps)
        error: AgentError | None = None
        if made.broken:
            measured = dict(zip(made.names, made.measured[-1], strict=False))
            error = not_finite(self.seated, measured, compiled.learn, self.updates, last.env_steps)
        labels = tuple(label for label, learns in zip(self.seated.labels, compiled.learn, strict=True) if learns)
        return UpdateMetrics(labels, made.names, made.means()[..., compiled.learn], error)

    def update(self, env_steps: int, most: int | None = None) -> dict[str, dict[str, float]]:
        """Make the updates that are due, in compiled code if they are planned; see `UpdateScheduler`."""
        compiled = self._compiled
        if compiled is None or not compiled.pending:
            return super().update(env_steps, most)
        compiled.begin(self._steps)
        compiled.make()
        learned = self.take()
        if learned is not None and learned.error is not None:
            raise learned.error
        return {} if learned is None else learned.by_agent()
