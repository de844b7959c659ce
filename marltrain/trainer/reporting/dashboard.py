"""Dashboard: the state of a run in a terminal or notebook, with curves, returns and losses."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Literal

from marltrain.trainer.events.callbacks import Callback, Moment
from marltrain.trainer.events.due import Budgets
from marltrain.trainer.reporting.progress import ProgressPrinter
from marltrain.trainer.reporting.run_view import RunView
from marltrain.trainer.reporting.screens import Screen

DASHBOARD = "dashboard"
Display = ProgressPrinter | Literal["dashboard"] | None
"""Kind of the progress display: lines at an interval, a dashboard, or (None) a bar."""
INTERVAL, LONGEST = 0.5, 5.0
"""Minimum and maximum seconds between two drawings."""
DRAWING_SHARE = 0.004
"""Maximum fraction of the processor time that drawing takes, within these intervals."""


class Dashboard(Callback):
    """Draws the state of a run; `point` takes the scalars that a logger of the run computes.

    budgets: budgets of the run.  screen: where it is drawn; if its output is closed, nothing is shown and training
    continues.  title: upper edge of the dashboard.
    """

    only_watches = True

    def __init__(self, budgets: Budgets, screen: Screen, title: str) -> None:
        """Start with an empty view."""
        self._screen: Screen | None = screen
        self._view = RunView(title, vars(budgets))
        self._drawn_at, self._cost = (-LONGEST, 0.0), 0.0  # (time, processor time) of the last drawing, and its cost

    def point(self, scalars: Mapping[str, float], env_steps: int) -> None:
        """Take a point of a logger."""
        self._view.add(scalars, env_steps)

    def on_train_start(self, moment: Moment) -> None:
        """Draw an empty dashboard."""
        self._show(moment)

    def on_collect(self, moment: Moment) -> None:
        """Draw if it is due."""
        self._show_if_due(moment)

    def on_test_start(self, moment: Moment) -> None:
        """Note that a test has started."""
        self._view.note = f"testing 0/{moment.data['episodes']:,} episodes"
        self._show_if_due(moment)

    def on_test_step(self, moment: Moment) -> None:
        """Note how far the test is."""
        if self._is_due():
            self._view.note = f"testing {moment.data['finished']:,}/{moment.data['episodes']:,} episodes"
            self._show(moment)

    def on_test_end(self, moment: Moment) -> None:
        """Forget the note."""
        self._view.note = ""

    def on_train_end(self, moment: Moment) -> None:
        """Draw the last state."""
        self._view.note = f"ended: {moment.data['reason']}"
        self._show(moment)
        if self._screen is not None:
            self._screen.close()
            self._screen = None

    def state_dict(self) -> dict[str, Any]:
        """Return the latest numbers and the curves."""
        return self._view.state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._view.restore(state)

    def _show_if_due(self, moment: Moment) -> None:
        if self._is_due():
            self._show(moment)

    def _is_due(self) -> bool:
        """Return whether the last drawing is long enough ago that another one takes a small share of the time."""
        waited = time.perf_counter() - self._drawn_at[0]
        if not INTERVAL <= waited < LONGEST:
            return waited >= LONGEST
        return time.process_time() - self._drawn_at[1] >= self._cost / DRAWING_SHARE

    def _show(self, moment: Moment) -> None:
        """Draw now."""
        if self._screen is None:
            return
        view, before = self._view, time.thread_time()
        view.count(moment.episodes, moment.env_steps, moment.updates, moment.seconds)
        try:
            self._screen.show(view)
        except (OSError, ValueError):
            self._screen = None
        self._drawn_at, self._cost = (time.perf_counter(), time.process_time()), time.thread_time() - before
