"""Manifests of saved folders: JSON files with format, schema, marltrain's version and checksums of all files."""

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
class Manifest:
    """One kind of manifest, which lies beside the files that it describes.

    format, schema: identify the kind and its version.  what: the described objects, for errors.
    name: of the manifest.  files: names of the files that it describes.
    remedy: ends the error for another schema; "{version}" stands for the version that wrote it.
    """

    format: str
    schema: int
    what: str
    name: str
    files: tuple[str, ...]
    remedy: str = ""

    def write(self, folder: Path, content: Mapping[str, Any]) -> None:
        """Write the manifest, with the checksums of the files, which are there already."""
        header = {"format": self.format, "schema": self.schema, "marltrain": __version__}
        files = {name: sha256(folder / name) for name in self.files}
        write_json(folder / self.name, with_checksum({**header, **content, "files": files}))

    def read(self, folder: Path, keys: Set[str], optional: Set[str] = frozenset()) -> dict[str, Any]:
        """Return the manifest of a folder as `read_alone` does, and check its files.

        Raises SaveError, also for a file with another checksum.
        """
        found = self.read_alone(folder, keys, optional)
        self.check(folder, found)
        return found

    def check(self, folder: Path, found: Mapping[str, Any]) -> None:
        """Raise SaveError unless the files of a folder have the checksums in its manifest."""
        for name in self.files:
            check_sha256(folder / name, found["files"][name], self.name)

    def read_alone(self, folder: Path, keys: Set[str], optional: Set[str] = frozenset()) -> dict[str, Any]:
        """Return the manifest of a folder, with its header; the values of `keys` and `optional` are not checked.

        Raises SaveError for another format or schema, a wrong checksum of its own, missing or unknown keys or files.
        """
        file = folder / self.name
        found = read_json(file)
        if not isinstance(found, dict) or found.get("format") != self.format:
            raise SaveError(f"{file}: does not describe {self.what}: its format is not {self.format!r}")
        check_own_checksum(file, found)
        if found.get("schema") != self.schema:
            schema, version = found.get("schema"), found.get("marltrain")
            remedy = self.remedy.replace("{version}", str(version))
            raise SaveError(
                f"{file}: schema {schema!r}, written by marltrain {version}; {__version__} reads schema "
                f"{self.schema}{remedy}"
            )
        if wrong := set(found) - optional ^ (HEADER | keys):
            raise SaveError(f"{file}: keys missing or unknown: {', '.join(sorted(wrong))}")
        files = found["files"]
        if not isinstance(files, dict) or set(files) != set(self.files):
            names = ", ".join(sorted(self.files))
            raise SaveError(f'{file}: "files" must name {names} and nothing else, got {files!r:.80}')
        return found
