"""Threads that run a compiled program together with the calling thread."""

from __future__ import annotations

import ctypes
import functools
import os
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any


@functools.cache
def give_way() -> int:
    """Return the address of `sched_yield`, by which a waiting thread lets other threads run; 0 except on POSIX."""
    if os.name != "posix":
        return 0
    return ctypes.cast(ctypes.CDLL(None).sched_yield, ctypes.c_void_p).value or 0


class Threads:
    """Threads for a program of (address, number of the thread), which start at the first use.

    The program must not wait for a thread that has not started yet.
    """

    def __init__(self) -> None:
        """Start no threads."""
        self._pool: ThreadPoolExecutor | None = None
        self._others: list[Future[int]] = []

    def run(self, program: Any, address: int, threads: int) -> None:
        """Run a program in the calling thread, number 0, and in `threads` - 1 others; return when all are done."""
        if self._others:  # a second Ctrl-C interrupted the wait at the end of the last call
            wait(self._others)
            self._others.clear()
        if threads == 1:
            program(address, 0)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="marltrain-passes")
        try:
            for thread in range(1, threads):
                self._others.append(self._pool.submit(program, address, thread))
            program(address, 0)
        finally:
            wait(self._others)  # after Ctrl-C too: the threads write to the caller's arrays
        for other in self._others:
            other.result()
        self._others.clear()

    def close(self) -> None:
        """End the threads; the next run starts new ones."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
