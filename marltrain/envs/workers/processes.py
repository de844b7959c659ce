"""Worker processes of this machine: their start, their pipes and their end."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from marltrain.core.errors import WorkerError
from marltrain.envs.faults import DIED
from marltrain.envs.workers import worker
from marltrain.envs.workers.pool import Loss, WorkerPool
from marltrain.envs.workers.worker import Answer, Order, Task
from marltrain.processes.children import PATIENCE, fate, here_only, start, start_context, within_limits

FEWER = "Use fewer workers (num_workers), or fewer environments"


def worker_context() -> Any:
    """Return the multiprocessing context, see `start_context`; a fork server imports the worker module only once."""
    context = start_context('use vector="dummy"')
    if context.get_start_method() == "forkserver":
        context.set_forkserver_preload([worker.__name__])
    return context


class ProcessPool(WorkerPool):
    """Worker processes that read orders from a pipe and write into memory shared with this process."""

    def __init__(self, tasks: Sequence[Task], memory: Any, timeout: float | None = None) -> None:
        """Start the workers and wait until their environments are built; see `WorkerPool`."""
        super().__init__(tasks, timeout)
        self._memory = memory
        self._processes: list[Any] = []
        self._pipes: list[Connection] = []
        self._finish = weakref.finalize(self, here_only(_finish), self._processes, self._pipes)
        self._open()

    def close(self) -> None:
        """See WorkerPool."""
        self._finish()

    def _check_open(self) -> None:
        if not self._processes:
            raise WorkerError("the worker processes are closed; build a new vector environment")

    def _start(self, w: int) -> None:
        with within_limits(FEWER):
            process, pipe = start(worker_context(), worker.run, self._memory, self._tasks[w].to_bytes())
        if w < len(self._processes):
            self._processes[w].close()
            self._pipes[w].close()
            self._processes[w], self._pipes[w] = process, pipe
        else:
            self._processes.append(process)
            self._pipes.append(pipe)
        self._bind(w)

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
        with suppress(OSError):  # the worker has ended: `wait` finds that
            self._pipes[w].send_bytes(Order(self._number, command, data).to_bytes())

    def _answer(self, w: int, timeout: float | None) -> Answer | Loss:
        """See WorkerPool; a closed pipe means that the worker has ended."""
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

    def _end(self, w: int) -> None:
        self._processes[w].kill()
        self._processes[w].join()

    def _died(self, w: int) -> Loss:
        process = self._processes[w]
        process.join(PATIENCE)
        code = process.exitcode
        self._end(w)  # in case it has only closed its pipe
        return Loss(w, DIED, f"{self._description(w)}, {fate(code)}")


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
