"""`collect="overlap"`: the thread that runs updates while the loop collects."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager

COLLECT = ("serial", "overlap")
TURN = 2e-4
"""Switch interval of Python threads in seconds. The default of 5 ms delays gradient passes, which run mostly outside
Python and only need it for moments."""


@contextmanager
def learning_thread(collect: str) -> Iterator[Executor | None]:
    """Yield the thread for updates, or None for collect="serial"; wait for the thread at the end."""
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
