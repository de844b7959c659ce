"""CSVLogger and JSONLinesLogger: the scalars of a run in text files."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, TextIO

from marltrain.core.errors import ConfigError, SaveError
from marltrain.core.settings import checked_arguments
from marltrain.policies.agents.agent import Agent
from marltrain.storage.files import path_of, replacing, to_disk, writing
from marltrain.tools.csv_cells import cell, read_cell
from marltrain.trainer.events.callbacks import Moment
from marltrain.trainer.reporting.scalar_logger import ScalarLogger
from marltrain.trainer.saving.places import PlaceInRun, check_replaceable
from marltrain.trainer.settings import TrainerSettings

STEPS, TIME = "env_steps", "time"
"""First columns of every row."""
_OBJECT = re.compile(rf'\{{"{STEPS}": \d+, "{TIME}": [\d.e+-]+[,}}]'.encode())
_COLUMNS = re.compile(rf"{STEPS},{TIME}(,|\r?\n)".encode())
"""How files of these loggers begin."""


class ScalarFile(ScalarLogger, ABC):
    """Base class of loggers that append a row to a text file for every point.

    A row holds `env_steps`, `time` (seconds since 1970) and the scalars. A new run replaces the file of an earlier one;
    a continued run keeps the rows up to its env step, and appends. Any other file is refused.
    """

    described_by = ("path", "every")
    name: ClassVar[str]
    """Name of the file in the run's folder."""

    @checked_arguments
    def __init__(self, path: str | Path | PlaceInRun | None = None, *, every: float = 1.0) -> None:
        """Take the path of the file; None: `name` in the run's folder.  every: see `ScalarLogger`."""
        super().__init__(every=every)
        self.path = path if path is None or isinstance(path, PlaceInRun) else path_of(path, "path", ConfigError)
        self._file: TextIO | None = None
        self._place = Path()  # of the running run

    @staticmethod
    @abstractmethod
    def is_ours(head: bytes) -> bool:
        """Return whether a file that begins with these bytes is one of this class."""

    @abstractmethod
    def rows(self, file: TextIO) -> list[dict[str, Any]]:
        """Return the rows of an open file; raises ValueError for other text."""

    @abstractmethod
    def begin(self, rows: list[dict[str, Any]], file: TextIO) -> None:
        """Write the first rows into an empty file."""

    @abstractmethod
    def append(self, row: dict[str, Any]) -> None:
        """Write a row into the open file."""

    def prepare(self, settings: TrainerSettings, players: Mapping[str, Agent]) -> None:
        """Check that the file may be replaced, before the run has a folder; see `Callback`."""
        if isinstance(self.path, Path):
            self._check(self.path)

    def open(self, moment: Moment) -> None:
        """Create the file, or keep the rows of the run so far; raises ConfigError for a file that is not ours."""
        path = PlaceInRun(self.name) if self.path is None else self.path
        self._place = path.within(moment.run_dir) if isinstance(path, PlaceInRun) else path
        self._check(self._place)
        with writing(self._place):
            self._place.parent.mkdir(parents=True, exist_ok=True)
        self.restart(self._rows_until(moment.env_steps) if moment.env_steps and self._place.exists() else [])

    def restart(self, rows: list[dict[str, Any]]) -> None:
        """Replace the content of the file by rows."""
        self.close()
        with replacing(self._place) as beside, beside.open("w", encoding="utf-8", newline="") as file:
            self.begin(rows, file)
        with writing(self._place):
            self._file = self._place.open("a", encoding="utf-8", newline="")

    def write(self, scalars: Mapping[str, float], env_steps: int) -> None:
        """Append a row."""
        if self._file is not None:
            with writing(self._place):
                self.append({STEPS: env_steps, TIME: time.time(), **scalars})

    def flush(self) -> None:
        """Flush the file."""
        if self._file is not None:
            with writing(self._place):
                self._file.flush()

    def sync(self) -> None:
        """Flush the file to the disk."""
        if self._file is not None:
            self.flush()
            to_disk(self._place)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            file, self._file = self._file, None
            with writing(self._place):
                file.close()

    def _check(self, place: Path) -> None:
        """Raise ConfigError for a file that is not ours, and for one that another logger is writing."""
        check_replaceable(place, f"a file of {type(self).__name__}", self.is_ours)
        others = [other for other in _LOGGERS if other is not self and other._file is not None]
        if any(other._place.resolve() == place.resolve() for other in others):
            raise ConfigError(f"{place}: another logger of this process is writing this file: give each its own path")
        _LOGGERS.add(self)

    def _rows_until(self, env_steps: int) -> list[dict[str, Any]]:
        """Return the rows of the file up to an env step; a last line without its end does not count."""
        try:
            with self._place.open(encoding="utf-8", newline="") as file:
                return [row for row in self.rows(file) if int(row[STEPS]) <= env_steps]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SaveError(f"{self._place}: cannot be continued, since it is no file of {type(self).__name__}: "
                            f"{error}. Move it away, or give another path") from error  # fmt: skip


_LOGGERS: weakref.WeakSet[ScalarFile] = weakref.WeakSet()
"""Loggers of this process that may have an open file."""


class JSONLinesLogger(ScalarFile):
    """Writes the scalars of a run as JSON lines, one object for each point: `scalars.jsonl` in the run's folder.

    path: another file; an existing one that is not of this logger is refused.
    every: seconds between two points of training.
    Numbers that are not finite are written as null.
    """

    name = "scalars.jsonl"

    @staticmethod
    def is_ours(head: bytes) -> bool:
        """Return whether the first line is an object that begins with `env_steps` and `time`."""
        return _OBJECT.match(head) is not None

    def rows(self, file: TextIO) -> list[dict[str, Any]]:
        """Return the rows of an open file."""
        return [json.loads(line) for line in file if line.endswith("\n")]

    def begin(self, rows: list[dict[str, Any]], file: TextIO) -> None:
        """Write the first rows."""
        file.writelines(_json_line(row) for row in rows)

    def append(self, row: dict[str, Any]) -> None:
        """Write a row."""
        if self._file is not None:
            self._file.write(_json_line(row))


class CSVLogger(ScalarFile):
    """Writes the scalars of a run as a table of comma-separated values: `scalars.csv` in the run's folder.

    path: another file; an existing one that is not of this logger is refused.
    every: seconds between two points of training.
    A cell without a value is empty. A name that a spreadsheet would take for a formula has an apostrophe before it. A
    scalar that appears later adds a column; the file is then written anew.
    """

    name = "scalars.csv"

    @staticmethod
    def is_ours(head: bytes) -> bool:
        """Return whether the first columns are `env_steps` and `time`."""
        return _COLUMNS.match(head) is not None

    @checked_arguments
    def __init__(self, path: str | Path | PlaceInRun | None = None, *, every: float = 1.0) -> None:
        """See the class."""
        super().__init__(path, every=every)
        self._columns: list[str] = []

    def rows(self, file: TextIO) -> list[dict[str, Any]]:
        """Return the rows of an open file."""
        text = file.read()
        whole = io.StringIO(text[: text.rfind("\n") + 1], newline="")
        return [{read_cell(tag): value for tag, value in row.items() if value} for row in csv.DictReader(whole)]

    def begin(self, rows: list[dict[str, Any]], file: TextIO) -> None:
        """Write the header and the first rows."""
        self._columns = list(dict.fromkeys([STEPS, TIME, *(tag for row in rows for tag in row)]))
        csv.writer(file, lineterminator="\n").writerow(map(cell, self._columns))
        csv.DictWriter(file, self._columns, lineterminator="\n").writerows(rows)

    def append(self, row: dict[str, Any]) -> None:
        """Write a row, after new columns if it has any."""
        if not set(row) <= set(self._columns):
            self.flush()
            self.restart([*self._rows_until(row[STEPS]), row])
        elif self._file is not None:
            csv.DictWriter(self._file, self._columns, lineterminator="\n").writerow(row)


def _json_line(row: Mapping[str, Any]) -> str:
    finite = {tag: value if math.isfinite(value) else None for tag, value in row.items()}
    return json.dumps(finite, allow_nan=False) + "\n"
