"""RunnerCollector: runners collect whole fragments of batch steps; the loop receives them step by step.

A fragment ends where the next update is due, so its acts use the same weights. Weights, hyperparameters, generators and
carries are sent with the order, and generators and carries come back. Therefore the results equal those of one process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from marltrain.envs.workers.pool import STARTING, Loss
from marltrain.errors import WorkerError
from marltrain.layout import Array
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.spec import Step
from marltrain.trainer.cluster.messages import Acting, ActingTask, ActingTasks, Fragment, Request, size_of
from marltrain.trainer.cluster.runners import RunnerVectorEnv
from marltrain.trainer.collecting.rollout import Collected, Recorder
from marltrain.trainer.counters import Traffic
from marltrain.trainer.updating.scheduler import UpdateScheduler

FIRST = 16
"""Batch steps of the first fragment; its duration sets the limit of the next one."""
SLOWER = 10.0
"""How many times as long as the last fragment took, per batch step in its slowest runner, the next may take."""
MOST_BYTES = 256 * 2**20
"""Maximum size of the Steps of one fragment."""


class RunnerCollector:
    """Collects fragments and gives them to the loop, one batch step at a time; see `Collector`."""

    under_way = False

    def __init__(
        self,
        envs: RunnerVectorEnv,
        recorder: Recorder,
        schedulers: Sequence[UpdateScheduler],
        timeout: float,
        traffic: Traffic,
    ) -> None:
        """Prepare the learners for the runners.

        timeout: seconds that a fragment, or the way back to its start, may take, and in addition `SLOWER` times what
          acting and stepping took in the last fragment.
        traffic: counts what is sent.
        Raises ConfigError for agents that runners cannot hold.
        """
        self.envs, self.recorder, self.schedulers, self.traffic = envs, recorder, schedulers, traffic
        self._actors, self._timeout, self._pace = recorder.actors, timeout, 0.0
        self._actors.actions = envs.actions
        extras = {
            group: {name: (array.shape, array.dtype) for name, array in kept.items()}
            for group, kept in recorder.extras.items()
        }
        self._acting_tasks = ActingTasks(tuple(ActingTask.of(seated) for seated in self._actors.learners), extras)
        learners = [seated.learner for seated in self._actors.learners]
        self._learners = [learner for learner in learners if isinstance(learner, AlgorithmLearner)]
        size = sum(array.nbytes for array in envs.kept().values())
        self._longest = max(1, MOST_BYTES // size)
        if any(learner.actor.counts.size for learner in self._learners):
            self._longest = 1  # each act depends on the counts of all environments
        if not envs.spec.reproducible:
            self._longest = 1  # runners cannot return to the start of a fragment and repeat it
        self._fragments: list[Fragment] = []
        self._given = self._length = 0
        self._snapshot: Mapping[str, Array] | None = None

    def advance(self, step: Step, most: int) -> Collected:
        """Give the next batch step; collect a fragment if the last one is used up."""
        if self._given < self._length and self._changed():
            self.settle()
        if self._given == self._length:
            self._collect(min([most, self._longest, *(scheduler.steps_left for scheduler in self.schedulers)]))
        self._give(self._given)
        self._given += 1
        return Collected(step, 1)

    def settle(self) -> None:
        """Bring the runners to the Step that was given last: they return to the fragment's start and repeat it.

        Raises WorkerError if the repeated steps end differently.
        """
        if self._given == self._length:
            return
        now, last = self.envs.kept(), [part.outcomes[self._given - 1] for part in self._fragments]
        self.envs.rewind(self._origin, self._kept, self._limit(self.envs.replayed(self._origin)))
        self._receive(self._given)
        for w, (old, part) in enumerate(zip(last, self._fragments, strict=True)):
            if not np.array_equal(old, part.outcomes[-1]):
                raise self._differs(w)
        self.envs.put_back(now)
        self._length = self._given

    def _collect(self, steps: int) -> None:
        """Collect a fragment from the present Step on."""
        if not self._pace:
            steps = min(steps, FIRST)
        self._origin = self.envs.snapshot() if self._snapshot is None else self._snapshot
        self._kept, self._exploring = self.envs.kept(), self._actors.exploring
        self._acting = [_acting(learner) for learner in self._learners]
        self._reference = self.envs.pool.put(self._acting)
        self._explore = [self._by_env(i, explore) for i, explore in enumerate(self._exploring)]
        self._carries = [
            None if carry is None else {name: self._by_env(i, array) for name, array in carry.items()}
            for i, carry in enumerate(self._actors.carries)
        ]
        self.traffic.sent += size_of(self._acting)
        self._receive(steps)
        self._given, self._length = 0, steps

    def _receive(self, steps: int) -> None:
        """Order a fragment from all runners, wait for it, and take over what holds after it."""
        runners, limit = range(len(self.envs.columns)), self._limit(steps)
        extra = [self._request(w, steps) for w in runners]
        self._fragments = [self._received(w, steps, limit, extra[w]) for w in runners]
        self._pace = max(part.seconds for part in self._fragments) / steps
        self.traffic.received += size_of(self._fragments)
        self.traffic.fragments += 1
        first = self._fragments[0]
        for i, (learner, acting) in enumerate(zip(self._learners, self._acting, strict=True)):
            for rng, state in zip(learner.rngs("act"), first.rngs[i], strict=True):
                rng.bit_generator.state = state
            learner.actor.counts[...] = acting.counts + sum(part.counts[i] - acting.counts for part in self._fragments)
            if first.carries[i] is not None:
                self._actors.carries[i] = self._joined([part.carries[i] for part in self._fragments])
        names = first.snapshot
        self._snapshot = {name: np.concatenate([part.snapshot[name] for part in self._fragments]) for name in names}

    def _limit(self, steps: int) -> float:
        """Return the seconds that a runner may take for a number of batch steps, collected or replayed."""
        return self._timeout + SLOWER * self._pace * steps

    def _request(self, w: int, steps: int) -> float:
        """Order a fragment from a runner; return the seconds that it has to build the learners first."""
        pool, own = self.envs.pool, self.envs.columns[w]
        carries = tuple(
            None if carry is None else {name: np.ascontiguousarray(array[:, :, own]) for name, array in carry.items()}
            for carry in self._carries
        )
        explore = tuple(np.ascontiguousarray(array[:, :, own]) for array in self._explore)
        acting_tasks = self._acting_tasks if w in pool.lacking else None
        request = Request(steps, explore, carries, pool.outcome(w), acting_tasks)
        self.traffic.sent += size_of(request)
        pool.request(w, request, self._reference)
        return 0.0 if acting_tasks is None else STARTING

    def _received(self, w: int, steps: int, limit: float, extra: float) -> Fragment:
        """Wait for the fragment of a runner; a lost runner is replaced, and its fragment collected again."""
        while isinstance(fragment := self.envs.pool.fragment(w, steps, limit + extra), Loss):
            now = self.envs.kept()
            self.envs.replace(fragment, self._origin, self._kept, self._limit(self.envs.replayed(self._origin)))
            extra = self._request(w, steps)
            self.envs.put_back(now)
        return fragment

    def _give(self, t: int) -> None:
        """Record the decisions of batch step t, then show its outcome."""
        for w, (own, part) in enumerate(zip(self.envs.columns, self._fragments, strict=True)):
            self.envs.pool.show_actions(w, part.actions[t])
            for group, kept in part.extras.items():
                for name, array in kept.items():
                    self.recorder.extras[group][name][:, own] = array[t]
        self.recorder.remember()
        reports = [part.reports.get(t, b"") for part in self._fragments]
        self.envs.shown([part.outcomes[t] for part in self._fragments], reports)

    def _differs(self, w: int) -> WorkerError:
        """Return the error for a runner whose repeated steps differ from those that were given."""
        envs, own = self.envs, self.envs.columns[w]
        return WorkerError(
            f"runner {w} repeated the first {self._given} batch steps of its fragment, and its environments "
            f"{own.start} to {own.stop - 1} ({envs.source.name}) gave another Step than before at the last of them. "
            'They are not reproducible: use only the generator that reset(seed) makes, or set metadata["reproducible"] '
            "= False"
        )

    def _changed(self) -> bool:
        """Return whether a hook has changed what agents act by since the fragment was ordered."""
        if self._exploring is not self._actors.exploring:
            pairs = zip(self._exploring, self._actors.exploring, strict=True)
            if any(not np.array_equal(old, new) for old, new in pairs):
                return True
            self._exploring = self._actors.exploring
        return any(
            not np.array_equal(values, acting.hyper[name])
            for learner, acting in zip(self._learners, self._acting, strict=True)
            for name, values in learner.hyper.values.items()
        )

    def _by_env(self, i: int, array: Array) -> Array:
        """Return rows [K, S * E, ...] of learner i as [K, S, E, ...]."""
        return array.reshape(len(array), -1, self.envs.num_envs, *array.shape[2:])

    @staticmethod
    def _joined(parts: Sequence[Any]) -> dict[str, Array]:
        """Return carries [K, S, n, ...] of all runners as one, [K, S * E, ...]."""
        whole = {name: np.concatenate([part[name] for part in parts], axis=2) for name in parts[0]}
        return {name: array.reshape(len(array), -1, *array.shape[3:]) for name, array in whole.items()}


def _acting(learner: AlgorithmLearner) -> Acting:
    """Return copies of what a learner acts by."""
    backend, weights = learner.backend, learner.weights
    return Acting(
        {name: np.array(backend.numpy(net.flat)) for name, net in weights.online.items()},
        {name: {k: v.copy() for k, v in kept.values().items()} for name, kept in weights.statistics.items()},
        {name: values.copy() for name, values in learner.hyper.values.items()},
        learner.actor.counts.copy(),
        [dict(rng.bit_generator.state) for rng in learner.rngs("act")],
    )
