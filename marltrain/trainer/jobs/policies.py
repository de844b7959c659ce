"""Policies: a run's side of the actor that acts with its agents. New weights are sent; training never waits."""

from __future__ import annotations

import time
from collections.abc import Sequence

from marltrain.core.errors import ConfigError, WorkerError, warn
from marltrain.core.spec import EnvSpec
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.processes.ray_actors import Actor, ActorError, Cluster, NamedActor, NameTakenError
from marltrain.trainer.cluster.messages import Acting, ActingTask, can_act_elsewhere
from marltrain.trainer.jobs.messages import STARTING, served_name
from marltrain.trainer.jobs.policy_actor import PolicyActor
from marltrain.trainer.seats.seats import LearnerSeats

EVERY, LATEST = 1.0, 10.0
"""Minimum seconds between two sendings of weights, and seconds after which they are sent even without an update."""
SHARE = 0.02
"""Maximum share of a run's time that sending may take."""


class Policies:
    """The actor of a run's agents, once an attached process has asked for it.

    name: by which attached processes find it.
    """

    def __init__(
        self, cluster: Cluster, run_name: str, spec: EnvSpec, seed: int, seats: Sequence[LearnerSeats], timeout: float
    ) -> None:
        """Take the learners of the run; the actor is not started yet.

        seed: of the run.  timeout: seconds that the actor may take to load weights.
        """
        self.name = served_name(run_name)
        self._cluster, self._spec, self._seed, self._timeout = cluster, spec, seed, timeout
        self._seats = [seated for seated in seats if can_act_elsewhere(seated)]
        self._actor: Actor | None = None
        self._sent: tuple[float, int] | None = None  # time and updates of the last sending
        self._under_way, self._pause, self._limit = False, EVERY, timeout

    def start(self, updates: int) -> str:
        """Start the actor unless it is there, and send weights; return its name.

        Raises ConfigError if no agent of the run can act elsewhere, and WorkerError while a lost actor holds the name.
        """
        if not self._seats:
            raise ConfigError("no agent of the run can be asked: only agents of marltrain's own algorithms over "
                              "NetworkSpecs are served")  # fmt: skip
        if self._actor is not None and not self._exists():
            self._actor = None
        if self._actor is None:
            tasks = [ActingTask.of(seated) for seated in self._seats]
            try:
                self._actor = Actor(
                    self._cluster, PolicyActor, {"num_cpus": 0}, "the actor of the run's agents", self.name,
                    (self._spec.players, tasks, self._seed),
                )  # fmt: skip
            except NameTakenError as error:
                raise WorkerError(f"{error}: ask again") from error
            self._limit = STARTING + self._timeout
            self._send(updates)
        return self.name

    def refresh(self, updates: int) -> None:
        """Send the weights if it is time to, and the last ones have arrived."""
        if self._actor is None or self._sent is None or (passed := time.monotonic() - self._sent[0]) < self._pause:
            return
        if self._under_way and not self._arrived(passed):
            return
        if self._actor is not None and (updates != self._sent[1] or passed > LATEST):
            self._send(updates)

    def close(self) -> None:
        """End the actor."""
        if self._actor is not None:
            self._actor.kill()
            self._actor = None

    def _exists(self) -> bool:
        try:
            NamedActor(self._cluster, self.name)
        except LookupError:
            return False
        return True

    def _send(self, updates: int) -> None:
        if self._actor is None:
            return
        begun = time.monotonic()
        learners = [seated.learner for seated in self._seats if isinstance(seated.learner, AlgorithmLearner)]
        self._actor.call("load", [Acting.now(learner) for learner in learners], updates)
        self._sent, self._under_way = (time.monotonic(), updates), True
        self._pause = max(EVERY, (time.monotonic() - begun) / SHARE)

    def _arrived(self, passed: float) -> bool:
        """Return whether the last weights have arrived; forget an actor that is lost, with a warning."""
        actor = self._actor
        if actor is None:
            return False
        try:
            if not actor.ready(0.0):
                if passed < self._limit:
                    return False
                actor.kill()
                raise ActorError(f"{actor.name} did not answer within {self._limit:g} s", hung=True)
            actor.result(self._timeout)
        except ActorError as lost:
            self._actor = None
            warn(f"{lost}. Another one starts when an attached process asks for an act")
        self._under_way, self._limit = False, self._timeout
        return True
