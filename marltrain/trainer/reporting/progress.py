"""Progress of training: a bar in a terminal, lines elsewhere."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from types import NoneType
from typing import TYPE_CHECKING, Any, TextIO

from marltrain.core.errors import ConfigError, in_line
from marltrain.core.settings import checked_arguments, setting, validate
from marltrain.jit.notices import listening
from marltrain.storage.checks import of_type
from marltrain.trainer.events.callbacks import Callback, Moment
from marltrain.trainer.events.due import Budgets
from marltrain.trainer.reporting.progress_text import State, beside_bar, line
from marltrain.trainer.reporting.speed import Speed

if TYPE_CHECKING:
    from tqdm import tqdm

BAR = "{{percentage:3.0f}}%|{{bar:{}}}| {{desc}}"
NO_BAR = "{percentage:3.0f}% {desc}"
BAR_INTERVAL = 0.1
LINE_INTERVAL = 30.0


@dataclass(frozen=True, kw_only=True)
class _Settings:
    every_seconds: float | None = setting(None, doc="seconds between lines", above=0)
    every_episodes: int | None = setting(None, doc="training episodes between lines", low=1)


class ProgressPrinter:
    """Prints progress as plain lines, also in a terminal: `progress=ProgressPrinter(every_seconds=60)`.

    every_seconds, every_episodes: intervals in seconds and training episodes. Give at least one; the first one reached
    counts.

    Raises ConfigError for a wrong argument.
    """

    @checked_arguments
    def __init__(self, *, every_seconds: float | None = None, every_episodes: int | None = None) -> None:
        """Check the arguments."""
        self.settings = _Settings(every_seconds=every_seconds, every_episodes=every_episodes)
        validate(self.settings, "ProgressPrinter")
        if every_seconds is None and every_episodes is None:
            raise ConfigError("ProgressPrinter: give an interval: every_seconds= or every_episodes=")


@contextmanager
def announced(wanted: Any) -> Iterator[None]:
    """Show notices of long compilations on stderr, above the bar; nothing if `wanted` is False."""
    with listening(_Lines()) if wanted else nullcontext():
        yield


class _Lines:
    """Writes lines to stderr until it is closed or its reader is gone."""

    def __init__(self) -> None:
        self._file: TextIO | None = sys.stderr

    def __call__(self, line: str) -> None:
        from tqdm import tqdm

        try:
            if self._file is not None:
                tqdm.write(line, file=self._file)
        except (OSError, ValueError):
            self._file = None


class Progress(Callback):
    """Shows episodes, env steps, env steps per second (see `Speed`), the metric (and the best), the loss and the time.

    During a test, it shows the number of finished episodes of the test.

    budgets: budgets of the run; the one that is closest to its end counts. With None for all no end is known.
    printer: interval of lines. None: a bar in a terminal, a line every 30 seconds in other files.
    file: output file, stderr by default. If it is closed or its reader is gone, nothing is shown and training
    continues.
    """

    only_watches = True

    def __init__(self, budgets: Budgets, printer: ProgressPrinter | None = None, *, file: TextIO | None = None) -> None:
        """Set up the display for a terminal or another file."""
        self._bar: tqdm[Any] | None = None
        self._budgets = vars(budgets)
        self._file: TextIO | None = sys.stderr if file is None else file  # stderr is None without a console
        self._terminal = False
        with self._while_it_is_read():
            self._terminal = self._file is not None and self._file.isatty() and printer is None
        own = _Settings(every_seconds=BAR_INTERVAL if self._terminal else LINE_INTERVAL)
        self._every = own if printer is None else printer.settings
        self._metric: float | None = None
        self._best: float | None = None
        self._loss: float | None = None
        self._speed = Speed()
        self._testing: tuple[int, int] | None = None
        self._shown_at = (0, 0.0)

    def on_train_start(self, moment: Moment) -> None:
        """Open the bar."""
        self._metric = self._best = self._loss = None
        self._speed, self._shown_at = Speed(), (moment.episodes, moment.seconds)
        self._measure(moment)
        if self._terminal:
            from tqdm import tqdm

            with self._while_it_is_read():
                self._bar = tqdm(total=1.0, bar_format=NO_BAR, file=self._file, mininterval=0.0, nrows=24)

    def on_collect(self, moment: Moment) -> None:
        """Refresh the display if it is due."""
        if moment.seconds >= self._speed.due:
            self._measure(moment)
        self._show_if_due(moment)

    def on_update_end(self, moment: Moment) -> None:
        """Store the mean loss over agents."""
        self._measure(moment)
        losses = [values["loss/total"] for values in moment.data["metrics"].values() if "loss/total" in values]
        if losses:
            self._loss = sum(losses) / len(losses)

    def on_test_start(self, moment: Moment) -> None:
        """Show that a test has started."""
        self._testing = (0, moment.data["episodes"])
        if self._terminal:
            self._show(moment)

    def on_test_step(self, moment: Moment) -> None:
        """Update the progress of the test, and refresh the display if it is due."""
        self._testing = (moment.data["finished"], moment.data["episodes"])
        self._show_if_due(moment)

    def on_test_end(self, moment: Moment) -> None:
        """Store the metric and show it."""
        self._measure(moment)
        self._testing = None
        self._metric = float(moment.data["metric"])
        if moment.data["best"] or self._best is None:
            self._best = self._metric
        if self._terminal:
            self._show(moment)

    def on_train_end(self, moment: Moment) -> None:
        """Show the final state and close the bar."""
        self._testing = None
        self._show(moment)
        if self._bar is not None:
            with self._while_it_is_read():
                self._bar.close()
            self._bar = None
        self._line(f"training ended: {in_line(moment.data['reason'])}")

    def state_dict(self) -> dict[str, Any]:
        """Return the last metric, the best metric and the loss."""
        return {"metric": self._metric, "best": self._best, "loss": self._loss}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        shown = {name: of_type(name, state[name], float, NoneType) for name in ("metric", "best", "loss")}
        self._metric, self._best, self._loss = shown["metric"], shown["best"], shown["loss"]

    def _show_if_due(self, moment: Moment) -> None:
        every, (episodes, seconds) = self._every, self._shown_at
        late = every.every_seconds is not None and moment.seconds - seconds >= every.every_seconds
        number = every.every_episodes
        if late or (number is not None and moment.episodes // number > episodes // number):
            self._show(moment)

    def _show(self, moment: Moment) -> None:
        if self._testing is None:
            self._measure(moment)
        done, state = self._done(moment), self._state(moment)
        if self._bar is not None:
            self._bar.n = done or 0.0
            columns = shutil.get_terminal_size().columns - 1  # tqdm's own shows nothing if the reported width is 0
            text, width = beside_bar(state, columns)
            self._bar.ncols, self._bar.bar_format = columns, BAR.format(width) if width else NO_BAR
            with self._while_it_is_read():
                self._bar.set_description_str(text, refresh=True)
        else:
            self._line(f"{'' if done is None else f'{done:4.0%}  '}{line(state)}")
        self._shown_at = (moment.episodes, moment.seconds)

    def _line(self, text: str) -> None:
        with self._while_it_is_read():
            if self._file is not None:
                self._file.write(f"{text}\n")
                self._file.flush()

    @contextmanager
    def _while_it_is_read(self) -> Iterator[None]:
        """Stop the display once the file is closed (ValueError) or its reader is gone (OSError)."""
        try:
            yield
        except (OSError, ValueError):
            if self._bar is not None:
                self._bar.disable = True  # else tqdm writes again when the bar is garbage-collected
            self._file, self._terminal, self._bar = None, False, None

    def _measure(self, moment: Moment) -> None:
        self._speed.add(moment.seconds, moment.env_steps, moment.updates, self._done(moment))

    def _done(self, moment: Moment) -> float | None:
        shares = [getattr(moment, counter) / budget for counter, budget in self._budgets.items() if budget]
        return min(max(shares), 1.0) if shares else None

    def _state(self, moment: Moment) -> State:
        metric = None if self._best is None else self._metric
        return State(
            moment.episodes, moment.env_steps, self._speed.rate, metric, self._best, self._loss, self._testing,
            moment.seconds, self._speed.left(),
        )  # fmt: skip
