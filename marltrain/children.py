"""What all child processes have in common: how they are started, and how the end of one is told."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
import types
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import wait

PATIENCE = 3.0
"""Seconds that a child gets to end by itself when its parent has closed its pipe, or is gone."""


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
