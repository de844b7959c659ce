"""Places of files: those inside the folder of a run that a file may name, and files that may be replaced."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import Any

from marltrain.core.errors import ConfigError, shown
from marltrain.storage.files import inside

OF_A_RUN = (
    "best", "checkpoints", "config.json", "episodes.parquet", "faults.parquet", "films", "history.parquet", "last",
    "members.parquet", "metrics.png", "payoffs.parquet", "ratings.parquet", "range_test.csv", "range_test.png",
    "run.lock",
)  # fmt: skip
"""Names of the files and folders that a run writes itself."""
EVENTS = "events.out.tfevents"
"""Beginning of the names of TensorBoard's files."""
HEAD = 1 << 16
"""Bytes at the beginning of a file that show who wrote it."""
LONGEST = 200
"""Maximum length of a part of a place, in bytes."""
_DEVICE = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
"""Names that Windows keeps for devices, in every folder."""


@dataclass(frozen=True)
class PlaceInRun:
    """A place inside the folder of a run, as a file of a run names it, such as "tables/mine.csv".

    text: the path from the run's folder, with "/" between names.
    Raises ConfigError for any other text: an absolute path, one that leaves the folder, a name of a file of the run
    itself, and names that some systems read otherwise.
    """

    text: str

    def __post_init__(self) -> None:
        """Check the text."""
        if refusal := refusal_of(self.text):
            raise ConfigError(
                f"{shown(self.text)} {refusal}. A file names places in the run's folder only, such as 'tables/mine.csv'"
            )
        first = self.text.split("/")[0].casefold()
        if first in OF_A_RUN or first.startswith(EVENTS):
            raise ConfigError(f"{shown(self.text)} is the place of a file that the run writes itself: give another one")

    def __str__(self) -> str:
        """Return the path from the run's folder."""
        return self.text

    def within(self, run_dir: Path) -> Path:
        """Return the path in a run's folder; raises SaveError if a link leads out of it."""
        inside(run_dir, self.text)
        return run_dir / self.text


def refusal_of(text: Any) -> str:
    """Return why a file may not name this place, or an empty string for a relative path below a folder.

    The text is read by the rules of POSIX and by those of Windows.
    """
    if not isinstance(text, str):
        return "is not text"
    parts, windows = text.split("/"), PureWindowsPath(text)
    if windows.drive or windows.root or text.startswith("/"):
        return "is an absolute path"
    if ".." in parts or ".." in windows.parts:
        return "leaves its folder"
    if parts[0].startswith("~"):
        return "begins at a home folder"
    if not all(parts):
        return "has an empty name"
    if "\\" in text or ":" in text or not text.isprintable():
        return "has a character that is no part of a name on every system"
    if any(part.startswith(".") for part in parts):
        return "has a hidden name"
    if any(part.endswith((".", " ")) or part.startswith(" ") or _DEVICE.fullmatch(part) for part in parts):
        return "has a name that Windows reads otherwise"
    if any(len(part.encode()) > LONGEST for part in parts):
        return "has a name that is too long"
    return ""


def check_replaceable(path: Path, kind: str, is_ours: Callable[[bytes], bool]) -> None:
    """Raise ConfigError, naming the file, if `path` exists and does not hold what marltrain writes there.

    An empty file may be replaced.  kind: what is written, for the message.
    is_ours: returns whether the file is of this kind, from its first `HEAD` bytes.
    """
    if not os.path.lexists(path):
        return
    remedy = "Move it away, or give another path"
    if not path.is_file():
        raise ConfigError(f"{path} exists and is no file: {kind} cannot be written there. {remedy}")
    try:
        with path.open("rb") as file:
            head = file.read(HEAD)
    except OSError as error:
        raise ConfigError(
            f"{path} exists and cannot be read ({error.strerror}): it is not replaced. {remedy}"
        ) from error
    if head and not is_ours(head):
        raise ConfigError(f"{path} exists and is not {kind} of marltrain's: it is not replaced. {remedy}")


def check_folder(path: Path) -> None:
    """Raise ConfigError if an existing folder, which holds no run, has files with names that a run would replace."""
    taken = [name for name in OF_A_RUN if name != "run.lock" and os.path.lexists(path / name)]
    if taken:
        raise ConfigError(
            f"run_dir {str(path)!r} holds {', '.join(taken)}, and no run (config.json is not there): a run would "
            "replace that. Give a folder of its own"
        )
