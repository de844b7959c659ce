"""RunLink: how a handle reaches the actors of a named run, until the run or its cluster ends."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

from marltrain.core.errors import WorkerError
from marltrain.processes.ray_actors import ActorError, Cluster, NamedActor

REPLACED, AGAIN = 10.0, 0.2
"""Seconds in which a run that goes on starts an actor in place of a lost one, and seconds between two tries."""
LOOKING, CONNECT = 1.0, 5.0
"""Minimum seconds between two looks whether the cluster goes on, and seconds for the connection that tells it."""


class RunLink:
    """Asks the actor of a run. It is closed when the run or the cluster is found to have ended.

    Ray ends a process that stays connected to a cluster that is gone, after about a minute.
    """

    def __init__(self, cluster: Cluster, name: str, timeout: float) -> None:
        """Take the connection.  name: of the run.  timeout: seconds that the actor may take to answer."""
        self._cluster, self._name, self._timeout = cluster, name, timeout
        self._address, self._looked_at = cluster.address, time.monotonic()
        self._over = ""  # why the link is closed

    def actor(self, name: str | None = None) -> NamedActor:
        """Find an actor of the run, by default the one that it reports to.

        Raises LookupError if there is none, and WorkerError if the link is closed or the cluster is gone.
        """
        now = time.monotonic()
        if not self._over and now - self._looked_at > LOOKING:
            self._looked_at = now
            if not _answers(self._address):
                self.close(f"the run {self._name!r} has ended: the Ray cluster at {self._address} is gone")
        if self._over:
            raise WorkerError(self._over)
        return NamedActor(self._cluster, name or self._name)

    def ask(self, method: str, *args: Any, extra: float = 0.0, patient: bool = False) -> Any:
        """Return the result of a method of the run's actor.

        extra: seconds that it may work.  patient: whether an actor in place of a lost one is waited for; the link is
        closed if none comes.
        Raises WorkerError if the run has ended or does not answer in time.
        """
        lost_at: float | None = None
        while True:
            try:
                return self.actor().ask(method, *args, timeout=self._timeout + extra)
            except (ActorError, LookupError) as lost:
                now = time.monotonic()
                lost_at = now if lost_at is None else lost_at
                if isinstance(lost, ActorError) and lost.hung:
                    raise WorkerError(f"the actor of the run {self._name!r}: {lost} (timeout)") from lost
                ended = f"the run {self._name!r} has ended, or its process is gone ({lost})"
                if patient and now - lost_at > REPLACED:
                    self.close(ended)
                    raise WorkerError(ended) from lost
                if not patient:
                    self._look_later()
                    raise WorkerError(
                        f"{ended}. If it goes on, another actor of it starts within seconds: ask again"
                    ) from lost
                time.sleep(AGAIN)

    def _look_later(self) -> None:
        """Close the link if the run is not found after `REPLACED` seconds, since there may be no further call."""
        looking = threading.Timer(REPLACED, self._look)
        looking.daemon = True
        looking.start()

    def _look(self) -> None:
        """Close the link if the run, or the cluster, is gone."""
        try:
            if not self._over:
                self.actor().ask("about", timeout=self._timeout)
        except (ActorError, LookupError, WorkerError) as lost:
            if not (isinstance(lost, ActorError) and lost.hung):
                self.close(f"the run {self._name!r} has ended, or its process is gone ({lost})")

    def close(self, reason: str) -> None:
        """End the connection to the cluster, if this process has begun it; the first reason is kept for errors."""
        self._over = self._over or reason
        self._cluster.close()


def _answers(address: str) -> bool:
    """Return whether a program answers at "host:port"; Ray would try for a minute, and then end this process."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT).close()
    except OSError:
        return False
    return True
