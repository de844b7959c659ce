"""Descriptions of saved folders: JSON files with format, schema, marltrain's version and checksums of all files."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marltrain.core.errors import SaveError
from marltrain.core.version import __version__
from marltrain.storage.files import check_own_checksum, check_sha256, sha256, with_checksum
from marltrain.storage.json_files import read_json, write_json

HEADER = {"format", "schema", "marltrain", "files", "sha256"}


@dataclass(frozen=True)
class Description:
    """One kind of description, which lies beside one file of arrays.

    format, schema: identify the kind and its version.  what: the described objects, for errors.
    file, arrays: names of the two files.
    """

    format: str
    schema: int
    what: str
    file: str
    arrays: str

    def write(self, folder: Path, content: Mapping[str, Any]) -> None:
        """Write the description, with the checksum of the file of arrays, which is there already."""
        header = {"format": self.format, "schema": self.schema, "marltrain": __version__}
        files = {self.arrays: sha256(folder / self.arrays)}
        write_json(folder / self.file, with_checksum({**header, **content, "files": files}))

    def read(self, folder: Path, keys: Set[str], optional: Set[str] = frozenset()) -> dict[str, Any]:
        """Return the description of a folder, with its header; the values of `keys` and `optional` are not checked.

        Raises SaveError for another format or schema, a wrong checksum of either file, and missing or unknown keys.
        """
        file = folder / self.file
        found = read_json(file)
        if not isinstance(found, dict) or found.get("format") != self.format:
            raise SaveError(f"{file}: does not describe {self.what}: its format is not {self.format!r}")
        check_own_checksum(file, found)
        if found.get("schema") != self.schema:
            schema, version = found.get("schema"), found.get("marltrain")
            raise SaveError(
                f"{file}: schema {schema!r}, written by marltrain {version}; {__version__} reads schema {self.schema}"
            )
        if wrong := set(found) - optional ^ (HEADER | keys):
            raise SaveError(f"{file}: keys missing or unknown: {', '.join(sorted(wrong))}")
        files = found["files"]
        if not isinstance(files, dict) or set(files) != {self.arrays}:
            raise SaveError(f'{file}: "files" must name {self.arrays} and nothing else, got {files!r:.80}')
        check_sha256(folder / self.arrays, files[self.arrays], self.file)
        return found
