"""Progress of long work before training."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TextIO, TypeVar

PATIENCE = 2.0
"""Seconds after which a bar is shown."""

Item = TypeVar("Item")


class _Unread:
    """A text file whose reader may be gone (OSError), or that may be closed (ValueError): nothing is shown then."""

    def __init__(self, file: TextIO) -> None:
        self._file, self.encoding = file, getattr(file, "encoding", "ascii")

    def write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            self._file.write(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._file.flush()


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

    width, shown = shutil.get_terminal_size().columns - 1, _Unread(sys.stderr)
    with tqdm(total=len(items), initial=done, desc=what, leave=False, file=shown, ncols=width) as bar:
        for item in items[done:]:
            yield item
            bar.update()
