"""A run that trains in a thread, while the test attaches to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import marltrain as mt
from tests.trainer.running import trainer

PAUSE = 0.01
"""Seconds between two batch steps: the run shall not take the processor from those who are attached to it."""
LIMIT = 60.0
"""Seconds that a run may take to end."""


class Background:
    """Trains agents in a thread inside a `with` block; at its end the run is stopped, if it still goes on.

    result: of `train`, after the block.  error: of the run.
    """

    def __init__(self, agents: Sequence[Any], mask: Sequence[int] | None = None, **settings: Any) -> None:
        self._begun = threading.Event()
        begun = mt.LambdaCallback(on_collect=self._collected)
        given = {"steps_per_train": 10**9, "run_dir": False, "test_freq": None, **settings}
        given["callbacks"] = [*given.get("callbacks", ()), begun]
        self.agents, self.trainer = list(agents), trainer(**given)
        self._mask = mask or [1] * len(agents)
        self.result: dict[str, Any] = {}
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._train, daemon=True)

    def _collected(self, moment: mt.Moment) -> None:
        self._begun.set()
        time.sleep(PAUSE)

    def _train(self) -> None:
        try:
            self.result = self.trainer.train(self.agents, self._mask, plot=False)
        except BaseException as error:
            self.error = error
        finally:
            self._begun.set()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._begun.wait(LIMIT)
        if self.error is not None:
            raise self.error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.trainer.stop("the test is over")
        self._thread.join(LIMIT)
        assert not self._thread.is_alive()
        if error is None and self.error is not None:
            raise self.error
