"""Job: a named run as attached processes see it."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

from marltrain.core.spec import EnvSpec
from marltrain.jit.notices import tell
from marltrain.processes.ray_actors import Cluster
from marltrain.storage.checks import of_type
from marltrain.trainer.events.callbacks import Callback, Moment
from marltrain.trainer.events.due import Budgets
from marltrain.trainer.jobs.connection import Connection
from marltrain.trainer.jobs.messages import EVERY, Answer, Experience, Report, Request, RunProgress
from marltrain.trainer.reporting.run_view import RunView
from marltrain.trainer.settings import TrainerSettings

if TYPE_CHECKING:
    from marltrain.trainer.jobs.policies import Policies

LOOKING = 0.05
"""Minimum seconds between two looks for the actor's answer."""


class Job(Callback):
    """Reports the progress of a run to its actor, and holds the requests of attached processes.

    requests: those that wait for `serve`.  policies: the agents that act for others; None before the first request.
    experience: transitions that attached processes have observed.
    """

    only_watches = True

    def __init__(self, progress: RunProgress, address: str | None, timeout: float) -> None:
        """Start the actor; see `Connection`.  progress: the first report."""
        self.requests: list[Request] = []
        self.policies: Policies | None = None
        self.experience = Experience()
        self._progress = progress
        self._view = RunView(f"{progress.env} - {progress.name}", progress.budgets)
        self._points: list[tuple[Mapping[str, float], int]] = []
        self._restored = False  # whether the actor lacks what the view holds
        self._answers: dict[int, Answer] = {}
        self._look_at = self._report_at = 0.0
        self._connection = Connection(progress.name, address, timeout, lambda: (self._progress, self._view))

    @classmethod
    def of(cls, settings: TrainerSettings, spec: EnvSpec, budgets: Budgets) -> Job:
        """Return the job of a run that is about to start."""
        name, process = settings.name or "", f"process {os.getpid()} on {socket.gethostname()}"
        return cls(
            RunProgress(
                name, spec.name, spec.names, process, None, vars(budgets), all_runners=settings.runners or 0
            ),
            settings.address, settings.timeout,
        )  # fmt: skip

    @property
    def name(self) -> str:
        """Name of the run."""
        return self._progress.name

    @property
    def cluster(self) -> Cluster:
        """The connection to Ray."""
        return self._connection.cluster

    def writes_to(self, folder: Path | None) -> None:
        """Note the run's folder."""
        self._progress = replace(self._progress, run_dir=None if folder is None else str(folder))

    def point(self, scalars: Mapping[str, float], env_steps: int) -> None:
        """Take a point of a logger of the run."""
        if not self._connection.given_up:
            self._points.append((scalars, env_steps))

    def answer(self, request: Request, answer: Answer) -> None:
        """Send the answer of a request with the next report, which is due now."""
        self._answers[request.number] = answer
        self._report_at = 0.0

    def on_train_start(self, moment: Moment) -> None:
        """Announce the name."""
        tell(f"run {self.name!r}: marltrain attach {self.name} --address {self.cluster.address}")

    def on_collect(self, moment: Moment) -> None:
        """Report, if it is time to."""
        self._exchange(moment)

    def on_test_start(self, moment: Moment) -> None:
        """Note that a test has started."""
        self._note(f"testing 0/{moment.data['episodes']:,} episodes")

    def on_test_step(self, moment: Moment) -> None:
        """Note how far the test is."""
        if time.monotonic() >= self._look_at:
            self._note(f"testing {moment.data['finished']:,}/{moment.data['episodes']:,} episodes")
            self._exchange(moment, testing=True)

    def on_test_end(self, moment: Moment) -> None:
        """Note the metric."""
        metric, best = moment.data["metric"], self._progress.best
        best = metric if best is None or moment.data["best"] else best
        self._progress = replace(self._progress, metric=metric, best=best, note="")

    def on_train_end(self, moment: Moment) -> None:
        """Send the last report."""
        self._progress = replace(self._progress, note="", stop_reason=moment.data["reason"] or "ended")
        self._connection.end(self._report(moment))

    def state_dict(self) -> dict[str, Any]:
        """Return the metrics and the numbers of the view; those of points that wait for a report are its last ones."""
        view = deepcopy(self._view)
        for scalars, env_steps in self._points:
            view.add(scalars, env_steps)
        return {"metric": self._progress.metric, "best": self._progress.best, "view": view.state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned; the next report holds it."""
        metric, best = (of_type(name, state[name], float, NoneType) for name in ("metric", "best"))
        self._progress = replace(self._progress, metric=metric, best=best)
        self._view.restore(of_type("view", state["view"], dict))
        self._restored = True

    def close(self) -> None:
        """End the actors, and release the cluster."""
        if self.policies is not None:
            self.policies.close()
        self._connection.close()

    def _exchange(self, moment: Moment, *, testing: bool = False) -> None:
        """Take the requests that have come with the last answer, and send the next report if it is due.

        Observed transitions stay with the actor while the run still stores others, and during a test.
        """
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + LOOKING
        if (taken := self._connection.received(now)) is not None:
            self.requests += taken.requests
            self.experience.waiting += taken.experience
        if now >= self._report_at and self._connection.free(now):
            self._report_at = now + EVERY
            self._connection.send(self._report(moment, room=not testing and not self.experience.waiting), now)

    def _report(self, moment: Moment, *, room: bool = False) -> Report:
        """Return what has happened since the last report."""
        self._progress = replace(
            self._progress, episodes=moment.episodes, env_steps=moment.env_steps, updates=moment.updates,
            gradient_steps=moment.gradient_steps, seconds=moment.seconds,
            observed=self.experience.stored, runners=moment.traffic.runners,
        )  # fmt: skip
        before = deepcopy(self._view) if self._restored else None
        self._restored = False
        for scalars, env_steps in self._points:
            self._view.add(scalars, env_steps)
        self._view.count(moment.episodes, moment.env_steps, moment.updates, moment.seconds)
        report = Report(self._progress, self._points, self._answers, room, before)
        self._points, self._answers = [], {}
        return report

    def _note(self, note: str) -> None:
        self._progress = replace(self._progress, note=note)
