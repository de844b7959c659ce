"""A bar for work before training that takes long."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

PATIENCE = 2.0
"""Seconds after which a bar is shown."""

Item = TypeVar("Item")


def shown_if_slow(items: Sequence[Item], what: str) -> Iterator[Item]:
    """Yield items; from 2 seconds on, show on stderr how many of them have been dealt with. what: the bar's title."""
    started, done = time.perf_counter(), 0
    for item in items:
        if sys.stderr is not None and time.perf_counter() - started > PATIENCE:
            break
        yield item
        done += 1
    if done == len(items):
        return
    from tqdm import tqdm

    with tqdm(total=len(items), initial=done, desc=what, leave=False, file=sys.stderr) as bar:
        for item in items[done:]:
            yield item
            bar.update()
