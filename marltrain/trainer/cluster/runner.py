"""The class that runs in the actor of a runner: environments, and agents that act in them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from types import SimpleNamespace

import numpy as np

from marltrain.core.layout import Array
from marltrain.core.spec import Step
from marltrain.envs.rotating import RotatingVectorEnv
from marltrain.envs.vector import VectorEnv
from marltrain.envs.workers.ray_worker import EnvActor
from marltrain.envs.workers.shared import Block
from marltrain.envs.workers.worker import Order, WorkerFailure, answer
from marltrain.policies.agents.agent_learner import each_array
from marltrain.trainer.cluster.acting_learner import ActingLearner
from marltrain.trainer.cluster.acting_set import ActingSet
from marltrain.trainer.cluster.columns import Columns
from marltrain.trainer.cluster.initial_priorities import RunnerRating
from marltrain.trainer.cluster.messages import Acting, ActingTasks, Fragment, Request, Start
from marltrain.trainer.cluster.stepped_envs import HeldMatchesVectorEnv, SteppedEnvs
from marltrain.trainer.collecting.rollout import Actors, check_extras
from marltrain.trainer.seats.seats import LearnerSeats


class RunnerActor(EnvActor):
    """A runner: an `EnvActor` that also acts."""

    _step: Step

    def collect(self, request: Request, acting: Sequence[Acting | None]) -> Fragment:
        """Collect a fragment: act, step, and keep everything, without learning."""
        try:
            return self._collected(request, acting)
        except Exception as error:
            return Fragment.failed(WorkerFailure.of(error), of_agents=True)

    def _collected(self, request: Request, acting: Sequence[Acting | None]) -> Fragment:
        if request.acting_tasks is not None:
            self._take(request.acting_tasks)
        for i, news in request.members.items():
            self._sets[i].take(news)
        if request.start is not None:
            self._go_to(request.start)
        actors, block, steps, rating = self._actors, self._block, request.steps, self._rating
        if rating is not None:
            rating.learning(request.learning)
        self._load(acting)
        actors.exploring = [explore.reshape(len(explore), -1) for explore in request.explore]
        extras = {
            group: {name: np.zeros((steps, *shape), dtype) for name, (shape, dtype) in kept.items()}
            for group, kept in self._extras.items()
        }
        outcomes = np.empty((steps, len(block.outcome)), np.uint8)
        actions = np.empty((steps, len(self._chosen.actions)), np.uint8)
        reports: dict[int, bytes] = {}
        begun = time.monotonic()
        for t in range(steps):
            self._cast(request.begun[t], everywhere=t == 0 and request.start is not None)
            for task, seated, view, acted in zip(
                self._tasks, actors.learners, actors.views, actors.decide(self._step), strict=True
            ):
                kept = extras.get(seated.group, {})
                if t == 0:
                    check_extras(task.who, task.needed, acted)
                for name, values in acted.extras.items():
                    if name in kept:
                        view.put(kept[name][t], values)
            self._envs.send(actors.actions)
            actions[t] = self._chosen.actions
            if rating is not None:
                now = {group: {name: array[t] for name, array in kept.items()} for group, kept in extras.items()}
                rating.record_actions(actors.actions, now)
            given = answer(self._chunk, self._task, self._games.sent, Order(t))
            if given.failure is not None:
                return Fragment.failed(given.failure, of_agents=False)
            if given.data:
                reports[t] = given.data
            outcomes[t], self._step = block.outcome, self._envs.recv()
            if rating is not None:
                rating.record_step(self._step, given.data)
        errors = {} if rating is None else rating.errors()
        seconds = time.monotonic() - begun
        for learner in self._learners:
            learner.settle()
        return Fragment(
            outcomes, actions, self._by_game(extras), reports,
            tuple(
                each_array(carry, partial(_by_seat, seats=view.seats))
                for carry, view in zip(actors.carries, actors.views, strict=True)
            ),
            tuple(learner.counts for learner in self._learners),
            tuple(learner.generators for learner in self._learners),
            self._chunk.snapshot(), seconds, errors,
        )  # fmt: skip

    def _by_game(self, extras: Mapping[int, dict[str, Array]]) -> Mapping[int, Mapping[str, Array]]:
        """Return outputs of acts [T, P * M, W, ...] as those of the game's players [T, P, n, ...]."""
        if self._columns.matches == 1:
            return extras
        by_game = self._columns.by_game
        return {
            group: {name: np.stack([by_game(now) for now in array]) for name, array in kept.items()}
            for group, kept in extras.items()
        }

    def _load(self, acting: Sequence[Acting | None]) -> None:
        """Act by what was sent."""
        for learner, state in zip(self._learners, acting, strict=True):
            if isinstance(learner, ActingLearner) and state is not None:
                learner.load(state)
        for each in self._sets.values():
            each.load(self._learners)

    def _cast(self, begun: Array, *, everywhere: bool) -> None:
        """Let members [sets, n] play the episodes that have just begun, or all of them."""
        ended = self._block.arrays.step.ended
        where = slice(None) if everywhere else ended
        for numbers, own in zip(self._numbers, begun, strict=True):
            numbers[where] = own[where]

    def _go_to(self, start: Start) -> None:
        """Act from a given state on, in place of the end of the last fragment."""
        actors = self._actors
        if start.outcome is not None:
            self._block.outcome[...] = start.outcome
        self._step, _ = self._envs.restore({})
        actors.rngs = [learner.draw_from(states) for learner, states in zip(self._learners, start.rngs, strict=True)]
        actors.carries = [each_array(carry, _flat) for carry in start.carries]
        if self._rating is not None:
            self._rating.go_to(start.rows)

    def _take(self, acting_tasks: ActingTasks) -> None:
        """Build the learners of a run."""
        task, matches = self._task, max(1, len(acting_tasks.matches))
        self._columns = columns = Columns(task.low, task.high, task.num_envs // matches, matches)
        self._tasks = acting_tasks.tasks
        self._numbers = np.zeros((acting_tasks.sets, task.high - task.low), np.int64)
        self._sets = {
            i: ActingSet(each, columns, self._numbers[each.follows])
            for i, each in enumerate(acting_tasks.tasks) if each.follows >= 0
        }  # fmt: skip
        self._learners = [
            self._sets[i] if i in self._sets else ActingLearner(each, columns)
            for i, each in enumerate(acting_tasks.tasks)
        ]
        seats = [
            LearnerSeats(
                learner, each.group, [SimpleNamespace(identity=each.identity)],  # type: ignore[arg-type, list-item]
                each.players, each.rows, each.names, each.frozen,
            )
            for learner, each in zip(self._learners, acting_tasks.tasks, strict=True)
        ]  # fmt: skip
        self._see(acting_tasks, columns)
        self._actors = Actors(self._envs.spec, seats, columns.width, "act")
        if matches == 1:
            self._actors.actions = self._chosen.arrays.actions
        self._rating = None
        if (rating := acting_tasks.rating) is not None:
            rates = [
                learner.rate if i in rating.needs and isinstance(learner, ActingLearner) else None
                for i, learner in enumerate(self._learners)
            ]
            self._rating = RunnerRating(rating, task, rates)
        self._extras = {
            group: {name: ((shape[0], columns.width, *shape[2:]), dtype) for name, (shape, dtype) in kept.items()}
            for group, kept in acting_tasks.extras.items()
        }

    def _see(self, acting_tasks: ActingTasks, columns: Columns) -> None:
        """See the environments by entries of the line-up, where these change seats, and by match.

        The actions that are sent, `_chosen`, are those by entry.
        """
        task = self._task
        self._games = SteppedEnvs(task, self._chunk, self._block.arrays.step)
        self._envs: VectorEnv = self._games
        self._chosen = self._block
        if acting_tasks.rotation is not None:
            self._envs = RotatingVectorEnv(self._games, acting_tasks.rotation, task.low)
            self._chosen = Block.empty(task.spec, task.high - task.low)
        if acting_tasks.matches:
            actions = self._chosen.arrays.actions
            self._envs = HeldMatchesVectorEnv(self._envs, acting_tasks.matches, columns, actions)


def _flat(array: Array) -> Array:
    """Return [K, S, n, ...] as [K, S * n, ...]."""
    return array.reshape(len(array), -1, *array.shape[3:])


def _by_seat(array: Array, seats: int) -> Array:
    """Return [K, S * n, ...] as [K, S, n, ...]."""
    return array.reshape(len(array), seats, -1, *array.shape[2:])
