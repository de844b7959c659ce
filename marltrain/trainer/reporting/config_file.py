"""config.json of a run's folder: its name, its header, and the check of the header."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from marltrain.core.errors import SaveError, shown
from marltrain.core.version import __version__
from marltrain.storage.json_files import read_json

CONFIG = "config.json"
FORMAT, SCHEMA = "marltrain-run", 1
HEADER = {"format": FORMAT, "schema": SCHEMA}


def read_config(file: Path) -> dict[str, Any]:
    """Return the content of a config.json; its other values are not checked.

    Raises SaveError for a missing file, for JSON that is no object, and for another format or schema. A file without a
    header has schema 1: development versions before 0.1.0 wrote none.
    """
    found = read_json(file)
    if not isinstance(found, dict):
        raise SaveError(f"{file}: does not describe a run: it holds {shown(found)}, no JSON object")
    if found.get("format", FORMAT) != FORMAT:
        raise SaveError(f"{file}: does not describe a run: its format is {shown(found['format'])}, not {FORMAT!r}")
    schema = found.get("schema", SCHEMA)
    if type(schema) is not int or schema != SCHEMA:
        raise SaveError(
            f"{file}: schema {shown(schema)}; marltrain {__version__} reads schema {SCHEMA}. Install the version that "
            'wrote the file: "versions" in it names it'
        )
    return found
