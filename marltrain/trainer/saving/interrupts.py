"""Ctrl-C and SIGTERM in training: the first requests an orderly end, the second exits at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Self

_NOTICE = b"\nmarltrain: finishing this step and saving; interrupt once more to leave at once\n"


class Interrupts:
    """Notes the signals that ask a process to end, inside a `with` statement.

    asked: one has come: whoever runs the loop ends it after the step.  leaving: a second one has come, and raised
    KeyboardInterrupt where it fell.

    Python tells signals to the main thread only: in another one nothing is changed, nor are handlers of the user's own.
    """

    def __init__(self) -> None:
        """Nothing has come."""
        self.asked = self.leaving = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        """Take the place of Python's own handlers."""
        if threading.current_thread() is threading.main_thread():
            for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
                if signal.getsignal(number) == usual:
                    self._before[number] = signal.signal(number, self._come)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Put the handlers back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _come(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            self.leaving = True
            raise KeyboardInterrupt
        self.asked = True
        with suppress(OSError, ValueError):  # nobody may be left to read it: the run is to be saved all the same
            os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, _NOTICE)  # a buffered file may be in mid-write
