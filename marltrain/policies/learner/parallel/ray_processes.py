"""The processes of a strategy as Ray actors, on one machine or several; used as `Processes` are."""

from __future__ import annotations

import os
import socket
import time
import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from marltrain.core.errors import WorkerError
from marltrain.policies.backends.strategies import DataParallel, Member
from marltrain.policies.learner.parallel.processes import ProcessFailure
from marltrain.policies.learner.parallel.replica import Replica
from marltrain.processes.children import here_only
from marltrain.processes.ray_actors import Actor, ActorError, Cluster, Served, end_actors

STARTING = 60.0
"""Seconds, in addition to the strategy's timeout, for an actor's start and its first answers."""
SLOWER = 10.0
"""How many times as long as the last answers took, the next may take."""
GRACE = 1.0
"""Seconds to check whether an actor failed because another one died."""


class ReplicaActor(Served):
    """A `Replica` in a Ray actor."""

    def place(self) -> tuple[str, int]:
        """Return the address of the node and a free port there."""
        _, address = self.about()
        with socket.socket() as one:
            one.bind((address, 0))
            return address, one.getsockname()[1]

    def pid(self) -> int:
        """Return the id of this process."""
        return os.getpid()

    def build(self, member: Member) -> ProcessFailure | None:
        """Connect to the other members, and build the learner."""
        os.environ["OMP_NUM_THREADS"] = str(member.threads)  # read when the framework is loaded
        try:
            self._replica = Replica(member)
        except Exception as error:
            return ProcessFailure.of(error)
        return None

    def answer(self, message: tuple[Any, ...]) -> Any:
        """Execute an order; return the result, or the error as a `ProcessFailure`."""
        try:
            return self._replica(message)
        except Exception as error:
            return ProcessFailure.of(error)


class RayProcesses:
    """Ray actors that work together; if one is lost or fails, all are ended and WorkerError names it."""

    def __init__(self, names: Sequence[str], members: Sequence[Member], strategy: DataParallel, advice: str) -> None:
        """Start one actor per member and wait until all have joined.

        names: full names of the members, for errors.  advice: in the error about an actor that was lost.
        Raises ConfigError if there is no such cluster, and if no node has the resources of an actor.
        """
        self.names, self.advice, self._timeout = list(names), advice, strategy.timeout
        self._limit = strategy.timeout + STARTING
        cluster = Cluster(strategy.address)
        self._actors: list[Actor] = []
        self._finish = weakref.finalize(self, here_only(end_actors), self._actors, cluster)
        try:
            cluster.check_room(strategy.resources, f"each process of {strategy}")
            for name in self.names:
                self._actors.append(Actor(cluster, ReplicaActor, strategy.resources, name))
            self._confirm()
            places = self._call("place", [()] * len(members))
            first, port = places[0]
            joining = [
                replace(member, ports=(port,) * len(members), first=first, address=address)
                for member, (address, _) in zip(members, places, strict=True)
            ]
            self._call("build", [(member,) for member in joining])
        except BaseException:
            self.close()
            raise

    def ask(self, messages: Sequence[Any]) -> list[Any]:
        """Send message i to actor i and return the answers; raises WorkerError if an actor is lost or fails."""
        try:
            begun = time.monotonic()
            answers = self._call("answer", [(message,) for message in messages])
            self._limit = self._timeout + SLOWER * (time.monotonic() - begun)
        except BaseException:
            self.close()
            raise
        return answers

    def close(self) -> None:
        """End every actor, and release the cluster."""
        self._finish()

    @property
    def pids(self) -> list[int]:
        """The actors' process ids, each on its node."""
        return self._call("pid", [()] * len(self._actors))

    def _confirm(self) -> None:
        for actor in self._actors:
            try:
                actor.confirm(self._limit)
            except ActorError as lost:
                raise WorkerError(f"{lost}. {self.advice}") from lost

    def _call(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call a method of the first actors, one for each of `arguments`; return the results."""
        calls = [(actor, actor.call(method, *own)) for actor, own in zip(self._actors, arguments, strict=False)]
        until, results = time.monotonic() + self._limit, []
        for i, (actor, call) in enumerate(calls):
            try:
                results.append(actor.result(max(until - time.monotonic(), 0.0), call))
            except ActorError as lost:
                raise WorkerError(f"{lost}{self._others(calls[i + 1 :], lost)}. {self.advice}") from lost
            if isinstance(results[-1], ProcessFailure):
                self._failed(i, results[-1], calls[i + 1 :])
        return results

    def _others(self, calls: Sequence[tuple[Actor, Any]], lost: ActorError) -> str:
        """Return which other actors did not answer: they may wait for each other."""
        silent = [actor.name for actor, _ in calls if not actor.ready(0.0)] if lost.hung else []
        return f"; nor did {' and '.join(silent)}" if silent else ""

    def _failed(self, i: int, failure: ProcessFailure, others: Sequence[tuple[Actor, Any]]) -> None:
        """Raise WorkerError for an actor's failure, or for the loss of another actor that caused it."""
        until = time.monotonic() + GRACE
        for actor, call in others:
            if not actor.ready(max(until - time.monotonic(), 0.0)):
                continue
            try:
                actor.result(GRACE, call)
            except ActorError as lost:
                raise WorkerError(f"{lost}. {self.advice}") from lost
        raise WorkerError(f"{self.names[i]} failed: {failure.message}\n\nIts traceback:\n{failure.traceback}")
