"""The files of saved demonstrations: spaces as JSON and arrays as safetensors, without pickled data.

demonstrations.json          format, schema, marltrain's version, spaces, checksums
demonstrations.safetensors   "action", "ends", "legal", and "obs/<part>", "next_obs/<part>" of `Layout`
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from marltrain.errors import SaveError, error_text
from marltrain.files import (
    check_free,
    check_own_checksum,
    check_sha256,
    complete_folder,
    path_of,
    read_arrays,
    replacing_folder,
    sha256,
    with_checksum,
    write_arrays,
)
from marltrain.json_files import read_json, write_json
from marltrain.layout import Array
from marltrain.version import __version__

FORMAT = "marltrain-demonstrations"
SCHEMA = 1
DESCRIPTION = "demonstrations.json"
ARRAYS = "demonstrations.safetensors"
INFO = {"observation_space": dict, "action_space": dict, "frame_stack": int}
"""Keys of the spaces' description, and their types."""
KEYS = {"format", "schema", "marltrain", "files", "sha256", *INFO}

Made = TypeVar("Made")


class Saved(NamedTuple):
    """The content of the files: the values of INFO, and the arrays by name."""

    info: Mapping[str, Any]
    arrays: Mapping[str, Array]


def write_demonstrations(path: str | Path, saved: Saved) -> None:
    """Write the files into a folder that replaces `path`; see `Demonstrations.save`."""
    path = path_of(path)
    check_free(path, DESCRIPTION, "demonstrations")
    with replacing_folder(path) as folder:
        write_arrays(folder / ARRAYS, saved.arrays)
        description = {
            "format": FORMAT, "schema": SCHEMA, "marltrain": __version__, **saved.info,
            "files": {ARRAYS: sha256(folder / ARRAYS)},
        }  # fmt: skip
        write_json(folder / DESCRIPTION, with_checksum(description))


def read_demonstrations(path: str | Path, restored: Callable[[Saved], Made]) -> Made:
    """Read the files and return what `restored` makes of them; raises SaveError, naming the file, for other content."""
    folder = complete_folder(path)
    file = folder / DESCRIPTION
    description = _description(file)
    check_sha256(folder / ARRAYS, description["files"][ARRAYS], DESCRIPTION)
    saved = Saved({name: description[name] for name in INFO}, read_arrays(folder / ARRAYS))
    try:
        return restored(saved)
    except Exception as error:  # invalid content may raise any exception
        raise SaveError(f"{file}: the demonstrations cannot be restored: {error_text(error)}") from error


def _description(file: Path) -> dict[str, Any]:
    found = read_json(file)
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise SaveError(f"{file}: does not describe demonstrations: its format is not {FORMAT!r}")
    check_own_checksum(file, found)
    if found.get("schema") != SCHEMA:
        schema, version = found.get("schema"), found.get("marltrain")
        raise SaveError(
            f"{file}: schema {schema!r}, written by marltrain {version}; {__version__} reads schema {SCHEMA}"
        )
    if wrong := set(found) ^ KEYS:
        raise SaveError(f"{file}: keys missing or unknown: {', '.join(sorted(wrong))}")
    for name, kind in INFO.items():
        if type(found[name]) is not kind:
            raise SaveError(f"{file}: {name!r} must be of type {kind.__name__}, got {found[name]!r:.80}")
    if not isinstance(found["files"], dict) or set(found["files"]) != {ARRAYS}:
        raise SaveError(f'{file}: "files" must name {ARRAYS} and nothing else, got {found["files"]!r:.80}')
    return found
