"""The actor of a named run: it holds what the run reports, and the requests of attached processes."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from marltrain.processes.ray_actors import Served
from marltrain.trainer.jobs.messages import MOST_HELD, MOST_ROWS, Answer, Report, Request, RunProgress, Taken
from marltrain.trainer.reporting.run_view import RunView

if TYPE_CHECKING:
    from marltrain.policies.memory.observed import ObservedRows

REPLYING = 0.1
"""Seconds in which the replies to those who wait for the end are sent."""


class JobActor(Served):
    """Passes reports and answers of a run to attached processes, and their requests to the run.

    All methods run in one thread. Those that wait let others run.
    """

    def __init__(self, progress: RunProgress, view: RunView) -> None:
        """Start with a first report."""
        self._progress, self._view, self._at = progress, view, time.monotonic()
        self._ended = asyncio.Event()
        self._count = 0
        self._waiting: dict[int, Request] = {}  # those that the run has not taken
        self._answers: dict[int, asyncio.Future[Answer]] = {}
        self._experience: list[tuple[str, ObservedRows]] = []
        self._held, self._rows, self._room = 0, 0, asyncio.Event()  # bytes, transitions

    async def report(self, report: Report) -> Taken:
        """Take a report of the run; return what has come for it since the last one."""
        self._progress, self._at = report.progress, time.monotonic()
        self._view = report.view or self._view
        for scalars, env_steps in report.points:
            self._view.add(scalars, env_steps)
        now = report.progress
        self._view.count(now.episodes, now.env_steps, now.updates, now.seconds)
        for number, answer in report.answers.items():
            future = self._answers.get(number)
            if future is not None and not future.done():
                future.set_result(answer)
        requests, self._waiting = list(self._waiting.values()), {}
        experience: list[tuple[str, ObservedRows]] = []
        if report.room:
            experience, self._experience, self._held, self._rows = self._experience, [], 0, 0
            self._room.set()
        return Taken(requests, experience)

    async def end(self, report: Report) -> None:
        """Take the last report, and send it to all who wait."""
        await self.report(report)
        self._ended.set()
        self._room.set()
        for future in self._answers.values():
            if not future.done():
                future.set_result(Answer(error=("WorkerError", self._over())))
        await asyncio.sleep(REPLYING)

    async def progress(self) -> RunProgress:
        """Return the last report."""
        return replace(self._progress, age=time.monotonic() - self._at)

    async def view(self) -> RunView:
        """Return the numbers that a dashboard shows."""
        self._view.note = self._progress.note
        return self._view

    async def wait(self, seconds: float) -> RunProgress:
        """Wait until the run ends, at most so many seconds; return the last report."""
        try:
            await asyncio.wait_for(self._ended.wait(), seconds)
        except TimeoutError:
            return await self.progress()
        return await self.progress()

    async def observe(self, player: str, rows: ObservedRows, seconds: float) -> Answer:
        """Hold transitions for the run; wait for room, at most so many seconds."""
        try:
            await asyncio.wait_for(self._has_room(rows.size, len(rows)), seconds)
        except TimeoutError:
            return Answer(error=("WorkerError", self._late(seconds, taken=False)))
        if self._ended.is_set():
            return Answer(error=("WorkerError", self._over()))
        self._experience.append((player, rows))
        self._held, self._rows = self._held + rows.size, self._rows + len(rows)
        return Answer()

    async def _has_room(self, size: int, rows: int) -> None:
        """Wait until the run has taken what is held, if it were too much with so many bytes and transitions."""
        while self._held and not self._ended.is_set():
            if self._held + size <= MOST_HELD and self._rows + rows <= MOST_ROWS:
                return
            self._room.clear()
            await self._room.wait()

    async def ask(self, kind: str, argument: Any, seconds: float) -> Answer:
        """Pass a request to the run, and return its answer; an error if there is none after so many seconds.

        A request that the run has not taken by then is withdrawn.
        """
        if self._ended.is_set():
            return Answer(error=("WorkerError", self._over()))
        self._count += 1
        number = self._count
        self._waiting[number] = Request(number, kind, argument)
        future = self._answers[number] = asyncio.get_running_loop().create_future()
        try:
            return await asyncio.wait_for(future, seconds)
        except TimeoutError:
            return Answer(error=("WorkerError", self._late(seconds, taken=number not in self._waiting)))
        finally:
            self._waiting.pop(number, None)
            del self._answers[number]

    def _late(self, seconds: float, *, taken: bool) -> str:
        now = "it has taken the request, and still works on it" if taken else (
            "the request is withdrawn. It takes requests between two steps of training, and not during a test"
        )  # fmt: skip
        return f"the run {self._progress.name!r} has not answered within {seconds:g} s (timeout): {now}"

    def _over(self) -> str:
        return f"the run {self._progress.name!r} has ended: {self._progress.stop_reason}"
