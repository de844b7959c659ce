"""The class that runs in a Ray actor: agents that learn from the batches that the driver sends."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

from marltrain.envs.workers.worker import WorkerFailure
from marltrain.policies.backends import make_backend
from marltrain.policies.batches.batch import TeamBatch, map_batch
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.policies.learner.learner import Learner
from marltrain.policies.learner.learner_snapshot import Trained, TrainedWeights, members_of
from marltrain.processes.ray_actors import Served
from marltrain.trainer.cluster.learner_messages import LearningTask, UpdateAnswer, UpdateOrder, changed, learner_of
from marltrain.trainer.cluster.messages import unpacked


class LearnerActor(Served):
    """Learners in a Ray actor, by the number of the share of agents that each holds."""

    def __init__(self) -> None:
        """Hold no learner yet."""
        self._learners: dict[int, Learner] = {}

    def serve(self, method: str, share: int, *arguments: Any) -> tuple[WorkerFailure | None, Any]:
        """Call a method for a share; return its error or its result."""
        try:
            return None, getattr(self, f"_{method}")(share, *arguments)
        except Exception as error:
            return WorkerFailure.of(error), None

    def _hold(self, share: int, task: LearningTask) -> None:
        """Build the learner of a share; `load` sets its state."""
        os.environ["OMP_NUM_THREADS"] = str(task.threads)  # read when the framework is loaded
        backend = make_backend(task.backend, task.device, jit_compile=task.jit_compile)
        members = [
            AlgorithmLearner(unpacked(made_of), backend, [0] * agents, draw=False)
            for made_of, agents in zip(task.made_of, task.agents, strict=True)
        ]
        self._learners[share] = learner_of(task, members)

    def _load(self, share: int, state: Trained) -> None:
        """Set the state of a learner."""
        state.put(self._learners[share])

    def _update(self, share: int, order: UpdateOrder) -> UpdateAnswer:
        """Make an update."""
        begun, learner = time.monotonic(), self._learners[share]
        members, batch = members_of(learner), map_batch(np.array, order.batch)  # what Ray gives is read-only
        for member, numbers in zip(members, order.numbers, strict=True):
            numbers.put(member)
        metrics = learner.update(batch, learn=np.array(order.learn), batch_size=order.batch_size)
        return UpdateAnswer(
            metrics, dict(learner.skipped), None if isinstance(batch, TeamBatch) else getattr(batch, "errors", None),
            tuple(member.updates for member in members), tuple(member.gradient_steps for member in members),
            tuple(_adapted(member, numbers.hyper) for member, numbers in zip(members, order.numbers, strict=True)),
            time.monotonic() - begun,
        )  # fmt: skip

    def _weights(self, share: int) -> tuple[TrainedWeights, ...]:
        """Return the networks by which the agents of each member act."""
        return tuple(TrainedWeights.of(member.weights, complete=False) for member in members_of(self._learners[share]))

    def _state(self, share: int) -> Trained:
        """Return the state of a learner."""
        return Trained.of(self._learners[share])


def _adapted(member: AlgorithmLearner, sent: Any) -> dict[str, Any]:
    """Return the hyperparameters that an update has changed."""
    names = changed(member, sent)
    return {name: member.hyper.values[name] for name in names}
