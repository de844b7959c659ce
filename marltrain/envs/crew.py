"""The parent's side of the worker processes: starting them, waiting for them, telling what befell them."""

from __future__ import annotations

import multiprocessing
import os
import weakref
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, NoReturn

import cloudpickle

from marltrain.children import fate, without_main
from marltrain.envs import worker
from marltrain.envs.worker import STARTED, STEP, Answer, Order, Task
from marltrain.errors import EnvError, WorkerError

_PATIENCE = 5.0
"""Seconds that a worker gets to close its environments before it is ended."""


def worker_context() -> Any:
    """Return the multiprocessing context: a fork server that has imported the worker once, or else plain spawning."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([worker.__name__])
    return context


class Crew:
    """Worker processes, one for each task. All are given the same orders, and then all are waited for."""

    def __init__(self, tasks: Sequence[Task], memory: Any) -> None:
        """Start the workers and wait until their environments are built. Raises EnvError or WorkerError."""
        self._tasks = list(tasks)
        self._processes: list[Any] = []
        self._pipes: list[Connection] = []
        self._number = STARTED
        self._finish = weakref.finalize(self, _finish, self._processes, self._pipes)
        try:
            for task in self._tasks:
                self._start(task, memory)
            self._spread()
            self.wait()
        except BaseException:
            self.close()
            raise

    def order(self, what: int = STEP, data: bytes = b"") -> None:
        """Give every worker an order, see `worker.Order`; raises WorkerError when one is gone."""
        if not self._processes:
            raise WorkerError("the worker processes are closed; build a new vector environment")
        self._number += 1
        for w, pipe in enumerate(self._pipes):
            try:
                pipe.send_bytes(Order(self._number, what, data).packed())
            except OSError:
                self._died(w)

    def wait(self) -> list[bytes]:
        """Wait for every worker's answer and return the data in them.

        Raises EnvError for the first that failed, WorkerError when one is gone.
        """
        answers = [self._answer(w) for w in range(len(self._pipes))]
        for w, answer in enumerate(answers):
            if answer.failure is not None:
                message, traceback = answer.failure
                raise EnvError(f"{message}\n\nThe traceback of worker {w}:\n{traceback}")
        return [answer.data for answer in answers]

    def close(self) -> None:
        """End every worker."""
        self._finish()

    def _start(self, task: Task, memory: Any) -> None:
        context = worker_context()
        ours, theirs = context.Pipe()
        process = context.Process(target=worker.run, args=(theirs, memory, cloudpickle.dumps(task)), daemon=True)
        with without_main():
            process.start()
        theirs.close()
        self._processes.append(process)
        self._pipes.append(ours)

    def _spread(self) -> None:
        """Give each worker a core of its own, where there are exactly as many.

        Where the system may choose, it often wakes two workers on one core. With fewer workers than cores it is left
        alone: other programs may want the same ones.
        """
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else []
        if len(cores) != len(self._processes):
            return
        for core, process in zip(cores, self._processes, strict=True):
            os.sched_setaffinity(process.pid, {core})

    def _answer(self, w: int) -> Answer:
        """Wait for a worker's answer to the last order; a pipe that ends tells that the worker did."""
        try:
            while True:
                answer = Answer.unpacked(self._pipes[w].recv_bytes())
                if answer.number == self._number:
                    return answer
        except (EOFError, OSError):
            self._died(w)

    def _died(self, w: int) -> NoReturn:
        process, task = self._processes[w], self._tasks[w]
        process.join(_PATIENCE)
        code = process.exitcode
        self.close()
        raise WorkerError(
            f"worker {w}, which held environments {task.low} to {task.high - 1} ({task.source.name}), {fate(code)}. "
            "If it ran out of memory, use fewer environments or workers; "
            'vector="dummy" runs the environments in this process, where a debugger sees them.'
        )


def _finish(processes: list[Any], pipes: list[Connection]) -> None:
    """A closed pipe tells a worker to close its environments and end; one that does not is ended."""
    while pipes:
        pipes.pop().close()
    for process in processes:
        process.join(_PATIENCE)
        if process.is_alive():
            process.kill()
            process.join()
        process.close()
    processes.clear()
