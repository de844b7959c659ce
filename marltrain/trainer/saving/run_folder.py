"""The folder of a run: created atomically, locked during the run, and checked before each write."""

from __future__ import annotations

import logging
import os
import socket
import stat
import time
import weakref
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from marltrain.core.errors import ConfigError, SaveError, shown, warn
from marltrain.storage.files import path_of
from marltrain.trainer.saving.given_back import emptied
from marltrain.trainer.saving.places import check_folder

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None

LOGGER = logging.getLogger("marltrain")
LOCK = "run.lock"
"""Lock file in the folder of an active run. It names host and process and is removed at the end."""
MOST = 1000
"""Limit of the numbers behind a folder's name: "x", "x-2", ... "x-999"."""
RunDir = Path | Literal[False] | None
"""Argument `run_dir`: a folder, False for no files, None for a new folder in `runs/`."""


class InUseError(ConfigError):
    """The folder is locked by a run that has not ended."""


class RunFolder:
    """A folder that is locked for one run, until `release` or any end of the process.

    path: the folder, absolute.
    own: names of the run's files, beside those that any run makes: `release` gives the folder back, if it holds
        nothing else. None: the folder stays.
    given_back: whether `release` has given the folder back.
    """

    def __init__(self, path: Path, *, known: bool = True, made: bool = False) -> None:
        """Lock an existing folder; raises InUseError, naming host and process, if another run has locked it.

        known: use the folder even if it has a lock file and the file system cannot check the lock.
        made: the run has made the folder, which is removed when it is given back.
        """
        self.path, self._made = path, made
        self.own: frozenset[str] | None = None
        self.given_back = False
        self._lock = path / LOCK
        self._file: int | None = self._locked(known)
        self._told = f"process {os.getpid()} on {socket.gethostname()}, since {time.strftime('%Y-%m-%d %H:%M:%S')}"
        os.ftruncate(self._file, 0)
        os.write(self._file, self._told.encode())
        _HELD.add(self)

    def whole(self) -> Path:
        """Return the path for writing; raises SaveError if the folder was removed, moved or replaced."""
        if self._holder() != self._told:
            raise SaveError(f"{self.path}: the run's folder was removed, moved or replaced while the run went on. "
                            "Leave the folder in place until its run has ended")  # fmt: skip
        return self.path

    def release(self) -> None:
        """Unlock the folder and remove the lock file; further calls have no effect.

        A folder that is given back (see `own`) is removed, or left empty if the run has not made it.
        """
        if self._file is None:
            return
        with suppress(OSError):  # a remaining file does not block other runs
            if self._holder() == self._told:
                self._give_back()
                self._lock.unlink()
                if self.given_back and self._made:
                    self.path.rmdir()
        self._forget()

    def _give_back(self) -> None:
        """Remove the run's files, if they are all that is in a folder to give back."""
        if self.own is not None:
            with suppress(OSError):  # files remain, and so does the folder
                self.given_back = emptied(self.path, self.own, but=LOCK)

    def _forget(self) -> None:
        """Close the lock file; the lock ends when the last copy of the descriptor is closed."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _locked(self, known: bool) -> int:
        """Return the descriptor of the lock file, open and locked."""
        while True:
            try:
                file, result = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644), True
            except FileExistsError:
                file, result = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o644), False
            try:
                if not self._lock_file(file) and not (result or known):
                    raise self._in_use()
                with suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(file), self._lock.stat()):
                        return file
            except BaseException:
                os.close(file)
                raise
            os.close(file)  # the previous run has just ended and removed this file: create another

    def _lock_file(self, file: int) -> bool:
        """Lock an open file; return False if the file system does not support locks."""
        refusal = "this system has no flock"
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise self._in_use() from error
            except OSError as error:
                refusal = f"flock: {error.strerror}"
            else:
                return True
        LOGGER.warning("%s: the file system has no locks (%s). Nothing keeps another process from resuming this run "
                       "before it has ended", self.path, refusal)  # fmt: skip
        return False

    def _in_use(self) -> InUseError:
        return InUseError(f"{self.path} is in use by {self._holder() or 'another process'}")

    def _holder(self) -> str:
        """Return the content of the lock file, or "" if there is none."""
        with suppress(OSError), self._lock.open(encoding="utf-8", errors="replace") as file:
            return file.read(500)
        return ""


_HELD: weakref.WeakSet[RunFolder] = weakref.WeakSet()


def _forget_all() -> None:
    """Close the parent's lock files in a forked child, which would keep the locks alive."""
    for folder in list(_HELD):
        folder._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


def checked(run_dir: Any) -> RunDir:
    """Return the argument `run_dir`, as an absolute path if it is one; raises ConfigError for an invalid value."""
    if run_dir is None or run_dir is False:
        return run_dir
    if not isinstance(run_dir, str | Path):
        raise ConfigError(f"run_dir must be a path, None or False, got {shown(run_dir)}")
    path = path_of(run_dir, "run_dir", ConfigError)
    if not path.name:
        raise ConfigError(f"run_dir {str(run_dir)!r} is the root of the file system: name a folder in it")
    return path


def default_name(env: str) -> str:
    """Return the name of a new run's folder: the environment's name and the time."""
    plain = "".join(c if c.isalnum() or c in "-_" else "-" for c in env.split("/")[-1])
    return f"{plain}-{time.strftime('%Y%m%d-%H%M%S')}"


def new_folder(wanted: Path, *, fresh: bool = False) -> RunFolder:
    """Create and lock the folder of a new run: `wanted`, or `wanted` with "-2", "-3", ... if it holds a run.

    fresh: do not use an existing folder.
    Raises ConfigError if no folder can be created, and for a folder without a run whose files the run would replace.
    """
    for number in range(1, MOST):
        path = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        try:
            folder = _new(path, fresh)
        except InUseError as error:
            warn(f"{error}: the new run gets another folder")
            continue
        if folder is not None and not _holds_run(path):
            return _checked(folder)
        if folder is not None:
            folder.release()
    raise ConfigError(f"{wanted} and {MOST - 1} folders like it already hold runs: give another run_dir")


def _new(path: Path, fresh: bool) -> RunFolder | None:
    """Create and lock a folder, or lock an existing one; return None for one that cannot be used (see `new_folder`)."""
    tries = 0
    while True:
        result, tries = _make(path), tries + 1
        if not result and (fresh or (_holds_run(path) and not (path / LOCK).exists())):
            return None
        try:
            return _lock(path, known=False, made=result)
        except ConfigError as error:
            if tries == MOST or not isinstance(error.__cause__, FileNotFoundError):
                raise  # else another run has just given the folder back: create it again


def existing_folder(path: Path) -> RunFolder:
    """Lock the folder of a run to continue; raises InUseError if that run has not ended."""
    return _lock(path)


def _make(path: Path) -> bool:
    """Create a folder; return False if it existed before."""
    try:
        path.mkdir(parents=True)
    except FileExistsError:
        try:
            is_folder = stat.S_ISDIR(
                path.stat().st_mode
            )  # one look: another run may give it back, or make it, meanwhile
        except FileNotFoundError:
            if not path.is_symlink():
                return _make(path)
            is_folder = False
        if not is_folder:
            raise ConfigError(f"run_dir {str(path)!r} is a file: give a folder, or one to make") from None
        return False
    except OSError as error:
        raise ConfigError(f"run_dir {str(path)!r} cannot be made: {error.strerror}") from error
    return True


def _checked(folder: RunFolder) -> RunFolder:
    """Return the folder of a new run; raises ConfigError, and releases it, if the run would replace other files."""
    try:
        check_folder(folder.path)
    except ConfigError:
        folder.release()
        raise
    return folder


def _holds_run(path: Path) -> bool:
    return (path / "config.json").exists()


def _lock(path: Path, *, known: bool = True, made: bool = False) -> RunFolder:
    try:
        return RunFolder(path, known=known, made=made)
    except OSError as error:
        raise ConfigError(f"run_dir {str(path)!r} cannot be written to: {error.strerror}") from error
