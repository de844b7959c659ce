"""Whether files can be written into a folder."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

LITTLE = 100 * 2**20
"""Bytes of free space below which a folder is nearly full."""


def existing(folder: Path) -> Path:
    """Return the folder, or the first one around it in which something lies."""
    return next(path for path in (folder, *folder.parents) if os.path.lexists(path) or path == path.parent)


def obstacle(folder: Path) -> str:
    """Return why no file can be written into a folder, which need not exist yet; "" if one can."""
    there = existing(folder)
    if not os.path.isdir(there):
        return f"{there} is not a folder"
    try:
        with tempfile.TemporaryFile(dir=there) as file:  # permissions tell nothing of read-only and full disks
            file.write(bytes(4096))
            file.flush()
    except OSError as error:
        return f"{there} takes no file: {error.strerror or error}"
    return ""


def free(folder: Path) -> int | None:
    """Return the free bytes where a folder lies or would lie; None if the system does not tell."""
    try:
        return shutil.disk_usage(existing(folder)).free
    except OSError:
        return None


def in_bytes(size: int | None) -> str:
    """Return a number of bytes in the largest unit of which there is at least one: 1.5 GiB."""
    if size is None:
        return "unknown"
    number, units = float(size), ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while number >= 1024 and len(units) > 1:
        number, units = number / 1024, units[1:]
    return f"{size} bytes" if units[0] == "bytes" else f"{number:.1f} {units[0]}"
