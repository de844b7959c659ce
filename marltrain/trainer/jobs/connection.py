"""Connection: the actor of a named run, which is replaced if it is lost. Training never waits for it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from marltrain.core.errors import ConfigError, WorkerError, warn
from marltrain.processes.ray_actors import Actor, ActorError, Cluster, NamedActor, NameTakenError
from marltrain.trainer.jobs.job_actor import JobActor
from marltrain.trainer.jobs.messages import STARTING, Report, Taken

LOGGER = logging.getLogger("marltrain")
ANSWERED = 5.0
"""Seconds in which an answer that is ready is read."""
FAREWELL = 5.0
"""Seconds that the last report may take."""
FREED, AGAIN = 10.0, 0.1
"""Seconds until a name is free again after the end of its run, and seconds between two tries."""
RESTARTS = 20
"""Maximum number of actors that are started in place of lost ones."""


class Connection:
    """Sends reports to the actor of a run, one at a time, and takes the requests that it answers with."""

    def __init__(self, name: str, address: str | None, timeout: float, first: Callable[[], tuple[Any, ...]]) -> None:
        """Start the actor.

        name: of the run.  address: see `Cluster`.  timeout: seconds that the actor may take to answer.
        first: returns the arguments of `JobActor`; it is called again for an actor in place of a lost one.

        Raises ConfigError without Ray or a cluster, and if a run of this name goes on.
        """
        self.name, self._timeout, self._first = name, timeout, first
        self.cluster = Cluster(address)
        self._actor: Actor | None = None
        self._sent_at: float | None = None  # time of the report under way
        self._limit = timeout  # seconds for its answer
        self._restarts, self._lost_at = 0, 0.0
        self._start_at: float | None = None  # time to start an actor in place of a lost one
        try:
            self._actor = self._first_actor()
            self._actor.confirm(STARTING + timeout)
        except ActorError as error:
            self.close()
            raise WorkerError(f"name={name!r}: {error}") from error
        except BaseException:
            self.close()
            raise

    @property
    def given_up(self) -> bool:
        """Whether no process can attach to the run any more."""
        return self._actor is None and self._start_at is None

    def free(self, now: float) -> bool:
        """Return whether a report can be sent; start an actor in place of a lost one.  now: of `time.monotonic`."""
        if self._actor is None and self._start_at is not None and now >= self._start_at:
            self._start_again(now)
        return self._actor is not None and self._sent_at is None

    def send(self, report: Report, now: float) -> None:
        """Send a report, if `free`."""
        if self._actor is not None:
            self._actor.call("report", report)
            self._sent_at = now

    def received(self, now: float) -> Taken | None:
        """Return the answer to the last report; None as long as there is none."""
        actor = self._actor
        if actor is None or self._sent_at is None:
            return None
        try:
            if actor.ready(0.0):
                taken: Taken = actor.result(ANSWERED)
                self._sent_at, self._limit = None, self._timeout
                return taken
            if now - self._sent_at > self._limit:
                actor.kill()
                raise ActorError(f"{actor.name} did not answer within {self._limit:g} s", hung=True)
        except ActorError as lost:
            self._lose(lost, now)
        return None

    def end(self, report: Report) -> None:
        """Send the last report; wait for it at most `FAREWELL` seconds, and as long for the one under way."""
        if (actor := self._actor) is None:
            return
        if self._sent_at is not None:
            actor.ready(FAREWELL)
        actor.call("end", report)
        try:
            actor.result(FAREWELL)
        except ActorError as lost:
            LOGGER.warning("the end of run %r could not be told to attached processes: %s", self.name, lost)

    def close(self) -> None:
        """End the actor, and release the cluster."""
        if self._actor is not None:
            self._actor.kill()
        self._actor = self._start_at = None
        self.cluster.close()

    def _new_actor(self) -> Actor:
        """Start an actor; raises NameTakenError."""
        return Actor(self.cluster, JobActor, {"num_cpus": 0}, "the actor of the run", self.name, self._first())

    def _first_actor(self) -> Actor:
        """Start an actor once the name is free; raises ConfigError if a run of this name goes on."""
        until = time.monotonic() + FREED
        while True:
            try:
                return self._new_actor()
            except NameTakenError as error:
                if (holder := self._holder()) is None and time.monotonic() < until:
                    time.sleep(AGAIN)  # its run has just ended
                    continue
                raise ConfigError(
                    f"name={self.name!r}: a run of this name goes on in the Ray cluster at {self.cluster.address}"
                    f"{holder or ''}. Give another name, or end that run (marltrain attach {self.name} --stop)"
                ) from error

    def _holder(self) -> str | None:
        """Return where the run of this name goes on, in words; None if it has ended."""
        try:
            progress = NamedActor(self.cluster, self.name).ask("progress", timeout=self._timeout)
        except LookupError:
            return None
        except ActorError as error:
            return "" if error.hung else None
        return f" ({progress.process})"

    def _lose(self, lost: ActorError, now: float) -> None:
        """Prepare another actor in place of a lost one."""
        self._actor = self._sent_at = None
        if self._restarts == RESTARTS or not self.cluster.ray.is_initialized():
            self._give_up(str(lost))
            return
        self._restarts += 1
        self._lost_at = self._start_at = now
        warn(
            f"name={self.name!r}: {lost}. Another one is started; requests that it held have failed, and transitions "
            "that it held are not learned from"
        )

    def _start_again(self, now: float) -> None:
        """Start an actor in place of a lost one, which may hold the name for a moment."""
        try:
            self._actor, self._limit = self._new_actor(), STARTING + self._timeout
        except NameTakenError as error:
            self._start_at = now + AGAIN
            if now - self._lost_at > FREED:
                self._give_up(str(error))

    def _give_up(self, reason: str) -> None:
        self._start_at = None
        warn(f"name={self.name!r}: {reason}. The run goes on, but no process can attach to it any more")
