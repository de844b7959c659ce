"""First priorities that runners compute: they rate new rows with the weights by which they act.

A runner records its env steps in streams of its own, computes the errors of the rows whose outcome became known in a
fragment, and sends them with it. The driver writes them into the memory as soon as it knows the outcomes, too. It rates
the other rows itself, such as those of an earlier call of `train`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import cloudpickle
import numpy as np

from marltrain.core.errors import ConfigError
from marltrain.core.layout import Array
from marltrain.core.spec import Step
from marltrain.envs.faults import cut_by
from marltrain.envs.workers.worker import Report, Task
from marltrain.policies.learner.row_errors import RowErrors
from marltrain.policies.memory.initial_errors import InitialErrors
from marltrain.policies.memory.needs import Column, Needs
from marltrain.policies.memory.readers import UniformReader
from marltrain.policies.memory.ring_part import RingPart
from marltrain.policies.memory.streams import Storage, Streams
from marltrain.trainer.collecting.rollout import Recorder
from marltrain.trainer.seats.team_reward import TeamRewards
from marltrain.trainer.updating.scheduler import UpdateScheduler

ROWS = 64
"""Batch steps in the streams of a runner at first; they grow where a fragment needs more."""


@dataclass(frozen=True)
class NewErrors:
    """The errors of rows whose outcome became known: agent and number (see `Chosen`) [n] int64, error [n] float32."""

    agent: Array
    number: Array
    error: Array


@dataclass(frozen=True)
class RatingTask:
    """What runners need to rate rows.

    needs: number of a learner -> its needs, without a memory.  seats: the same -> of each agent, players of the group
      whose rows it may read.  groups: the same -> its group.  columns: group -> outputs of acts that are stored.
    team_rewards: pickled by cloudpickle.
    """

    needs: Mapping[int, Needs]
    seats: Mapping[int, list[list[int]]]
    groups: Mapping[int, int]
    columns: Mapping[int, Mapping[str, Column]]
    team_rewards: bytes


class RunnerRating:
    """The streams of a runner, and the errors of their new rows."""

    def __init__(self, rating: RatingTask, task: Task, rates: Sequence[RowErrors | None]) -> None:
        """Take the task of the environments.  rates: of each learner; None for those whose rows are not rated."""
        self._rating, self._task, self._rates = rating, task, rates
        self._team_rewards: TeamRewards | None = cloudpickle.loads(rating.team_rewards)
        self._initial: dict[int, InitialErrors] = {}

    def go_to(self, parts: Mapping[int, RingPart]) -> None:
        """Go on from the driver's rows, of each group; those whose outcome is known are rated already."""
        rating, task = self._rating, self._task
        storage = {group: Storage(ROWS, columns) for group, columns in rating.columns.items()}
        self._streams = Streams(task.spec, task.high - task.low, storage)
        for group, part in parts.items():
            part.load(self._streams.rings[group])
        self._initial = {}
        for i, needs in rating.needs.items():
            ring, rate = self._streams.rings[rating.groups[i]], self._rates[i]
            if rate is not None:
                self._initial[i] = initial = InitialErrors(UniformReader(ring, rating.seats[i], needs), rate)
                initial.take()
                ring.register(initial.rows)

    def learning(self, learning: Mapping[int, Array]) -> None:
        """Set the players of each group that learn."""
        for group, players in learning.items():
            self._streams.rings[group].learning[...] = players

    def record_actions(self, actions: Sequence[Array], extras: Mapping[int, Mapping[str, Array]]) -> None:
        """Record decisions, of each group."""
        for group in self._streams.rings:
            self._streams.record_actions(group, actions[group], extras.get(group, {}))

    def record_step(self, step: Step, report: bytes) -> None:
        """Record the Step after the decisions.  report: see `Report`."""
        if len(cut := cut_by(Report.from_bytes(report).faults)):
            self._streams.abandon(cut - self._task.low)
        self._streams.record_step(step, None if self._team_rewards is None else self._team_rewards(step.reward))

    def errors(self) -> dict[int, NewErrors]:
        """Return the errors of the rows whose outcome became known since the last call, by number of the learner."""
        result = {}
        for i, initial in self._initial.items():
            agent, rows = initial.take()
            (time, player, env), size = rows.T, initial.rows.ring.group.size
            numbers = (time * size + player) * self._task.num_envs + self._task.low + env
            result[i] = NewErrors(agent, numbers, initial.rated(agent, rows))
        return result


class DriverRating:
    """The driver's side: what runners get to rate rows, and what becomes of the errors that they send."""

    def __init__(self, recorder: Recorder, rated: Mapping[int, UpdateScheduler]) -> None:
        """Take the schedulers of the rated learners, by number among those that act."""
        self._streams, self._rated = recorder.streams, rated
        self._ordered: dict[int, Array] = {}

    @classmethod
    def of(cls, recorder: Recorder, schedulers: Sequence[UpdateScheduler]) -> DriverRating | None:
        """Return None if no memory makes first priorities from errors."""
        rated: dict[int, UpdateScheduler] = {}
        for i, seated in enumerate(recorder.actors.learners):
            needs = seated.learner.needs
            if needs is not None and needs.replay is not None and needs.replay.initial_errors:
                rated.update((i, scheduler) for scheduler in schedulers if scheduler.seated is seated)
        return cls(recorder, rated) if rated else None

    def task(self, team_rewards: TeamRewards | None) -> RatingTask:
        """Return the task of the runners; raises ConfigError for rewards that cannot be sent."""
        seated = {i: scheduler.seated for i, scheduler in self._rated.items()}
        rings = {s.group: self._streams.rings[s.group] for s in seated.values()}
        needs = {i: s.learner.needs for i, s in seated.items()}
        try:
            rewards = bytes(cloudpickle.dumps(team_rewards))
        except Exception as error:
            raise ConfigError(
                f'team_reward cannot be sent to Ray actors, which compute the errors of new rows (Prioritized(initial="'
                f'error") with sync=False): {error}'
            ) from error
        return RatingTask(
            {i: replace(need, replay=None) for i, need in needs.items() if need is not None},
            {i: self._seats(scheduler) for i, scheduler in self._rated.items()},
            {i: s.group for i, s in seated.items()},
            {
                group: {name: Column(column.shape[3:], str(column.dtype)) for name, column in ring.extras.items()}
                for group, ring in rings.items()
            },
            rewards,
        )  # fmt: skip

    def parts(self) -> dict[int, RingPart]:
        """Return the rows of each group from which runners go on."""
        oldest: dict[int, int] = {}
        for scheduler in self._rated.values():
            ring = self._streams.rings[scheduler.seated.group]
            reader, group = scheduler.rating_reader, scheduler.seated.group
            needed = ring.now
            if reader is not None and reader.initial is not None:
                reader.admit()
                needed = reader.initial.rows.earliest
            oldest[group] = min(oldest.get(group, ring.now), needed)
        return {group: RingPart.of(self._streams.rings[group], time) for group, time in oldest.items()}

    def learning(self) -> dict[int, Array]:
        """Return the players of each group that learn now, and note that runners have been told of them."""
        groups = {scheduler.seated.group for scheduler in self._rated.values()}
        self._ordered = {group: self._streams.rings[group].learning.copy() for group in groups}
        return self._ordered

    @property
    def outdated(self) -> bool:
        """Whether other players learn than those that runners have been told of."""
        return any(
            not np.array_equal(data, self._streams.rings[group].learning) for group, data in self._ordered.items()
        )

    def give(self, parts: Sequence[Mapping[int, NewErrors]]) -> None:
        """Take the errors of a fragment, of all runners, in place of those of the fragment before."""
        for i, scheduler in self._rated.items():
            reader = scheduler.rating_reader
            if reader is not None and reader.initial is not None:
                reader.admit()
                own = [part[i] for part in parts]
                columns = [[getattr(one, name) for one in own] for name in ("agent", "number", "error")]
                reader.initial.send(*map(np.concatenate, columns))

    def _seats(self, scheduler: UpdateScheduler) -> list[list[int]]:
        """Return the players of the group whose rows each agent may read."""
        seated: Any = scheduler.seated
        everyone = list(range(self._streams.rings[seated.group].group.size))
        return [everyone if scheduler.shared else list(map(int, own)) for own in seated.rows]
