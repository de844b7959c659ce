"""The section about the cache of machine code on disk."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from marltrain.core.errors import in_line
from marltrain.jit.cache import SUFFIXES, VARIABLE, UnusableError, cache_folder, read_checked
from marltrain.tools.doctor.report import CORE, EXTRA, Fact, Finding, Section
from marltrain.tools.doctor.writing import LITTLE, existing, free, in_bytes, obstacle


def machine_code() -> Section:
    """Return the section of the cache: its folder, size, number of programs, owner, and files that cannot be used."""
    try:
        folder = cache_folder()
    except RuntimeError as error:  # the system knows no home of this user
        finding = Finding(CORE, "machine code", f"there is no folder for it: {error}", f"set {VARIABLE} to a folder")
        return Section("machine code", [Fact("folder", None, "unknown")], [finding])
    files = [Path(root, name) for root, _, names in os.walk(folder) for name in names]
    code = [path for path in files if path.suffix in SUFFIXES]
    size = sum(_size(path) for path in files)
    unusable = dict(_unusable(code))
    barrier = obstacle(folder)
    facts = [
        Fact("folder", str(folder), f"{folder}{_where_from()}"),
        Fact("state", barrier or None, barrier or ("can be written" if os.path.isdir(folder) else "can be made")),
        Fact("owner", _owner(folder)),
        Fact("size", size, in_bytes(size)),
        Fact("programs", len({path.parent for path in code})),
        Fact("files", len(code)),
        Fact("unusable", len(unusable), f"{len(unusable)} of the files"),
    ]
    return Section("machine code", facts, [*_barrier(barrier), *_damage(folder, unusable), *_room(folder)])


def _where_from() -> str:
    """Return the variable that sets the folder, in parentheses."""
    names = [name for name in (VARIABLE, "XDG_CACHE_HOME") if os.environ.get(name)]
    return f" (by {names[0]})" if names else ""


def _unusable(files: list[Path]) -> Iterator[tuple[Path, str]]:
    """Yield the files that would not be read, and the reasons."""
    for path in files:
        try:
            read_checked(path)
        except UnusableError as error:
            yield path, str(error)


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:  # another process has just replaced it
        return 0


def _owner(folder: Path) -> str | None:
    """Return the owner and the mode of a folder, such as "root (this user), mode 700"; None where users have none."""
    if not hasattr(os, "getuid") or not os.path.exists(folder):
        return None
    status = folder.stat()
    whose = "this user" if status.st_uid == os.getuid() else "ANOTHER USER"
    return f"{_name(status.st_uid)} ({whose}), mode {status.st_mode & 0o7777:o}"


def _name(number: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:  # as in containers that run as any number
        return f"user {number}"


def _barrier(barrier: str) -> Iterator[Finding]:
    if barrier:
        cause = f"it cannot be kept in its folder ({barrier}), but beside the package, if that can be written"
        yield Finding(CORE, "machine code", cause, f"set {VARIABLE} to a folder that you may write")


def _damage(folder: Path, unusable: dict[Path, str]) -> Iterator[Finding]:
    if unusable:
        path, text = next(iter(unusable.items()))
        count = f"{len(unusable)} files cannot be used"
        cause = f"{count}; programs that need them are compiled anew: {in_line(path)}: {text}"
        yield Finding(EXTRA, "machine code", cause, f"rm -r {shlex.quote(str(folder))}")


def _room(folder: Path) -> Iterator[Finding]:
    left = free(folder)
    if left is not None and left < LITTLE:
        cause = f"{existing(folder)} has {in_bytes(left)} free"
        yield Finding(CORE, "machine code", cause, f"free space, or set {VARIABLE} to a folder on another disk")
