"""watch: the state of a run of any process, read from the files in its folder."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol, TextIO

from marltrain.core.errors import ConfigError, SaveError, shown
from marltrain.core.settings import checked_arguments
from marltrain.storage.files import complete_folder
from marltrain.trainer.reporting.config_file import CONFIG, read_config
from marltrain.trainer.reporting.run_view import Curve, RunView
from marltrain.trainer.reporting.screens import make_screen
from marltrain.trainer.reporting.tensorboard import EventReader
from marltrain.trainer.reporting.text_charts import plain
from marltrain.trainer.saving.run_folder import LOCK
from marltrain.trainer.settings import EPISODES

EVENTS = "events.out.tfevents.*"
TERMINAL_EVERY, LINES_EVERY = 2.0, 30.0
SIZE = (100, 30)
"""Columns and lines of a single drawing outside of a terminal."""


@checked_arguments
def watch(run: str | Path, *, every: float | None = None, once: bool = False, file: TextIO | None = None) -> None:
    """Show the state of a run until it ends: a dashboard in a terminal or notebook, lines in other outputs.

    The run may be that of another process, of another machine that shares the folder, or one that has ended. Its
    TensorBoard files, which grow every second, give the numbers; config.json gives the environment and the budgets;
    run.lock shows whether it goes on. Nothing is written.

    run: folder of the run.  every: seconds between two looks; None: 2 in a terminal, 30 for lines.
    once: show the state now, and return.  file: output, stdout by default.
    Raises SaveError for a folder that is not a run's.
    """
    if every is not None and not every > 0:
        raise ConfigError(f"watch: every must be greater than 0, got {shown(every)}")
    follow(RunReader(run), every, once=once, out=sys.stdout if file is None else file)


class Source(Protocol):
    """Reads the state of a run."""

    @property
    def view(self) -> RunView:
        """The state, as of the last `read`."""

    def going_on(self) -> bool:
        """Return whether the run goes on."""

    def read(self) -> None:
        """Bring the view up to date."""

    def wait(self, seconds: float) -> None:
        """Wait for so many seconds, or until the run ends."""


def follow(source: Source, every: float | None, *, once: bool, out: TextIO) -> None:
    """Show the state of a run until it ends; see `watch`."""
    screen = None if once else make_screen(out)
    pause = every or (LINES_EVERY if screen is None else TERMINAL_EVERY)
    try:
        while True:
            going = source.going_on()
            source.read()
            if screen is not None:
                screen.show(source.view)
            else:
                print(plain(source.view.lines(*SIZE)) if once else source.view.text(), file=out, flush=True)
            if once or not going:
                return
            source.wait(pause)
    finally:
        if screen is not None:
            screen.close()


class RunReader:
    """Reads what a run has logged so far into a RunView; every `read` adds what is new."""

    def __init__(self, run: str | Path) -> None:
        """Open the run's folder; raises SaveError if it is not a run's."""
        self.folder = complete_folder(run)
        config = read_config(self.folder / CONFIG)
        trainer = config.get("trainer")
        if not isinstance(trainer, dict):
            raise SaveError(f"{self.folder / CONFIG}: names no settings of a trainer")
        self.view = RunView(f"{config.get('env')} - {self.folder.name}", _budgets(trainer))
        self._files: dict[Path, EventReader] = {}
        self._begun = 0.0  # when the run began, as if it had not been interrupted; seconds since 1970
        self._times = Curve()  # durations of the run at env steps

    def going_on(self) -> bool:
        """Return whether the run goes on, as far as its lock file tells; note it in the view."""
        try:
            holder = (self.folder / LOCK).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            self.view.note = "ended"
            return False
        gone = _is_gone(holder)
        self.view.note = f"{holder.partition(',')[0]} is gone" if gone else "running"
        return not gone

    def read(self) -> None:
        """Add the points that were written since the last call."""
        for path in sorted(self.folder.glob(EVENTS)):
            if path not in self._files:
                self._files[path] = EventReader(path)
            for event in self._files[path].new():
                self._add(event)

    def wait(self, seconds: float) -> None:
        """Wait for so many seconds."""
        time.sleep(seconds)

    def _add(self, event: Any) -> None:
        self._begun = self._begun or event.wall_time
        if event.HasField("session_log") and event.session_log.status == event.session_log.START:
            self._resumed(event.step, event.wall_time)
        seconds = event.wall_time - self._begun
        scalars = dict(_scalars(event))
        if scalars:
            self.view.add(scalars, event.step)
            self._times.add(event.step, seconds)
        self.view.count(self.view.episodes, self.view.env_steps, self.view.updates, seconds)

    def _resumed(self, env_steps: int, now: float) -> None:
        """Go back to the counts and the duration before some env steps, from which the run was resumed."""
        self.view.cut(env_steps)
        self._times.cut(env_steps)
        self._begun = now - (self._times.values[-1] if self._times.values else 0.0)


def _scalars(event: Any) -> Iterator[tuple[str, float]]:
    """Yield the tags and values of an event of TensorBoard."""
    for value in event.summary.value:
        if value.HasField("simple_value"):
            yield value.tag, value.simple_value


def _budgets(trainer: dict[str, Any]) -> dict[str, int | None]:
    """Return the counts at which a run ends, from the trainer's settings in its config.json."""
    steps, updates, episodes = (trainer.get(f"{name}_per_train") for name in ("steps", "updates", "episodes"))
    default = episodes == EPISODES and (steps is not None or updates is not None)
    return {"episodes": None if default else episodes, "env_steps": steps, "updates": updates}


def _is_gone(holder: str) -> bool:
    """Return whether the process that a lock file names, "process 123 on host, since ...", ran here and has ended."""
    words = holder.replace(",", "").split()
    if len(words) < 4 or not words[1].isdigit() or words[3] != socket.gethostname():
        return False
    try:
        os.kill(int(words[1]), 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # another user's process
        return False
    return False
