"""Workers in Ray actors: orders, answers and arrays are sent through the object store, on one machine or several."""

from __future__ import annotations

import time
import weakref
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from marltrain.core.errors import WorkerError
from marltrain.core.layout import Array
from marltrain.envs.faults import DIED
from marltrain.envs.workers.pool import Loss, WorkerPool
from marltrain.envs.workers.ray_worker import EnvActor
from marltrain.envs.workers.shared import Block, Shared
from marltrain.envs.workers.worker import STEP, Answer, Order, Task
from marltrain.processes.children import PATIENCE, here_only
from marltrain.processes.ray_actors import Actor, ActorError, Cluster

_NO_LIMIT = 10.0**9
"""Seconds."""


class RayPool(WorkerPool):
    """Ray actors that hold environments. The columns of each actor are copied into the arrays of all environments.

    Actions are sent with each step. The other columns are sent with every order that is no step, and with the first
    step after it, because `VectorEnv.restore` changes them.
    """

    _kind = "actor"
    _served: ClassVar[type] = EnvActor

    def __init__(
        self,
        tasks: Sequence[Task],
        shared: Shared,
        cluster: Cluster,
        resources: Mapping[str, float] | None,
        timeout: float,
        limit: str,
    ) -> None:
        """Start the actors and wait until their environments are built; see `WorkerPool`.

        shared: the arrays of all environments.  resources: see `Actor`.  limit: the argument that sets the timeout.
        """
        super().__init__(tasks, timeout)
        self._cluster, self._resources, self._limit = cluster, resources, limit
        self._actors: list[Actor] = []
        self._columns = [shared.part(task.low, task.high, w) for w, task in enumerate(self._tasks)]
        self._blocks = [Block.empty(task.spec, task.high - task.low) for task in self._tasks]
        self._changed = [True for _ in self._tasks]  # whether this process may have changed an actor's columns
        self._confirmed = [False for _ in self._tasks]
        self._finish = weakref.finalize(self, here_only(_finish), self._actors, cluster)
        self._open()

    def close(self) -> None:
        """See WorkerPool."""
        self._finish()

    def _check_open(self) -> None:
        if not self._actors:
            raise WorkerError("the Ray actors of the environments are closed; build a new vector environment")

    def _start(self, w: int) -> None:
        actor = Actor(self._cluster, self._served, self._resources, self._held_by(w))
        actor.call("start", self._tasks[w].to_bytes())
        self._changed[w], self._confirmed[w] = True, False
        if w < len(self._actors):
            self._actors[w] = actor
        else:
            self._actors.append(actor)

    def _send(self, w: int, command: int, data: bytes) -> None:
        columns, block = self._columns[w], self._blocks[w]
        changed = self._changed[w] or command != STEP
        if changed:
            copy_outcome(columns, block.arrays)
        copy_arrays(columns.actions, block.arrays.actions)
        actions = block.actions if command == STEP else None
        order = Order(self._number, command, data).to_bytes()
        self._actors[w].call("serve", order, actions, block.outcome if changed else None)
        self._changed[w] = command != STEP

    def _answer(self, w: int, timeout: float | None) -> Answer | Loss:
        actor, until = self._actors[w], time.monotonic() + (_NO_LIMIT if timeout is None else timeout)
        try:
            if not self._confirmed[w]:
                actor.confirm(max(until - time.monotonic(), 0.0))
                self._confirmed[w] = True
            answer, outcome = actor.result(max(until - time.monotonic(), 0.0))
        except ActorError as lost:
            return self._hung(w) if lost.hung else Loss(w, DIED, str(lost))
        if outcome is not None:
            self._blocks[w].outcome[...] = outcome
            copy_outcome(self._blocks[w].arrays, self._columns[w])
        return Answer.from_bytes(answer)

    def _end(self, w: int) -> None:
        self._actors[w].kill()

    def _description(self, w: int) -> str:
        return self._actors[w].name

    def _held_by(self, w: int) -> str:
        """Return the actor and its environments in words, without its node."""
        return super()._description(w)


def copy_outcome(source: Shared, target: Shared) -> None:
    """Copy the Step and the progress of environments."""
    kept = target.step.arrays()
    for name, array in source.step.arrays().items():
        kept[name][...] = array
    target.length[...], target.at[...] = source.length, source.at


def copy_arrays(sources: Sequence[Array], targets: Sequence[Array]) -> None:
    """Copy arrays into others."""
    for source, target in zip(sources, targets, strict=True):
        np.copyto(target, source)


def _finish(actors: list[Actor], cluster: Cluster) -> None:
    """Close the environments of all actors, and end them; then release the cluster."""
    try:
        for actor in actors:
            actor.call("close")
        until = time.monotonic() + PATIENCE  # one deadline for all: they end concurrently
        for actor in actors:
            actor.ready(max(until - time.monotonic(), 0.0))
            actor.kill()
    finally:
        actors.clear()
        cluster.close()
