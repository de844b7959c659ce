"""The folder of a run: created atomically, locked during the run, checked before each write."""

from __future__ import annotations

import logging
import os
import socket
import time
import warnings
import weakref
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from marltrain.errors import ConfigError, SaveError, shown
from marltrain.files import path_of

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None

LOGGER = logging.getLogger("marltrain")
LOCK = "run.lock"
"""File in the folder of a running run: locked by its process, and removed at the end. It names host and process."""
MOST = 1000
"""Folders of one name: "x", "x-2", ... "x-999"."""
RunDir = Path | Literal[False] | None
"""Where a run is written: a folder, False for nowhere, None for a new folder in `runs/`."""


class InUseError(ConfigError):
    """The folder belongs to a run that has not ended."""


class RunFolder:
    """A folder that is locked for one run, until `release` or the end of the process, however that ends.

    path: the folder, absolute.
    """

    def __init__(self, path: Path, *, known: bool = True) -> None:
        """Lock a folder that exists. Raises InUseError, naming host and process, where another run has locked it.

        known: whether it is certain that the folder is free if the file system has no locks.
        """
        self.path = path
        self._lock = path / LOCK
        self._file: int | None = self._locked(known)
        self._told = f"process {os.getpid()} on {socket.gethostname()}, since {time.strftime('%Y-%m-%d %H:%M:%S')}"
        os.ftruncate(self._file, 0)
        os.write(self._file, self._told.encode())
        _HELD.add(self)

    def whole(self) -> Path:
        """Return the path, to write to; raises SaveError where the folder has been removed, moved or replaced."""
        if self._holder() != self._told:
            raise SaveError(f"{self.path}: the run's folder was removed, moved or replaced while the run went on. "
                            "Leave the folder in place until its run has ended")  # fmt: skip
        return self.path

    def release(self) -> None:
        """Unlock the folder and remove the lock's file; more than one call is harmless."""
        if self._file is None:
            return
        with suppress(OSError):  # a file that cannot be removed hinders no other run
            if self._holder() == self._told:
                self._lock.unlink()
        self._forget()

    def _forget(self) -> None:
        """Close the file; its lock ends with its last copy."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _locked(self, known: bool) -> int:
        """Return the lock's file, open and locked."""
        while True:
            try:
                file, made = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644), True
            except FileExistsError:
                file, made = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o644), False
            try:
                if not self._lock_file(file) and not (made or known):
                    raise self._in_use()
                with suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(file), self._lock.stat()):
                        return file
            except BaseException:
                os.close(file)
                raise
            os.close(file)  # the run before has just ended and removed this file: make another

    def _lock_file(self, file: int) -> bool:
        """Lock an open file; False where the file system has no locks."""
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
        """Return what the lock's file says; "" where there is none."""
        with suppress(OSError), self._lock.open(encoding="utf-8", errors="replace") as file:
            return file.read(500)
        return ""


_HELD: weakref.WeakSet[RunFolder] = weakref.WeakSet()


def _forget_all() -> None:
    """In a forked child: keep no lock of the parent's alive."""
    for folder in list(_HELD):
        folder._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


def checked(run_dir: Any) -> RunDir:
    """Return the argument `run_dir`, a path from the root on; raises ConfigError for what is none of its values."""
    if run_dir is None or run_dir is False:
        return run_dir
    if not isinstance(run_dir, str | Path):
        raise ConfigError(f"run_dir must be a path, None or False, got {shown(run_dir)}")
    path = path_of(run_dir, "run_dir", ConfigError)
    if not path.name:
        raise ConfigError(f"run_dir {str(run_dir)!r} is the root of the file system: name a folder in it")
    return path


def default_name(env: str) -> str:
    """Return the name of a new folder for a run of an environment: its name and the time."""
    plain = "".join(c if c.isalnum() or c in "-_" else "-" for c in env.split("/")[-1])
    return f"{plain}-{time.strftime('%Y%m%d-%H%M%S')}"


def new_folder(wanted: Path, *, fresh: bool = False) -> RunFolder:
    """Make and lock the folder of a new run: `wanted`, or with "-2", "-3", ... behind its name where a run is already.

    fresh: take no folder that exists.  Raises ConfigError where none can be made.
    """
    for number in range(1, MOST):
        path = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        made = _make(path)
        if not made and (fresh or (_holds_run(path) and not (path / LOCK).exists())):
            continue
        try:
            folder = _lock(path, known=False)
        except InUseError as error:
            warnings.warn(f"{error}: the new run gets another folder", stacklevel=6)
            continue
        if not _holds_run(path):
            return folder
        folder.release()
    raise ConfigError(f"{wanted} and {MOST - 1} folders like it hold runs already: give another run_dir")


def existing_folder(path: Path) -> RunFolder:
    """Lock the folder of a run that is to go on; raises InUseError where that run has not ended."""
    return _lock(path)


def _make(path: Path) -> bool:
    """Make a folder; return False where it was there before."""
    try:
        path.mkdir(parents=True)
    except FileExistsError:
        if path.is_dir():
            return False
        raise ConfigError(f"run_dir {str(path)!r} is a file: give a folder, or one to make") from None
    except OSError as error:
        raise ConfigError(f"run_dir {str(path)!r} cannot be made: {error.strerror}") from error
    return True


def _holds_run(path: Path) -> bool:
    return (path / "config.json").exists()


def _lock(path: Path, *, known: bool = True) -> RunFolder:
    try:
        return RunFolder(path, known=known)
    except OSError as error:
        raise ConfigError(f"run_dir {str(path)!r} cannot be written to: {error.strerror}") from error
