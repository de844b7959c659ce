"""The files of saved demonstrations: spaces as JSON and arrays as safetensors, without pickled data.

demonstrations.json          format, schema, marltrain's version, spaces, checksums
demonstrations.safetensors   "action", "ends", "legal", and "obs/<part>", "next_obs/<part>" of `Layout`
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from marltrain.core.errors import SaveError, error_text
from marltrain.core.layout import Array
from marltrain.storage.files import check_free, complete_folder, path_of, read_arrays, replacing_folder, write_arrays
from marltrain.storage.manifest import Manifest

DESCRIPTION = "demonstrations.json"
ARRAYS = "demonstrations.safetensors"
FILES = Manifest("marltrain-demonstrations", 1, "demonstrations", DESCRIPTION, (ARRAYS,))
INFO = {"observation_space": dict, "action_space": dict, "frame_stack": int}
"""Keys of the spaces' description, and their types."""

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
        FILES.write(folder, saved.info)


def read_demonstrations(path: str | Path, restored: Callable[[Saved], Made]) -> Made:
    """Read the files and return what `restored` makes of them; raises SaveError, naming the file, for other content."""
    folder = complete_folder(path)
    file, description = folder / DESCRIPTION, FILES.read(folder, set(INFO))
    for name, kind in INFO.items():
        if type(description[name]) is not kind:
            raise SaveError(f"{file}: {name!r} must be of type {kind.__name__}, got {description[name]!r:.80}")
    saved = Saved({name: description[name] for name in INFO}, read_arrays(folder / ARRAYS))
    try:
        return restored(saved)
    except Exception as error:  # invalid content may raise any exception
        raise SaveError(f"{file}: the demonstrations cannot be restored: {error_text(error)}") from error
