"""Child processes: their start, their end together with the parent, and reports of their end."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from typing import Any

from marltrain.core.errors import ConfigError, WorkerError

PATIENCE = 3.0
"""Seconds that a child has to end by itself after its parent has closed the pipe or has ended."""
_LOADED_IN = os.getpid()
"""Id of the process that loaded this module; `os.getpid()` differs in forked processes."""

_SAFE_PATH, _OURS = "PYTHONSAFEPATH", "marltrain"
"""Variable that keeps Python from importing from the working folder, and the value that `safe_path` sets."""


def start_context(advice: str) -> Any:
    """Return the multiprocessing context for children: "forkserver" if available, else "spawn".

    A forked process (os.fork, ProcessPoolExecutor) uses "spawn": the fork server is a child of its parent process, so
    the forked process cannot wait for it.
    Raises ConfigError in a daemonic process, with `advice` on how to avoid child processes.
    """
    if multiprocessing.current_process().daemon:
        raise ConfigError(
            "daemonic processes, such as workers of multiprocessing.Pool, cannot start child processes: "
            f"{advice}, or use a process that is not daemonic, such as one of ProcessPoolExecutor"
        )
    served = "forkserver" in multiprocessing.get_all_start_methods() and os.getpid() == _LOADED_IN
    return multiprocessing.get_context("forkserver" if served else "spawn")


def start(context: Any, serve: Callable[..., None], *args: Any) -> tuple[Any, Connection]:
    """Start a child process that calls `serve(pipe, *args)`; return the process and the parent's end of the pipe."""
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, *args), daemon=True)
    with without_main(), safe_path():
        process.start()
    theirs.close()
    return process, ours


@contextmanager
def within_limits(advice: str) -> Iterator[None]:
    """Turn an OSError, such as a limit of processes or open files, into a WorkerError with `advice`."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.EMFILE, errno.ENFILE)
        limit = ", raise the limit of open files (ulimit -n), or close what this program holds open" if full else ""
        raise WorkerError(f"a worker process cannot be started: {error}. {advice}{limit}") from error


def here_only(work: Callable[..., None]) -> Callable[..., None]:
    """Return a function that calls `work` in this process only, not in forked ones: only a parent ends its children."""
    process = os.getpid()

    def work_here(*args: Any) -> None:
        if os.getpid() == process:
            work(*args)

    return work_here


@contextmanager
def without_main() -> Iterator[None]:
    """Keep children started inside the `with` block from importing the user's script again.

    Objects of the script are sent with cloudpickle. So a script needs no `if __name__ == "__main__":`, and children do
    not load a learning framework that the script imports.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextmanager
def safe_path() -> Iterator[None]:
    """Keep helper processes started inside the `with` block from importing modules of the working folder.

    The fork server and similar helpers run `python -c`, which searches the working folder first. Children use the
    search path of their parent.
    """
    if os.environ.get(_SAFE_PATH):
        yield
        return
    os.environ[_SAFE_PATH] = _OURS
    try:
        yield
    finally:
        del os.environ[_SAFE_PATH]


def settle() -> None:
    """Set up a child process: ignore Ctrl-C and SIGTERM, and do not pass `safe_path` on to programs that it starts."""
    leave_signals_to_the_parent()
    if os.environ.get(_SAFE_PATH) == _OURS:
        del os.environ[_SAFE_PATH]


def fate(code: int | None) -> str:
    """Return a description of how a process ended, given its exit code; None: it has not ended."""
    if code is None:
        return "stopped answering"
    if code < 0:
        return f"was killed by signal {-code} ({signal.Signals(-code).name})"
    return f"ended with exit code {code}"


def leave_signals_to_the_parent() -> None:
    """Ignore Ctrl-C and SIGTERM, which a terminal sends to the whole process group; the parent handles them.

    SIGTERM is ignored by a handler. Programs that an environment starts do not inherit it, so SIGTERM can end them.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: None)


def end_with_the_parent(patience: float = PATIENCE) -> None:
    """End this child process `patience` seconds after its parent has ended, if it still runs then.

    A killed parent cannot send a message, and a child that computes or waits does not read its pipe.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_outlive, args=(parent.sentinel, patience), daemon=True).start()


def _outlive(parent: int, patience: float) -> None:
    wait([parent])
    time.sleep(patience)
    os._exit(1)
