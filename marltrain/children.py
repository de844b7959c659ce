"""What all child processes have in common: how they are started, and how the end of one is told."""

from __future__ import annotations

import signal
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager


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
