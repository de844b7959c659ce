"""Safe reading and writing: atomic files and folders, JSON and arrays without unpickling.

A file or folder is written under a temporary name, flushed to disk and then moved. So a reader never sees a partial
file, and a crash or a full disk leaves the old file in place. Files that are read may be malicious: they must lie in
their own folder, their size is checked before memory is allocated, and nothing in them is executed.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from marltrain.checks import shaped
from marltrain.errors import MarlTrainError, SaveError, shown
from marltrain.layout import Array

JSON_LIMIT = 64 * 2**20
"""Maximum size of a JSON file, in bytes."""
DEPTH_LIMIT = 64
"""Maximum nesting depth of a JSON file."""
MOST_COUNTED = 2**53
"""Largest count accepted from a file: float64, the dtype of counts in tables, represents all integers up to it."""
_HALF_PAIR = re.compile(rb"\\u[dD][89a-fA-F]")
"""Half of a surrogate pair in JSON; UTF-8 cannot encode such text."""


@dataclass
class State:
    """State of an object, for saving and restoring it.

    info: plain JSON values.  arrays: named NumPy arrays.  name: path of the state, as in "memory/0/ends", for messages.
    """

    info: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, Array] = field(default_factory=dict)
    name: str = field(default="", compare=False, repr=False)

    @classmethod
    def joined(cls, **parts: State) -> State:
        """Return a state that combines several states; `part` returns them by name."""
        made = cls()
        for name, part in parts.items():
            made.add(name, part)
        return made

    def add(self, name: str, part: State) -> None:
        """Add the state of a part; its arrays get names "<name>/..."."""
        self.info[name] = part.info
        self.arrays.update({f"{name}/{key}": array for key, array in part.arrays.items()})

    def part(self, name: str) -> State:
        """Return the part added under a name; raises SaveError if there is none."""
        start = f"{name}/"
        held = {key.removeprefix(start): array for key, array in self.arrays.items() if key.startswith(start)}
        return State(self.value(name, dict), held, self.place(name))

    def place(self, name: str) -> str:
        """Return the path of a value or array of this state, for messages."""
        return f"{self.name}/{name}".removeprefix("/")

    def value(self, name: str, *kinds: type) -> Any:
        """Return a JSON value; raises SaveError if it is missing or of another type than `kinds`."""
        if name not in self.info:
            raise SaveError(f"{self.place(name)} is missing")
        return of_type(self.place(name), self.info[name], *kinds)

    def values(self, name: str, *kinds: type) -> list[Any]:
        """Return a list of JSON values; raises SaveError if one of them is of another type than `kinds`."""
        return [of_type(f"{self.place(name)}[{i}]", one, *kinds) for i, one in enumerate(self.value(name, list))]

    def names(self, name: str) -> list[str]:
        """Return a list of names; raises SaveError if one is not text or occurs twice."""
        found = self.values(name, str)
        if len(set(found)) != len(found):
            raise SaveError(f"{self.place(name)} holds a name twice: {', '.join(found):.200}")
        return found

    def count(self, name: str, low: int = 0, high: int = MOST_COUNTED) -> int:
        """Return an integer; raises SaveError if it is missing or not from `low` to `high`."""
        return counted(self.place(name), self.value(name, int), low, high)

    def array(self, name: str, dtype: Any, shape: tuple[int, ...]) -> Array:
        """Return an array; raises SaveError if it is missing or has another dtype or shape."""
        return shaped(self.place(name), self.any_array(name), dtype, shape)

    def any_array(self, name: str) -> Array:
        """Return an array of any dtype and shape; raises SaveError if it is missing."""
        if name not in self.arrays:
            raise SaveError(f"{self.place(name)} is missing")
        return self.arrays[name]


def path_of(path: Any, what: str = "path", error: type[MarlTrainError] = SaveError) -> Path:
    """Return an absolute path that ends in a name, also for "." and "..".

    what: name of the argument, for messages.
    Raises `error` for values that cannot be a path: other types, text with NUL, names that are too long.
    """
    if not isinstance(path, str | os.PathLike) or path == "":
        raise error(f"{what} must be a path, got {shown(path)}")
    try:
        whole = Path(path).absolute()
        whole = whole.resolve() if whole.name == ".." else whole
        with suppress(FileNotFoundError, NotADirectoryError):
            whole.lstat()
    except (OSError, TypeError, ValueError) as refusal:
        reason = getattr(refusal, "strerror", None) or refusal
        raise error(f"{what} {shown(str(path))} cannot be used as a path: {reason}") from refusal
    return whole


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
    beside = _beside(path)
    try:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            yield beside
            _flush(beside)
            os.replace(beside, path)
            _flush(path.parent)
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def replacing_folder(path: str | Path) -> Iterator[Path]:
    """Yield an empty temporary folder; at the end it replaces the folder `path`, after an error it is removed.

    The replacement takes two moves. If a crash occurs between them, `whole_folder` finds the old folder.
    Raises SaveError, naming `path`, if it cannot be written, and for the working folder and its parents, which cannot
    be replaced.
    """
    path = path_of(path)
    if _works_in(path):
        raise SaveError(f"{path}: the working folder is this folder, or lies in it. Name a folder of its own")
    beside, previous = _beside(path), _previous(path)
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


def whole_folder(path: str | Path) -> Path:
    """Return the folder that `replacing_folder` last completed for `path`; raises SaveError if there is none."""
    whole = path_of(path)
    for found in (Path(path), _previous(whole)):
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


def write_json(path: str | Path, value: Any) -> None:
    """Write JSON values; raises SaveError for values that `read_json` would not return unchanged.

    These are nan, infinities, other objects, keys that are not text, and values beyond the limits of size and depth.
    `plain` converts most values.
    """
    try:
        data = (json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n").encode("utf-8")
        _check_shape(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise SaveError(f"{path}: cannot be written as JSON: {error}") from error
    if len(data) > JSON_LIMIT:
        where, size = _largest(value)
        raise SaveError(f"{path}: cannot be written: {len(data):,} bytes, and at most {JSON_LIMIT:,} are read again. "
                        f"The most, {size:,} bytes, are in {where}: keep that in arrays")  # fmt: skip
    with replacing(path) as beside:
        beside.write_bytes(data)


def read_json(path: str | Path) -> Any:
    """Read a JSON file; raises SaveError, naming it, if it is missing, too large, too deep or not strict JSON."""
    if (size := _size(path)) > JSON_LIMIT:
        raise SaveError(f"{path}: {size:,} bytes, and no JSON file of marltrain's is larger than {JSON_LIMIT:,}")
    try:
        with open(path, "rb") as file:
            data = file.read(JSON_LIMIT)
    except OSError as error:
        raise SaveError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        return parsed(data)
    except ValueError as error:
        raise SaveError(f"{path}: not a JSON file of marltrain's: {error}") from error


def parsed(data: bytes) -> Any:
    """Return JSON values from bytes, parsed as strictly as by `read_json`; raises ValueError for anything else."""
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_object)
    except RecursionError as error:
        raise ValueError(f"nested deeper than {DEPTH_LIMIT} levels") from error
    _check_shape(value)
    if _HALF_PAIR.search(data):
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    return value


def plain(value: Any) -> Any:
    """Return a JSON value that describes `value`, for records; objects without a JSON form become their class name.

    Objects with a method `describe()` are described by it; nan and infinities become strings.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(inner) for inner in (sorted(value, key=repr) if isinstance(value, set | frozenset) else value)]
    if isinstance(value, np.generic | np.ndarray):
        return plain(value.tolist())
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    describe: Callable[[], Any] | None = None if isinstance(value, type) else getattr(value, "describe", None)
    if callable(describe):
        return plain(describe())
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}:{named.__qualname__}"


def write_arrays(path: str | Path, arrays: Mapping[str, Array]) -> None:
    """Write named arrays of any numeric dtype and shape as a safetensors file; raises SaveError for other dtypes."""
    try:
        data = packed(arrays)
    except SaveError as error:
        raise SaveError(f"{path}: cannot be written: {error}") from error
    with replacing(path) as beside:
        beside.write_bytes(data)


def packed(arrays: Mapping[str, Array]) -> bytes:
    """Return named arrays as the bytes of a safetensors file; raises SaveError for non-numeric dtypes."""
    from safetensors import SafetensorError
    from safetensors.numpy import save

    straight = {name: np.asarray(array, order="C") for name, array in arrays.items()}  # safetensors ignores strides
    try:
        return save(straight)
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        kinds = {name: str(a.dtype) for name, a in arrays.items()}
        raise SaveError(f"{error}. The arrays are {kinds}") from error


def unpacked(data: bytes) -> dict[str, Array]:
    """Return the arrays from the bytes that `packed` returned."""
    from safetensors.numpy import load

    return load(data)


def read_arrays(path: str | Path) -> dict[str, Array]:
    """Read a file of `write_arrays`; raises SaveError, naming the file, if it is missing or damaged.

    The header of the file is checked against the file's size before memory is allocated.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    check_memory(path, _size(path))
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
    check_memory(path, _size(path))
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise SaveError(f"{path}: cannot be read: {error.strerror}") from error


def signed(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of JSON values with their checksum under the key "sha256"."""
    return {**content, "sha256": _digest(content)}


def check_signed(path: str | Path, found: Mapping[str, Any]) -> None:
    """Raise SaveError, naming the file, unless its values match their checksum from `signed`."""
    if found.get("sha256") != _digest(found):
        raise SaveError(f"{path}: its checksum is not the one it holds: it was changed or damaged")


def check_digest(path: str | Path, expected: str, by: str) -> None:
    """Raise SaveError, naming the file, unless it has the expected checksum; by: name of the file that states it."""
    if sha256(path) != expected:
        raise SaveError(f"{path}: its checksum is not the one in {by}: it was changed or damaged")


def of_type(what: str, value: Any, *kinds: type) -> Any:
    """Return a value read from a file; raises SaveError unless its type is one of `kinds`; bool is not int here."""
    if type(value) not in kinds:
        raise SaveError(f"{what} must be of type {' or '.join(kind.__name__ for kind in kinds)}, got {value!r:.80}")
    return value


def counted(what: str, value: Any, low: int = 0, high: int = MOST_COUNTED) -> int:
    """Return a count read from a file; raises SaveError unless it is an integer from `low` to `high`."""
    if not low <= of_type(what, value, int) <= high:
        raise SaveError(f"{what} must be from {low} to {high}, got {value!r:.80}")
    return int(value)


def check_memory(what: object, size: int) -> None:
    """Raise SaveError if `size` bytes exceed this machine's memory; without effect if its size is unknown."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else size
    if size > whole:
        raise SaveError(f"{what}: {size:,} bytes, and this machine's memory has {whole:,}")


def _size(path: str | Path) -> int:
    """Return a file's size in bytes; raises SaveError unless it is a regular file, and no link out of its folder."""
    path = Path(path)
    try:
        told, real = path.stat(), path.resolve(strict=True)
    except (OSError, RuntimeError) as error:  # a loop of links raises either, depending on the Python version
        raise SaveError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if not stat.S_ISREG(told.st_mode):
        raise SaveError(f"{path}: is not a file")
    if not real.is_relative_to(path.parent.resolve()):
        raise SaveError(f"{path}: is a link to {real}, out of its folder: put the file itself there")
    return told.st_size


def _works_in(folder: Path) -> bool:
    """Return whether a folder is the working folder of this process or one of its parents."""
    with suppress(FileNotFoundError):  # a working folder that was removed
        return Path.cwd().is_relative_to(folder.resolve())
    return False


def _beside(path: Path) -> Path:
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


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not a JSON value")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text} is larger than any number here")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(n for n in names if names.count(n) > 1)!r} stands twice in one object")
    return made


def _check_shape(value: Any) -> None:
    """Raise ValueError for values nested too deeply, or with keys that are not text, which JSON would change."""
    deepest, level = 0, [value]
    while level := [outer for outer in level if isinstance(outer, dict | list | tuple)]:
        deepest += 1
        if deepest > DEPTH_LIMIT:
            raise ValueError(f"nested deeper than {DEPTH_LIMIT} levels")
        keys = (key for outer in level if isinstance(outer, dict) for key in outer)
        if wrong := [key for key in keys if not isinstance(key, str)]:
            raise ValueError(f"the key {wrong[0]!r} is a {type(wrong[0]).__name__}, and keys must be text")
        level = [inner for outer in level for inner in (outer.values() if isinstance(outer, dict) else outer)]


def _largest(value: Any, where: str = "it") -> tuple[str, int]:
    """Return the path of the largest part of JSON values, and its size in bytes."""
    size = len(json.dumps(value))
    inner = dict(enumerate(value)) if isinstance(value, list | tuple) else value
    if not isinstance(inner, dict) or not inner:
        return where, size
    name = max(inner, key=lambda name: len(json.dumps(inner[name])))
    found = _largest(inner[name], f"{where}[{name!r}]")
    return found if 2 * found[1] > size else (where, size)
