"""RunLogger: base class of loggers that send a run to a tracking service."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Any

from marltrain.storage.checks import of_type
from marltrain.storage.files import complete_folder
from marltrain.trainer.events.callbacks import Moment
from marltrain.trainer.reporting.config_file import CONFIG, read_config
from marltrain.trainer.reporting.history import EPISODES_FILE, TESTS_FILE
from marltrain.trainer.reporting.scalar_logger import ScalarLogger

PICTURE = "metrics.png"
TABLES = (TESTS_FILE, EPISODES_FILE, "members.parquet", "payoffs.parquet", "ratings.parquet")
FINISHED, INTERRUPTED, FAILED = "finished", "interrupted", "failed"


class RunLogger(ScalarLogger, ABC):
    """Sends a run to a tracking service: its configuration, its scalars and, at its end, its files.

    The run at the service begins with the first scalars. Its id is part of the callback's state, so a resumed run
    continues there. An exception may end a run between its updates: if there is a checkpoint, the unfinished point is
    then left to the resumed run, since services change no point.

    every: see `ScalarLogger`.  files: send tables, picture, config.json and the best agents at the end.
    run_id: the run at the service, None before it began.
    """

    def __init__(self, *, every: float, files: bool) -> None:
        """Start without a run."""
        super().__init__(every=every)
        self.files = files
        self.run_id: str | None = None
        self._folder = Path()
        self._begun = False
        self._has_checkpoint = False

    @abstractmethod
    def begin(self, folder: Path, config: Mapping[str, Any], run_id: str | None) -> str:
        """Begin a run at the service, or continue the run `run_id`; return its id.

        folder: the run's folder.  config: content of its config.json.
        """

    @abstractmethod
    def send(self, scalars: Mapping[str, float], env_steps: int) -> None:
        """Send scalars by tag."""

    @abstractmethod
    def send_picture(self, tag: str, picture: bytes, env_steps: int) -> None:
        """Send a picture, the bytes of a PNG file, by its tag."""

    @abstractmethod
    def send_files(self, files: list[Path], best: Path | None) -> None:
        """Send files of the run's folder; best: the folder of the best agents, None if no test was played."""

    @abstractmethod
    def end(self, outcome: str) -> None:
        """End the run at the service; outcome: FINISHED, INTERRUPTED or FAILED."""

    def open(self, moment: Moment) -> None:
        """Note the run's folder; raises ConfigError for a run without one."""
        self._folder, self._begun, self._has_checkpoint = moment.run_dir, False, False
        if not moment.env_steps:
            self.run_id = None

    def write(self, scalars: Mapping[str, float], env_steps: int) -> None:
        """Send scalars; the first ones begin the run, or continue that of the restored state."""
        self._begin()
        self.send(scalars, env_steps)

    def write_picture(self, tag: str, picture: bytes, env_steps: int) -> None:
        """Send a picture; see `write`."""
        self._begin()
        self.send_picture(tag, picture, env_steps)

    def on_train_end(self, moment: Moment) -> None:
        """Send the last point and the files, and end the run."""
        try:
            if not (moment.data["failed"] and self._has_checkpoint):
                self._write_point(moment)
            if self._begun and self.files:
                self.send_files(*self._found())
        finally:
            if self._begun:
                self._begun = False
                interrupted = moment.data["reason"] == "interrupted"
                self.end(FAILED if moment.data["failed"] else INTERRUPTED if interrupted else FINISHED)

    def sync(self) -> None:
        """Send what is buffered; a checkpoint follows."""
        super().sync()
        self._has_checkpoint = True

    def state_dict(self) -> dict[str, Any]:
        """Return the running means, and the id of the run."""
        return {**super().state_dict(), "run_id": self.run_id}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._has_checkpoint = True
        self.run_id = of_type("run_id", state["run_id"], str, NoneType)
        super().load_state_dict({name: value for name, value in state.items() if name != "run_id"})

    def _begin(self) -> None:
        if not self._begun:
            self.run_id, self._begun = self.begin(self._folder, read_config(self._folder / CONFIG), self.run_id), True

    def _found(self) -> tuple[list[Path], Path | None]:
        """Return the files of the run's folder that exist, and the folder of the best agents."""
        files = [path for name in (CONFIG, *TABLES, PICTURE) if (path := self._folder / name).is_file()]
        best = self._folder / "best"
        return files, complete_folder(best) if best.is_dir() else None
