"""The class that runs in the actor of a runner: environments, and agents that act in them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.core.seeds import restored, state_of
from marltrain.envs.workers.ray_worker import EnvActor
from marltrain.envs.workers.worker import Order, WorkerFailure, answer
from marltrain.policies.backends import make_backend
from marltrain.policies.batches.batch import Acted, ActInputs
from marltrain.policies.hyperparameters.stacked import StackedHyperparameters
from marltrain.policies.learner.actor import Actor, Noise
from marltrain.policies.learner.row_errors import RowErrors
from marltrain.policies.learner.weights import Weights
from marltrain.trainer.cluster.initial_priorities import RunnerRating
from marltrain.trainer.cluster.messages import Acting, ActingTask, ActingTasks, Fragment, Request, Start
from marltrain.trainer.collecting.rollout import Actors, check_extras
from marltrain.trainer.seats.seats import LearnerSeats


class ActingLearner:
    """Acting of one learner in environments `low` to `high` of `num_envs`.

    Noise is drawn for all environments, as in one process; the rows of its own are used.
    """

    def __init__(self, task: ActingTask, num_envs: int, low: int, high: int) -> None:
        """Build the networks; `load` sets their weights."""
        algorithm, backend = task.algorithm(), make_backend(task.backend, "cpu")
        self.weights = Weights(algorithm, backend, task.num_agents, None)
        self.hyper = StackedHyperparameters(algorithm.settings, algorithm.name, task.num_agents, backend)
        self.actor = Actor(algorithm, backend, self.hyper, None)
        self.actor.use(self.weights.nets, self.weights.statistics)
        self._generators: list[np.random.Generator] = []
        seats, own = task.rows.shape[1], high - low

        def draw(rngs: Sequence[np.random.Generator], rows: int) -> dict[str, Array]:
            acts = rows // (seats * own)
            drawn = algorithm.noise(rngs, acts * seats * num_envs)
            cut = {}
            for name, values in drawn.items():
                shape = values.shape[2:]
                mine = values.reshape(len(values), acts * seats, num_envs, *shape)[:, :, low:high]
                cut[name] = np.ascontiguousarray(mine.reshape(len(values), rows, *shape))
            return cut

        self.actor.noise = Noise(draw, ahead=self.actor.noise.ahead)

    def load(self, acting: Acting) -> None:
        """Take what the learner acts by in a fragment."""
        backend = self.weights.backend
        for name, flat in acting.nets.items():
            self.weights.nets[name].assign(backend.tensor(flat))
            self.weights.nets[name].discard_copies()
        for name, values in acting.statistics.items():
            for key, value in self.weights.statistics[name].values().items():
                value[...] = values[key]
        self.hyper.adapt(acting.hyper, np.ones(self.actor.counts.shape[0], bool))
        self.actor.counts[...] = acting.counts

    def draw_from(self, states: Sequence[dict[str, Any]]) -> list[np.random.Generator]:
        """Take the states of the generators; return the generators of the acts."""
        self.actor.noise.settle()
        self._generators = [restored(state) for state in states]
        return self._generators

    @property
    def rate(self) -> RowErrors:
        """What computes the errors of transitions by the weights of `load`."""
        return RowErrors(self.actor.algorithm, self.weights.backend, self.weights, self.hyper)

    def rngs(self, purpose: str) -> list[np.random.Generator]:
        """Return the generators."""
        return self._generators

    def act(self, inputs: ActInputs, *, turn: Array, rngs: Any) -> Acted:
        """See `AlgorithmLearner`."""
        return self.actor.act(inputs, rngs)


class RunnerActor(EnvActor):
    """A runner: an `EnvActor` that also acts."""

    def collect(self, request: Request, acting: Sequence[Acting]) -> Fragment:
        """Collect a fragment: act, step, and keep everything, without learning."""
        try:
            return self._collected(request, acting)
        except Exception as error:
            return Fragment.failed(WorkerFailure.of(error), of_agents=True)

    def _collected(self, request: Request, acting: Sequence[Acting]) -> Fragment:
        if request.acting_tasks is not None:
            self._take(request.acting_tasks)
        if request.start is not None:
            self._go_to(request.start)
        actors, block, steps, rating = self._actors, self._block, request.steps, self._rating
        if rating is not None:
            rating.learning(request.learning)
        for learner, state in zip(self._learners, acting, strict=True):
            learner.load(state)
        actors.exploring = [explore.reshape(len(explore), -1) for explore in request.explore]
        extras = {
            group: {name: np.zeros((steps, *shape), dtype) for name, (shape, dtype) in kept.items()}
            for group, kept in self._extras.items()
        }
        outcomes = np.empty((steps, len(block.outcome)), np.uint8)
        actions = np.empty((steps, len(block.actions)), np.uint8)
        reports: dict[int, bytes] = {}
        begun = time.monotonic()
        for t in range(steps):
            for task, seated, view, acted in zip(
                self._tasks, actors.learners, actors.views, actors.decide(block.arrays.step), strict=True
            ):
                kept = extras.get(seated.group, {})
                if t == 0:
                    check_extras(task.who, task.needed, acted)
                for name, values in acted.extras.items():
                    if name in kept:
                        view.put(kept[name][t], values)
            actions[t] = block.actions
            if rating is not None:
                now = {group: {name: array[t] for name, array in kept.items()} for group, kept in extras.items()}
                rating.record_actions(block.arrays.actions, now)
            given = answer(self._chunk, self._task, block.arrays.actions, Order(t))
            if given.failure is not None:
                return Fragment.failed(given.failure, of_agents=False)
            if given.data:
                reports[t] = given.data
            outcomes[t] = block.outcome
            if rating is not None:
                rating.record_step(block.arrays.step, given.data)
        errors = {} if rating is None else rating.errors()
        seconds = time.monotonic() - begun
        for learner in self._learners:
            learner.actor.noise.settle()
        return Fragment(
            outcomes, actions, extras, reports,
            tuple(
                carry and {name: _by_seat(array, view.seats) for name, array in carry.items()}
                for carry, view in zip(actors.carries, actors.views, strict=True)
            ),
            tuple(learner.actor.counts for learner in self._learners),
            tuple([state_of(rng) for rng in learner.rngs("act")] for learner in self._learners),
            self._chunk.snapshot(), seconds, errors,
        )  # fmt: skip

    def _go_to(self, start: Start) -> None:
        """Act from a given state on, in place of the end of the last fragment."""
        actors = self._actors
        if start.outcome is not None:
            self._block.outcome[...] = start.outcome
        actors.rngs = [learner.draw_from(states) for learner, states in zip(self._learners, start.rngs, strict=True)]
        actors.carries = [carry and {name: _flat(array) for name, array in carry.items()} for carry in start.carries]
        if self._rating is not None:
            self._rating.go_to(start.rows)

    def _take(self, acting_tasks: ActingTasks) -> None:
        """Build the learners of a run."""
        task, own = self._task, self._task.high - self._task.low
        self._tasks = acting_tasks.tasks
        self._learners = [ActingLearner(each, task.num_envs, task.low, task.high) for each in acting_tasks.tasks]
        seats = [
            LearnerSeats(
                learner, each.group, [SimpleNamespace(identity=each.identity)],  # type: ignore[arg-type, list-item]
                each.players, each.rows, each.names, each.frozen,
            )
            for learner, each in zip(self._learners, acting_tasks.tasks, strict=True)
        ]  # fmt: skip
        self._actors = Actors(task.spec, seats, own, "act")
        self._actors.actions = self._block.arrays.actions
        self._rating = None
        if (rating := acting_tasks.rating) is not None:
            rates = [learner.rate if i in rating.needs else None for i, learner in enumerate(self._learners)]
            self._rating = RunnerRating(rating, task, rates)
        self._extras = {
            group: {name: ((shape[0], own, *shape[2:]), dtype) for name, (shape, dtype) in kept.items()}
            for group, kept in acting_tasks.extras.items()
        }


def _flat(array: Array) -> Array:
    """Return [K, S, n, ...] as [K, S * n, ...]."""
    return array.reshape(len(array), -1, *array.shape[3:])


def _by_seat(array: Array, seats: int) -> Array:
    """Return [K, S * n, ...] as [K, S, n, ...]."""
    return array.reshape(len(array), seats, -1, *array.shape[2:])
