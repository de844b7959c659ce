"""Safe reading and writing: atomic files and folders, arrays without unpickling, checksums.

A file or folder is written under a temporary name, flushed to disk and then moved. So a reader never sees a partial
file, and a crash or a full disk leaves the old file in place. Files that are read may be malicious: they must lie in
their own folder, their size is checked before memory is allocated, and nothing in them is executed.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from marltrain.core.errors import MarlTrainError, SaveError, shown
from marltrain.core.layout import Array
from marltrain.storage.checks import check_memory


def path_of(path: Any, what: str = "path", error: type[MarlTrainError] = SaveError) -> Path:
    """Return an absolute path that ends in a name, also for "." and "..".

    what: name of the argument, for messages.
    Raises `error` for values that cannot be a path: other types, text with NUL, names that are too long.
    """
    if not isinstance(path, str | os.PathLike) or path == "":
        raise error(f"{what} must be a path, got {shown(path)}")
    try:
        absolute = Path(path).absolute()
        absolute = absolute.resolve() if absolute.name == ".." else absolute
        with suppress(FileNotFoundError, NotADirectoryError):
            absolute.lstat()
    except (OSError, TypeError, ValueError) as refusal:
        reason = getattr(refusal, "strerror", None) or refusal
        raise error(f"{what} {shown(str(path))} cannot be used as a path: {reason}") from refusal
    return absolute


@contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Turn an OSError of writing, such as a full disk or a missing permission, into a SaveError that names `path`."""
    try:
        yield
    except OSError as error:
        raise SaveError(f"{path}: cannot be written: {error.strerror or error}") from error


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path to write a file to; at the end it replaces `path`, after an error it is removed.

    Raises SaveError, naming `path`, if it cannot be written.
    """
    path = path_of(path)
    if not path.name:
        raise SaveError(f"{path}: is the root of the file system: name a file")
    beside = _temporary(path)
    try:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            yield beside
            _flush(beside)
            os.replace(beside, path)
            _flush(path.parent)
    finally:
        beside.unlink(missing_ok=True)


def to_disk(path: str | Path) -> None:
    """Bring a file and its entry in the folder to the disk; raises SaveError, naming the file, if this fails.

    What a program still buffers is not part of the file: flush it before.
    """
    path = Path(path)
    with writing(path):
        _flush(path)
        _flush(path.parent)


@contextmanager
def replacing_folder(path: str | Path) -> Iterator[Path]:
    """Yield an empty temporary folder; at the end it replaces the folder `path`, after an error it is removed.

    The replacement takes two moves. If a crash occurs between them, `complete_folder` finds the old folder.
    Raises SaveError, naming `path`, if it cannot be written, and for the working folder and its parents, which cannot
    be replaced.
    """
    path = path_of(path)
    if _works_in(path):
        raise SaveError(f"{path}: the working folder is this folder, or lies in it. Name a folder of its own")
    beside, previous = _temporary(path), _previous(path)
    try:
        with writing(path):
            beside.mkdir(parents=True)
            yield beside
            for inner in beside.rglob("*"):
                _flush(inner)
            _flush(beside)
            if path.exists():
                shutil.rmtree(previous, ignore_errors=True)
                os.replace(path, previous)
            os.replace(beside, path)
            _flush(path.parent)
            shutil.rmtree(previous, ignore_errors=True)
    except SaveError as error:  # about a file inside: name its final path
        raise SaveError(str(error).replace(str(beside), str(path))) from error.__cause__
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def made_folder(path: str | Path, what: str = "path") -> Path:
    """Make a folder, if it does not exist, for files that are written later; return its absolute path.

    Raises SaveError, naming the folder, if it cannot be made or takes no files.
    """
    path = path_of(path, what)
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    return path


def check_free(path: Path, description: str, what: str) -> None:
    """Raise SaveError if the folder `path` holds other files than those of `what`, which it describes in a file."""
    if path.is_dir() and any(path.iterdir()) and not (path / description).is_file():
        raise SaveError(
            f"{path}: holds other things than {what} ({description} is not there); name a folder of its own"
        )
    if path.exists() and not path.is_dir():
        raise SaveError(f"{path}: is a file, and {what} are saved as a folder")


def complete_folder(path: str | Path) -> Path:
    """Return the folder that `replacing_folder` last completed for `path`; raises SaveError if there is none."""
    previous = _previous(path_of(path))
    for found in (Path(path), previous):
        if found.is_dir():
            return found
    raise SaveError(f"{path}: there is no such folder")


def inside(folder: str | Path, name: str) -> Path:
    """Return the path of `name` in `folder`; raises SaveError for a name that leads out of the folder."""
    root = Path(folder).resolve()
    found = (root / name).resolve()
    if not found.is_relative_to(root) or found == root:
        raise SaveError(f"{folder}: the name {name!r} leads out of the folder")
    return found


def write_arrays(path: str | Path, arrays: Mapping[str, Array]) -> None:
    """Write named arrays of any numeric dtype and shape as a safetensors file; raises SaveError for other dtypes."""
    try:
        data = pack_arrays(arrays)
    except SaveError as error:
        raise SaveError(f"{path}: cannot be written: {error}") from error
    with replacing(path) as beside:
        beside.write_bytes(data)


def pack_arrays(arrays: Mapping[str, Array]) -> bytes:
    """Return named arrays as the bytes of a safetensors file; raises SaveError for non-numeric dtypes."""
    from safetensors import SafetensorError
    from safetensors.numpy import save

    straight = {name: np.asarray(array, order="C") for name, array in arrays.items()}  # safetensors ignores strides
    try:
        return save(straight)
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        kinds = {name: str(a.dtype) for name, a in arrays.items()}
        raise SaveError(f"{error}. The arrays are {kinds}") from error


def unpack_arrays(data: bytes) -> dict[str, Array]:
    """Return the arrays from the bytes that `pack_arrays` returned."""
    from safetensors.numpy import load

    return load(data)


def read_arrays(path: str | Path) -> dict[str, Array]:
    """Read a file of `write_arrays`; raises SaveError, naming the file, if it is missing or damaged.

    The header of the file is checked against the file's size before memory is allocated.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    check_memory(path, size_of_file(path))
    try:
        arrays = load_file(path)
    except OSError as error:
        raise SaveError(f"{path}: cannot be read: {error}") from error
    except (SafetensorError, AttributeError, KeyError, TypeError, ValueError) as error:  # NumPy lacks some dtypes
        raise SaveError(f"{path}: not a safetensors file, or damaged: {error}") from error
    for name, array in arrays.items():
        if array.dtype == bool and array.size and array.view(np.uint8).max() > 1:  # NumPy counts such values wrongly
            raise SaveError(f"{path}: {name} holds truth values that are neither 0 nor 1")
    return arrays


def sha256(path: str | Path) -> str:
    """Return a file's SHA-256 in hexadecimal; raises SaveError if it cannot be read or does not fit into memory."""
    check_memory(path, size_of_file(path))
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise SaveError(f"{path}: cannot be read: {error.strerror}") from error


def with_checksum(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of JSON values with their checksum under the key "sha256"."""
    return {**content, "sha256": _digest(content)}


def check_own_checksum(path: str | Path, found: Mapping[str, Any]) -> None:
    """Raise SaveError, naming the file, unless its values match their checksum from `with_checksum`."""
    if found.get("sha256") != _digest(found):
        raise SaveError(f"{path}: its checksum is not the one it holds: it was changed or damaged")


def check_sha256(path: str | Path, expected: str, by: str) -> None:
    """Raise SaveError, naming the file, unless it has the expected checksum; by: name of the file that states it."""
    if sha256(path) != expected:
        raise SaveError(f"{path}: its checksum is not the one in {by}: it was changed or damaged")


def size_of_file(path: str | Path) -> int:
    """Return a file's size in bytes; raises SaveError unless it is a regular file, and no link out of its folder."""
    path = Path(path)
    try:
        status, real = path.stat(), path.resolve(strict=True)
    except (OSError, RuntimeError) as error:  # a loop of links raises either, depending on the Python version
        raise SaveError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if not stat.S_ISREG(status.st_mode):
        raise SaveError(f"{path}: is not a file")
    if not real.is_relative_to(path.parent.resolve()):
        raise SaveError(f"{path}: is a link to {real}, out of its folder: put the file itself there")
    return status.st_size


def _works_in(folder: Path) -> bool:
    """Return whether a folder is the working folder of this process or one of its parents."""
    with suppress(FileNotFoundError):  # a working folder that was removed
        return Path.cwd().is_relative_to(folder.resolve())
    return False


def _temporary(path: Path) -> Path:
    """Return a unique temporary path for an incomplete file; it keeps the suffix, which some writers need."""
    return path.with_name(f".{path.stem}.{secrets.token_hex(4)}.part{path.suffix}")


def _previous(path: Path) -> Path:
    """Return the path of the old folder during a replacement."""
    return path.with_name(f".{path.name}.previous") if path.name else path


def _flush(path: Path) -> None:
    """Flush a file, or the entries of a folder, to disk."""
    if os.name == "nt" and path.is_dir():
        return  # Windows cannot open folders
    handle = os.open(path, os.O_RDONLY if os.name != "nt" else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _digest(content: Mapping[str, Any]) -> str:
    rest = {name: value for name, value in content.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
