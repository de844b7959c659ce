"""Notices, such as of long compilations, sent to listeners; the final notice holds the duration."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from marltrain.core.errors import printable

TOLD_AFTER = 1.0
"""Seconds after which a compilation is announced; loading from the disk cache is faster."""
_LISTENERS: list[Callable[[str], None]] = []


@contextmanager
def listening(listener: Callable[[str], None]) -> Iterator[None]:
    """Send each notice to `listener` inside the `with` block, possibly from another thread."""
    _LISTENERS.append(listener)
    try:
        yield
    finally:
        _LISTENERS.remove(listener)


class Compilation:
    """One running compilation; notices are sent after `TOLD_AFTER` seconds and at the end, if it takes so long."""

    def __init__(self, what: str) -> None:
        """Start the timer."""
        self._what, self._started = what, time.perf_counter()
        self._announced, self._lock = False, threading.Lock()
        self._timer = threading.Timer(TOLD_AFTER, self._tell)
        self._timer.daemon = True
        if _LISTENERS:
            self._timer.start()

    def done(self) -> None:
        """Stop the timer; send the final notice if the compilation was announced."""
        self._timer.cancel()
        with self._lock:
            if self._announced:
                tell(f"compiled {self._what} in {time.perf_counter() - self._started:.1f} s")
            self._announced = True  # keeps a late timer from sending a notice

    def _tell(self) -> None:
        with self._lock:
            if not self._announced:
                self._announced = True
                tell(f"compiling {self._what} ...")


@contextmanager
def compiling(what: str) -> Iterator[None]:
    """Send notices of the compilation in the `with` block if it takes long."""
    under_way = Compilation(what)
    try:
        yield
    finally:
        under_way.done()


def tell(line: str) -> None:
    """Send a notice to the listeners."""
    for listener in list(_LISTENERS):
        listener(printable(line))
