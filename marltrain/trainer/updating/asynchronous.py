"""`collect="overlap"`: the thread of updates that run while the loop collects."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager

COLLECT = ("serial", "overlap")
TURN = 2e-4
"""Seconds after which a thread that runs Python lets the other in: a gradient pass, most of which needs no Python, is
not to wait for Python's 5 ms."""


@contextmanager
def learning_thread(collect: str) -> Iterator[Executor | None]:
    """Yield the thread for updates, or None where they are made between two steps; wait for it in the end."""
    if collect == "serial":
        yield None
        return
    before = sys.getswitchinterval()
    sys.setswitchinterval(TURN)
    try:
        with ThreadPoolExecutor(1, thread_name_prefix="marltrain-learning") as thread:
            yield thread
    finally:
        sys.setswitchinterval(before)
