"""Child processes: how they start, how they end with their parent, and how their end is reported."""

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

from marltrain.errors import ConfigError, WorkerError

PATIENCE = 3.0
"""Seconds that a child gets to end by itself when its parent has closed its pipe, or is gone."""
_LOADED_IN = os.getpid()
"""The process that loaded this module. In a process that it forked, `os.getpid()` differs."""

_SAFE_PATH, _OURS = "PYTHONSAFEPATH", "marltrain"
"""The variable that keeps Python from importing from the working folder, and the value that `safe_path` gives it."""


def start_context(advice: str) -> Any:
    """Return the multiprocessing context that children are started by: a fork server, or else plain spawning.

    A forked process (os.fork, ProcessPoolExecutor) spawns: the fork server is a child of its parent, and it cannot
    wait for it.
    Raises ConfigError in a daemonic process, with `advice` on how to do without children.
    """
    if multiprocessing.current_process().daemon:
        raise ConfigError(
            "this process is daemonic, as workers of multiprocessing.Pool are, and Python lets such a process start no "
            f"others: {advice}, or use a process that is not daemonic, such as one of ProcessPoolExecutor"
        )
    served = "forkserver" in multiprocessing.get_all_start_methods() and os.getpid() == _LOADED_IN
    return multiprocessing.get_context("forkserver" if served else "spawn")


def start(context: Any, serve: Callable[..., None], *args: Any) -> tuple[Any, Connection]:
    """Start a child that calls `serve(pipe, *args)`; return it, and this process's end of the pipe."""
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, *args), daemon=True)
    with without_main(), safe_path():
        process.start()
    theirs.close()
    return process, ours


@contextmanager
def within_limits(advice: str) -> Iterator[None]:
    """Raise a WorkerError with `advice` where the system starts no more processes, or opens no more files."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.EMFILE, errno.ENFILE)
        limit = ", raise the limit of open files (ulimit -n), or close what this program holds open" if full else ""
        raise WorkerError(f"a worker process cannot be started: {error}. {advice}{limit}") from error


def here_only(work: Callable[..., None]) -> Callable[..., None]:
    """Return `work`, which does nothing in a process that this one forks: children are their own parent's to end."""
    process = os.getpid()

    def work_here(*args: Any) -> None:
        if os.getpid() == process:
            work(*args)

    return work_here


@contextmanager
def without_main() -> Iterator[None]:
    """Keep a child that starts meanwhile from importing the user's script a second time.

    What it needs of the script travels by cloudpickle. So a script needs no `if __name__ == "__main__":`, and one that
    imports a learning framework does not have it loaded in every child.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextmanager
def safe_path() -> Iterator[None]:
    """Keep the fork server and its like, if they start meanwhile, from importing modules of the working folder.

    They are commands of `python -c`, which looks there first. Children search where their parent does.
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
    """Begin a child's life: leave signals to the parent, and pass no `safe_path` on to programs that it starts."""
    leave_signals_to_the_parent()
    if os.environ.get(_SAFE_PATH) == _OURS:
        del os.environ[_SAFE_PATH]


def fate(code: int | None) -> str:
    """Say in words how a process ended, given its exit code; None: it has not."""
    if code is None:
        return "stopped answering"
    if code < 0:
        return f"was killed by signal {-code} ({signal.Signals(-code).name})"
    return f"ended with exit code {code}"


def leave_signals_to_the_parent() -> None:
    """Pass over Ctrl-C and SIGTERM, which reach a whole terminal or group: the parent decides what they mean.

    SIGTERM by a handler, which programs that an environment starts do not inherit: they can be ended by it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: None)


def end_with_the_parent(patience: float = PATIENCE) -> None:
    """End this child when its parent is gone, whatever it is in the middle of, unless it has ended `patience` s later.

    A parent that is killed cannot tell; and a child that computes, or waits for another, does not look at its pipe.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_outlive, args=(parent.sentinel, patience), daemon=True).start()


def _outlive(parent: int, patience: float) -> None:
    wait([parent])
    time.sleep(patience)
    os._exit(1)
