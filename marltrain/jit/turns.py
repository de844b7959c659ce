"""One process at a time compiles a program; the others wait, and load its machine code from disk."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None

LOCK = "compiling.lock"
"""Empty file in the folder of a program, which the process that compiles it has locked."""
PATIENCE = 60.0
"""Seconds that a process waits for another one; then both compile. A stopped process holds its lock."""
PAUSE = 0.02
"""Seconds between two attempts to lock."""


@contextmanager
def turn(folder: Path, patience: float = PATIENCE) -> Iterator[bool]:
    """Lock a folder for the `with` block, or wait for the process that has locked it; return whether it is locked.

    The lock saves work and does nothing else: a system without locks, or a folder that cannot be written, has none.
    It belongs to this process alone, not to its children, and ends with it.
    """
    file = None
    with suppress(OSError):
        file = os.open(folder / LOCK, os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        yield file is not None and _locked(file, time.monotonic() + patience)
    finally:
        if file is not None:
            os.close(file)


def _locked(file: int, deadline: float) -> bool:
    while fcntl is not None:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):  # systems differ in the error of a lock that is held
            if time.monotonic() > deadline:
                return False
            time.sleep(PAUSE)
        except OSError:  # a file system without locks
            return False
        else:
            return True
    return False
