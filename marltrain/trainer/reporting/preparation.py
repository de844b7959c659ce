"""Progress bar for slow steps before training."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TextIO, TypeVar

PATIENCE = 2.0
"""Seconds after which the bar appears."""

Item = TypeVar("Item")


class _Unread:
    """A text file that ignores writes if its reader is gone (OSError) or it is closed (ValueError)."""

    def __init__(self, file: TextIO) -> None:
        self._file, self.encoding = file, getattr(file, "encoding", "ascii")

    def write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            self._file.write(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._file.flush()


def shown_if_slow(items: Sequence[Item], what: str) -> Iterator[Item]:
    """Yield the items; after 2 seconds show a bar of the processed items in a terminal. what: title of the bar."""
    started, done, terminal = time.perf_counter(), 0, _in_a_terminal()
    for item in items:
        if terminal and time.perf_counter() - started > PATIENCE:
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


def _in_a_terminal() -> bool:
    """Return whether stderr is a terminal; it may be closed or absent."""
    try:
        return sys.stderr is not None and sys.stderr.isatty()
    except ValueError:
        return False
