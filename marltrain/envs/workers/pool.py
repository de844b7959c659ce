"""The parent's side of the worker processes: start, orders, answers, and lost workers."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import cloudpickle

from marltrain.children import PATIENCE, fate, here_only, start, start_context, within_limits
from marltrain.envs.faults import DIED, TIMEOUT
from marltrain.envs.workers import worker
from marltrain.envs.workers.worker import STARTED, STEP, Answer, Order, Task
from marltrain.errors import EnvError, WorkerError

FEWER = "Use fewer workers (num_workers), or fewer environments"
_STARTING = 60.0
"""Seconds, in addition to `env_timeout`, for a worker's start and the construction of its environments."""


def worker_context() -> Any:
    """Return the multiprocessing context, see `start_context`; a fork server imports the worker module only once."""
    context = start_context('use vector="dummy"')
    if context.get_start_method() == "forkserver":
        context.set_forkserver_preload([worker.__name__])
    return context


class Loss(NamedTuple):
    """A lost worker, which ended or was killed after a timeout: its number, the kind of fault, and a description."""

    worker: int
    kind: str
    description: str


class WorkerPool:
    """Worker processes, one per task. `order` sends an order to all or some of them; `wait` returns the answers."""

    def __init__(self, tasks: Sequence[Task], memory: Any, timeout: float | None = None) -> None:
        """Start the workers and wait until their environments are built. Raises ConfigError, EnvError or WorkerError.

        timeout: seconds that an order may take, and 60 s more for the start; None for no limit.
        """
        self._tasks, self._memory, self._timeout = list(tasks), memory, timeout
        self._starting = None if timeout is None else timeout + _STARTING
        self._processes: list[Any] = []
        self._pipes: list[Connection] = []
        self._all = range(len(self._tasks))
        self._number = STARTED
        self._numbers = [STARTED for _ in self._all]  # of each worker's last order
        self._finish = weakref.finalize(self, here_only(_finish), self._processes, self._pipes)
        try:
            for task in self._tasks:
                process, pipe = self._start(task)
                self._processes.append(process)
                self._pipes.append(pipe)
            for w in self._all:
                self._bind(w)
            for answer in self._answers(self._all, self._starting):
                if isinstance(answer, Loss):
                    raise self.error(answer)
        except BaseException:
            self.close()
            raise

    def order(self, command: int = STEP, data: bytes = b"", workers: range | None = None) -> None:
        """Send an order to all or some workers, see `worker.Order`; raises WorkerError if the pool is closed."""
        self._check_open()
        self._number += 1
        for w in self._all if workers is None else workers:
            self._send(w, command, data)

    def wait(self, orders: int = 1, workers: range | None = None) -> list[bytes | Loss]:
        """Wait for the answers of all or some workers; return the data of each, or the Loss of a worker.

        orders: the number of env steps in the last order; a factor of the timeout.
        Raises EnvError for the first worker that failed, and WorkerError if the pool is closed.
        """
        self._check_open()
        timeout = None if self._timeout is None else self._timeout * orders
        return self._answers(self._all if workers is None else workers, timeout)

    def replace(self, w: int, command: int, data: bytes) -> bytes | Loss:
        """Replace a lost worker, send an order to the new one, and return its answer as `wait` does."""
        process, pipe = self._start(self._tasks[w])
        self._processes[w].close()
        self._pipes[w].close()
        self._processes[w], self._pipes[w] = process, pipe
        self._bind(w)
        self._number += 1
        self._numbers[w] = STARTED
        started = self._answer(w, self._starting)
        if isinstance(started, Answer) and started.failure is not None:
            started = Loss(w, DIED, f"{self._description(w)}, cannot be started again: {started.failure.message}")
            process.join()
        if isinstance(started, Loss):
            return started
        self._send(w, command, data)
        return self._data(w, self._answer(w, self._timeout))

    def error(self, loss: Loss) -> WorkerError:
        """Close all workers; return the error to raise for a loss that is not survived."""
        self.close()
        return WorkerError(
            f"{loss.description}. If it ran out of memory, use fewer environments or workers; "
            'vector="dummy" runs the environments in this process, where a debugger sees them.'
        )

    def close(self) -> None:
        """End every worker."""
        self._finish()

    def _check_open(self) -> None:
        if not self._processes:
            raise WorkerError("the worker processes are closed; build a new vector environment")

    def _start(self, task: Task) -> tuple[Any, Connection]:
        with within_limits(FEWER):
            return start(worker_context(), worker.run, self._memory, cloudpickle.dumps(task))

    def _bind(self, w: int) -> None:
        """Bind a worker to its own core if there are exactly as many cores as workers.

        Without binding, the system often wakes two workers on the same core. With fewer workers than cores there is no
        binding, because other programs may need the same cores.
        """
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else []
        if len(cores) == len(self._tasks):
            with suppress(ProcessLookupError):  # the worker has ended: `wait` finds that
                os.sched_setaffinity(self._processes[w].pid, {cores[w]})

    def _send(self, w: int, command: int, data: bytes) -> None:
        self._numbers[w] = self._number
        with suppress(OSError):  # the worker has ended: `wait` finds that
            self._pipes[w].send_bytes(Order(self._number, command, data).to_bytes())

    def _answers(self, workers: range, timeout: float | None) -> list[bytes | Loss]:
        """Wait for the workers' answers to the last order of each."""
        if timeout is None:
            answers = [self._answer(w, None) for w in workers]
        else:
            until = time.monotonic() + timeout
            answers = [self._answer(w, max(until - time.monotonic(), 0.0)) for w in workers]
        return [self._data(w, answer) for w, answer in zip(workers, answers, strict=True)]

    def _answer(self, w: int, timeout: float | None) -> Answer | Loss:
        """Wait for a worker's answer to its last order; a closed pipe means that the worker has ended."""
        number = self._numbers[w]
        try:
            while True:
                if timeout is not None and not self._pipes[w].poll(timeout):
                    return self._hung(w)
                answer = Answer.from_bytes(self._pipes[w].recv_bytes())
                if answer.number == number:
                    return answer
        except (EOFError, OSError):
            return self._died(w)

    @staticmethod
    def _data(w: int, answer: Answer | Loss) -> bytes | Loss:
        if isinstance(answer, Loss):
            return answer
        if answer.failure is not None:
            message, traceback = answer.failure
            raise EnvError(f"{message}\n\nThe traceback of worker {w}:\n{traceback}")
        return answer.data

    def _hung(self, w: int) -> Loss:
        self._processes[w].kill()
        self._processes[w].join()
        description = f"did not answer within {self._timeout:g} s (env_timeout)"
        if self._numbers[w] == STARTED:
            description = (
                f"did not build them within {self._starting:g} s (env_timeout, and {_STARTING:g} s to start): raise "
                "env_timeout if they take longer"
            )
        return Loss(w, TIMEOUT, f"{self._description(w)}, {description}")

    def _died(self, w: int) -> Loss:
        process = self._processes[w]
        process.join(PATIENCE)
        code = process.exitcode
        process.kill()  # in case it has only closed its pipe
        process.join()
        return Loss(w, DIED, f"{self._description(w)}, {fate(code)}")

    def _description(self, w: int) -> str:
        task = self._tasks[w]
        return f"worker {w}, which held environments {task.low} to {task.high - 1} ({task.source.name})"


def _finish(processes: list[Any], pipes: list[Connection]) -> None:
    """End all workers: close their pipes, which ends a worker; kill those that do not end in time."""
    while pipes:
        pipes.pop().close()
    until = time.monotonic() + PATIENCE  # one deadline for all: they end concurrently
    for process in processes:
        process.join(max(until - time.monotonic(), 0.0))
        if process.is_alive():
            process.kill()
            process.join()
        process.close()
    processes.clear()
