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
_RAY = "ray._private.worker"
"""Module of the function that `ray.init` makes the handler of SIGTERM."""


class Interrupts:
    """Handles Ctrl-C and SIGTERM inside a `with` statement.

    asked: a signal has arrived; the training loop ends after the current step.
    leaving: a second signal has arrived; it raised KeyboardInterrupt at once.
    raised: a KeyboardInterrupt of another origin has ended training, such as a handler of the user.

    Python delivers signals to the main thread only, so in other threads nothing changes. Custom handlers of the user
    stay in place; the handler of `ray.init`, which exits at once, is replaced.
    """

    def __init__(self) -> None:
        """Start without any signal."""
        self.asked = self.leaving = self.raised = False
        self._before: dict[int, Any] = {}

    @property
    def came(self) -> bool:
        """Whether an interrupt has come, also one after the end of training."""
        return self.asked or self.raised

    def __enter__(self) -> Self:
        """Replace the handlers of Python and Ray."""
        if threading.current_thread() is threading.main_thread():
            for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
                handler = signal.getsignal(number)
                if handler == usual or getattr(handler, "__module__", None) == _RAY:
                    self._before[number] = signal.signal(number, self._come)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Restore the previous handlers."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _come(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: the first requests an orderly end, the second raises KeyboardInterrupt."""
        if self.asked:
            self.leaving = True
            raise KeyboardInterrupt
        self.asked = True
        with suppress(OSError, ValueError):  # stderr may be closed; the run must be saved in any case
            os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, _NOTICE)  # a buffered write may be under way
