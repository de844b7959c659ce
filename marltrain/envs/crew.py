"""The parent's side of the worker processes: starting them, waiting for them, telling what befell them."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import types
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from typing import Any, NoReturn

import cloudpickle

from marltrain.envs import worker
from marltrain.envs.worker import STARTED, Answer, Failure, Order, Task
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
            self.wait()
        except BaseException:
            self.close()
            raise

    def order(self, seed: int | None = None) -> None:
        """Have every worker reset to a seed, or step; raises WorkerError when one is gone."""
        if not self._processes:
            raise WorkerError("the worker processes are closed; build a new vector environment")
        self._number += 1
        for w, pipe in enumerate(self._pipes):
            try:
                pipe.send(Order(self._number, seed))
            except OSError:
                self._died(w)

    def wait(self) -> None:
        """Wait for every worker's answer; raises EnvError for the first that failed, WorkerError when one is gone."""
        waiting = dict(enumerate(self._pipes))
        failures: dict[int, Failure] = {}
        while waiting:
            ready = wait([*waiting.values(), *(self._processes[w].sentinel for w in waiting)])
            for w in list(waiting):
                if waiting[w] not in ready and self._processes[w].sentinel not in ready:
                    continue
                answer = self._answer(w)
                if answer.number == self._number:
                    del waiting[w]
                    if answer.failure is not None:
                        failures[w] = answer.failure
        if failures:
            w = min(failures)
            raise EnvError(f"{failures[w].message}\n\nThe traceback of worker {w}:\n{failures[w].traceback}")

    def close(self) -> None:
        """End every worker."""
        self._finish()

    def _start(self, task: Task, memory: Any) -> None:
        context = worker_context()
        ours, theirs = context.Pipe()
        process = context.Process(target=worker.run, args=(theirs, memory, cloudpickle.dumps(task)), daemon=True)
        with _without_main():
            process.start()
        theirs.close()
        self._processes.append(process)
        self._pipes.append(ours)

    def _answer(self, w: int) -> Answer:
        """Read one answer; a worker whose sentinel fired may have left a last one in the pipe."""
        try:
            if self._pipes[w].poll(0):
                answer: Answer = self._pipes[w].recv()
                return answer
        except (EOFError, OSError):
            pass
        self._died(w)

    def _died(self, w: int) -> NoReturn:
        process, task = self._processes[w], self._tasks[w]
        process.join(_PATIENCE)
        code = process.exitcode
        self.close()
        raise WorkerError(
            f"worker {w}, which held environments {task.low} to {task.high - 1} ({task.source.name}), {_fate(code)}. "
            "If it ran out of memory, use fewer environments or workers; "
            'vector="dummy" runs the environments in this process, where a debugger sees them.'
        )


def _fate(code: int | None) -> str:
    if code is None:
        return "stopped answering"
    if code < 0:
        return f"was killed by signal {-code} ({signal.Signals(-code).name})"
    return f"ended with exit code {code}"


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


@contextmanager
def _without_main() -> Iterator[None]:
    """Keep a starting worker from importing the user's script a second time.

    What it needs of the script travels by cloudpickle. So a script needs no `if __name__ == "__main__":`, and one that
    imports a learning framework does not have it loaded in every worker.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
