"""Named child processes: start, requests, answers, and errors of failed processes.

A child sends one answer when it is ready, then one answer per message. It ends when its parent ends.
"""

from __future__ import annotations

import os
import socket
import time
import traceback as tracebacks
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple, NoReturn

from marltrain.core.errors import WorkerError
from marltrain.processes.children import (
    end_with_the_parent,
    fate,
    here_only,
    settle,
    start,
    start_context,
    within_limits,
)

_PATIENCE = 5.0
"""Timeout in seconds for a child to end."""
_GRACE = 1.0
"""Seconds to check whether a child failed because another child died."""


Make = Callable[[Any], Callable[[Any], Any]]
"""(task) -> handler, a function (message) -> answer."""


class ProcessFailure(NamedTuple):
    """Error of a child: the message and the child's traceback."""

    message: str
    traceback: str

    @classmethod
    def of(cls, error: Exception) -> ProcessFailure:
        """Return the failure of a caught exception."""
        return cls(f"{type(error).__name__}: {error}", "".join(tracebacks.format_exception(error)))


class Processes:
    """Child processes that work together; if one dies or fails, all are ended and WorkerError names it."""

    def __init__(self, names: Sequence[str], make: Make, tasks: Sequence[Any], advice: str) -> None:
        """Start one child per task, which creates its message handler with `make(task)`; wait until all are ready.

        names: full names of the children, for errors.  advice: advice in the error about a child that died.
        """
        self.names, self.advice = list(names), advice
        self._processes: list[Any] = []
        self._pipes: list[Connection] = []
        self._finish = weakref.finalize(self, here_only(_finish), self._processes, self._pipes)
        try:
            for task in tasks:
                self._start(make, task)
            self._answers(len(tasks))
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> list[int]:
        """The children's process ids."""
        return [process.pid for process in self._processes]

    def ask(self, messages: Sequence[Any]) -> list[Any]:
        """Send message i to child i and return the answers; raises WorkerError if a child dies or fails.

        Any exception ends all children, because a later call would read answers to an earlier message.
        """
        try:
            for i, message in enumerate(messages):
                self._send(i, message)
            return self._answers(len(messages))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End every child."""
        self._finish()

    def _start(self, make: Make, task: Any) -> None:
        with within_limits(self.advice):
            process, ours = start(start_context("leave `strategy` out"), serve, make, task)
        self._processes.append(process)
        self._pipes.append(ours)

    def _send(self, i: int, message: Any) -> None:
        try:
            self._pipes[i].send(message)
        except OSError:
            self._died(i)

    def _answers(self, count: int) -> list[Any]:
        got: dict[int, Any] = {}
        while any(i not in got for i in range(count)):
            self._look(got)
        return [got[i] for i in range(count)]

    def _look(self, got: dict[int, Any]) -> None:
        """Wait for an answer or the end of a child, then receive the available answers."""
        wait([*self._pipes, *(process.sentinel for process in self._processes)])
        self._check_alive()
        for i, pipe in enumerate(self._pipes):
            if not pipe.poll():
                continue
            try:
                answer = pipe.recv()
            except (EOFError, OSError):
                self._died(i)
            if isinstance(answer, ProcessFailure):
                self._failed(i, answer)
            got[i] = answer

    def _check_alive(self) -> None:
        for i, process in enumerate(self._processes):
            if process.exitcode is not None:
                self._died(i)

    def _failed(self, i: int, failure: ProcessFailure) -> NoReturn:
        """Raise WorkerError for a child's failure, or for the death of another child that caused it."""
        end = time.monotonic() + _GRACE
        while time.monotonic() < end:
            self._check_alive()
            time.sleep(0.05)
        raise WorkerError(f"{self.names[i]} failed: {failure.message}\n\nIts traceback:\n{failure.traceback}")

    def _died(self, i: int) -> NoReturn:
        process = self._processes[i]
        process.join(_PATIENCE)
        code = process.exitcode
        self.close()
        raise WorkerError(f"{self.names[i]} {fate(code)}. {self.advice}")


def serve(pipe: Connection, make: Make, task: Any) -> None:
    """Run a child: answer messages until the parent closes the pipe; an exception is sent as a `ProcessFailure`."""
    settle()
    end_with_the_parent(patience=0.0)
    handle: Callable[[Any], Any] | None = None
    message, answer = None, None
    try:
        while True:
            try:
                if handle is None:
                    handle = make(task)
                else:
                    answer = handle(message)
            except Exception as error:
                answer = ProcessFailure.of(error)
            pipe.send(answer)
            message = pipe.recv()
    except (EOFError, OSError):
        os._exit(0)  # the pipe is closed; a framework's exit handlers may block on ended processes


def free_ports(count: int) -> tuple[int, ...]:
    """Return unused ports of the loopback device."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return tuple(one.getsockname()[1] for one in sockets)


def _finish(processes: list[Any], pipes: list[Connection]) -> None:
    """Close the pipes, then kill and join all children."""
    while pipes:
        pipes.pop().close()
    for process in processes:
        process.kill()
    for process in processes:
        process.join()
        process.close()
    processes.clear()
