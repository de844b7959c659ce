"""Notices of long compilations to listeners, with the seconds at the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

TOLD_AFTER = 1.0
"""Seconds after which a compilation is told: what a cache on disk answers takes less."""
_LISTENERS: list[Callable[[str], None]] = []


@contextmanager
def listening(listener: Callable[[str], None]) -> Iterator[None]:
    """Have `listener` called with each line, meanwhile; it may be called from another thread."""
    _LISTENERS.append(listener)
    try:
        yield
    finally:
        _LISTENERS.remove(listener)


class Compilation:
    """One compilation under way. It is told where it takes longer than `TOLD_AFTER`, and once more when it is done."""

    def __init__(self, what: str) -> None:
        """Start the clock."""
        self._what, self._started = what, time.perf_counter()
        self._told, self._lock = False, threading.Lock()
        self._timer = threading.Timer(TOLD_AFTER, self._tell)
        self._timer.daemon = True
        if _LISTENERS:
            self._timer.start()

    def done(self) -> None:
        """Stop the clock."""
        self._timer.cancel()
        with self._lock:
            if self._told:
                _say(f"compiled {self._what} in {time.perf_counter() - self._started:.1f} s")
            self._told = True  # a timer that was late tells nothing

    def _tell(self) -> None:
        with self._lock:
            if not self._told:
                self._told = True
                _say(f"compiling {self._what} ...")


@contextmanager
def compiling(what: str) -> Iterator[None]:
    """Tell of a compilation that takes long."""
    under_way = Compilation(what)
    try:
        yield
    finally:
        under_way.done()


def _say(line: str) -> None:
    for listener in list(_LISTENERS):
        listener(line)
