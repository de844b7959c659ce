"""JSON files, read strictly: limited in size and depth, no repeated keys, no nan, nothing that is executed."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from marltrain.core.errors import SaveError
from marltrain.storage.files import replacing, size_of_file

JSON_LIMIT = 64 * 2**20
"""Maximum size of a JSON file, in bytes."""
DEPTH_LIMIT = 64
"""Maximum nesting depth of a JSON file."""
_HALF_PAIR = re.compile(rb"\\u[dD][89a-fA-F]")
"""Half of a surrogate pair in JSON; UTF-8 cannot encode such text."""


def write_json(path: str | Path, value: Any) -> None:
    """Write JSON values; raises SaveError for values that `read_json` would not return unchanged.

    These are nan, infinities, other objects, keys that are not text, and values beyond the limits of size and depth.
    `to_json` converts most values.
    """
    try:
        data = (json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n").encode("utf-8")
        check_shape(value)
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
    if (size := size_of_file(path)) > JSON_LIMIT:
        raise SaveError(f"{path}: {size:,} bytes, and no JSON file of marltrain's is larger than {JSON_LIMIT:,}")
    try:
        with open(path, "rb") as file:
            data = file.read(JSON_LIMIT)
    except OSError as error:
        raise SaveError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        return parse_json(data)
    except ValueError as error:
        raise SaveError(f"{path}: not a JSON file of marltrain's: {error}") from error


def parse_json(data: bytes) -> Any:
    """Return JSON values from bytes, parsed as strictly as by `read_json`; raises ValueError for anything else."""
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_object)
    except RecursionError as error:
        raise ValueError(f"nested deeper than {DEPTH_LIMIT} levels") from error
    check_shape(value)
    if _HALF_PAIR.search(data):
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    return value


def to_json(value: Any) -> Any:
    """Return a JSON value that describes `value`, for records; objects without a JSON form become their class name.

    Objects with a method `describe()` are described by it; nan and infinities become strings.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): to_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_json(inner) for inner in (sorted(value, key=repr) if isinstance(value, set | frozenset) else value)]
    if isinstance(value, np.generic | np.ndarray):
        return to_json(value.tolist())
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    describe: Callable[[], Any] | None = None if isinstance(value, type) else getattr(value, "describe", None)
    if callable(describe):
        return to_json(describe())
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}:{named.__qualname__}"


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not a JSON value")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text} is larger than any number here")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(n for n in names if names.count(n) > 1)!r} stands twice in one object")
    return result


def check_shape(value: Any) -> None:
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
