"""The folder of machine code on disk, and its files: each has a checksum and one owner, who alone may write.

This module needs no Numba, so that the state of the folder can be told where Numba cannot be imported.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
from pathlib import Path

from marltrain.core.errors import clean, text_of

FORMAT = b"marltrain machine code 1\n"
"""Beginning of every file; the SHA-256 of the rest follows."""
SIZE = hashlib.sha256().digest_size
SUFFIXES = ".nbi", ".nbc"
"""Endings of the files: an index of keys, the values of a key."""
VARIABLE = "NUMBA_CACHE_DIR"
"""Environment variable that names the folder in which the cache lies."""


class UnusableError(Exception):
    """A file of the cache that cannot be used; its text is the reason."""


def cache_folder() -> Path:
    """Return the cache folder of compiled programs, in $NUMBA_CACHE_DIR or the user's cache folder.

    Numba's own setting is ignored: it may come from a file in the working folder (`.numba_config.yaml`), and Numba
    unpickles the files in its cache. Raises RuntimeError if the system knows no home of this user.
    """
    home = os.environ.get(VARIABLE) or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "marltrain" / "native"


def read_checked(path: Path) -> bytes | None:
    """Return the data of a file, or None if there is none; raises UnusableError for a file that is not to be used."""
    try:
        opened = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(opened, "rb") as file:
            _check_owner(os.fstat(file.fileno()))
            data = file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnusableError(f"machine code cannot be read: {reason(error)}") from error
    start = len(FORMAT) + SIZE
    if data[: len(FORMAT)] != FORMAT or hashlib.sha256(data[start:]).digest() != data[len(FORMAT) : start]:
        raise UnusableError("the file of machine code is damaged")
    return data[start:]


def _check_owner(status: os.stat_result) -> None:
    """Raise UnusableError unless the file is a regular one of this user, which no other user may write."""
    if not stat.S_ISREG(status.st_mode):
        raise UnusableError("a file of machine code is expected there")
    if hasattr(os, "getuid") and (status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)):
        raise UnusableError("the file of machine code belongs to another user, or others may write it")


def write_checked(path: Path, data: bytes) -> None:
    """Write a file that only this user may write; readers see the old file or the new one."""
    beside = path.with_name(f"{path.name}.tmp.{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(FORMAT + hashlib.sha256(data).digest() + data)
        os.replace(beside, path)
    finally:
        with contextlib.suppress(OSError):
            beside.unlink()


def reason(error: BaseException) -> str:
    """Return the reason of an error in a few words."""
    strerror = getattr(error, "strerror", None)
    return clean(str(strerror)) if strerror else f"{type(error).__name__}: {text_of(error)}"
