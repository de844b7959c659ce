"""The parent's side of the workers: orders, answers and lost workers, wherever the workers run."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from marltrain.core.errors import EnvError, WorkerError
from marltrain.envs.faults import DIED, TIMEOUT
from marltrain.envs.workers.worker import STARTED, STEP, Answer, Task

STARTING = 60.0
"""Seconds, in addition to `env_timeout`, for a worker's start and the construction of its environments."""


class Loss(NamedTuple):
    """A lost worker, which ended or was killed after a timeout: its number, the kind of fault, and a description."""

    worker: int
    kind: str
    description: str


class WorkerPool(ABC):
    """Workers, one per task. `order` sends an order to all of them; `wait` returns the answers.

    A subclass starts the workers and carries the messages.
    """

    _kind = "worker"
    _limit = "env_timeout"  # the argument that sets `timeout`

    def __init__(self, tasks: Sequence[Task], timeout: float | None) -> None:
        """Keep the tasks; `_open` starts the workers.

        timeout: seconds that an order may take, and 60 s more for the start; None for no limit.
        """
        self._tasks, self._timeout = list(tasks), timeout
        self._starting = None if timeout is None else timeout + STARTING
        self._all = range(len(self._tasks))
        self._allowed = timeout  # for the answers that are waited for
        self._number = STARTED
        self._numbers = [STARTED for _ in self._all]  # of each worker's last order

    def _open(self) -> None:
        """Start the workers and wait until their environments are built. Raises ConfigError, EnvError, WorkerError."""
        try:
            for w in self._all:
                self._start(w)
            for answer in self._answers(self._starting):
                if isinstance(answer, Loss):
                    raise self.error(answer)
        except BaseException:
            self.close()
            raise

    def order(self, command: int = STEP, data: bytes = b"") -> None:
        """Send an order to all workers, see `worker.Order`; raises WorkerError if the pool is closed."""
        self._check_open()
        self._number += 1
        for w in self._all:
            self._order_one(w, command, data)

    def wait(self, orders: int = 1, timeout: float | None = None) -> list[bytes | Loss]:
        """Wait for the answers of all workers; return the data of each, or the Loss of a worker.

        orders: the number of env steps in the last order; a factor of the timeout.  timeout: seconds, in its place.
        Raises EnvError for the first worker that failed, and WorkerError if the pool is closed.
        """
        self._check_open()
        if timeout is None and self._timeout is not None:
            timeout = self._timeout * orders
        self._allowed = timeout
        return self._answers(timeout)

    def replace(self, w: int, command: int, data: bytes, timeout: float | None = None) -> bytes | Loss:
        """Replace a lost worker, send an order to the new one, and return its answer as `wait` does.

        timeout: seconds for the order, in place of those of a step.
        """
        self._start(w)
        self._number += 1
        self._numbers[w] = STARTED
        started = self._built(w, self._starting)
        if isinstance(started, Loss):
            return started
        self._order_one(w, command, data)
        self._allowed = self._timeout if timeout is None else timeout
        return self._data(w, self._answer(w, self._allowed))

    def error(self, loss: Loss) -> WorkerError:
        """Close all workers; return the error to raise for a loss that is not survived."""
        self.close()
        return WorkerError(
            f"{loss.description}. If it ran out of memory, use fewer environments or workers; "
            'vector="dummy" runs the environments in this process, where a debugger sees them.'
        )

    @abstractmethod
    def close(self) -> None:
        """End every worker."""

    @abstractmethod
    def _check_open(self) -> None:
        """Raise WorkerError if the pool is closed."""

    @abstractmethod
    def _start(self, w: int) -> None:
        """Start worker `w`, in place of the lost one if there was one. It first gives the answer STARTED."""

    @abstractmethod
    def _send(self, w: int, command: int, data: bytes) -> None:
        """Send an order with the current number; if the worker has ended, `_answer` finds that."""

    @abstractmethod
    def _answer(self, w: int, timeout: float | None) -> Answer | Loss:
        """Wait for the worker's answer to its last order."""

    @abstractmethod
    def _end(self, w: int) -> None:
        """Kill a worker."""

    def _built(self, w: int, timeout: float | None) -> Answer | Loss:
        """Wait until a worker has built its environments; one that cannot is ended, and lost."""
        started = self._answer(w, timeout)
        if isinstance(started, Answer) and started.failure is not None:
            self._end(w)
            return Loss(w, DIED, f"{self._description(w)}, cannot be started again: {started.failure.message}")
        return started

    def _order_one(self, w: int, command: int, data: bytes) -> None:
        self._numbers[w] = self._number
        self._send(w, command, data)

    def _answers(self, timeout: float | None) -> list[bytes | Loss]:
        """Wait for the workers' answers to the last order of each."""
        if timeout is None:
            answers = [self._answer(w, None) for w in self._all]
        else:
            until = time.monotonic() + timeout
            answers = [self._answer(w, max(until - time.monotonic(), 0.0)) for w in self._all]
        return [self._data(w, answer) for w, answer in zip(self._all, answers, strict=True)]

    def _data(self, w: int, answer: Answer | Loss) -> bytes | Loss:
        if isinstance(answer, Loss):
            return answer
        if answer.failure is not None:
            message, traceback = answer.failure
            raise EnvError(f"{message}\n\nThe traceback of {self._kind} {w}:\n{traceback}")
        return answer.data

    def _hung(self, w: int) -> Loss:
        """Kill a worker that did not answer in time; return the loss."""
        self._end(w)
        description = f"did not answer within {self._allowed:g} s ({self._limit})"
        if self._numbers[w] == STARTED:
            description = (
                f"did not build them within {self._starting:g} s ({self._limit}, and {STARTING:g} s to start): raise "
                f"{self._limit} if they take longer"
            )
        return Loss(w, TIMEOUT, f"{self._description(w)}, {description}")

    def _description(self, w: int) -> str:
        task = self._tasks[w]
        return f"{self._kind} {w}, which held environments {task.low} to {task.high - 1} ({task.source.name})"
