"""Manifests of saved folders: written, read, and refused with the file's name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from marltrain.core.errors import SaveError
from marltrain.core.version import __version__
from marltrain.storage.files import with_checksum, write_arrays
from marltrain.storage.json_files import read_json, write_json
from marltrain.storage.manifest import Manifest

KIND = Manifest("marltrain-toys", 2, "toys", "toys.json", ("toys.safetensors",))


def written(folder: Path) -> Path:
    """Write a folder of two toys; return the description's path."""
    write_arrays(folder / KIND.files[0], {"sizes": np.arange(2)})
    KIND.write(folder, {"names": ["ball", "kite"]})
    return folder / KIND.name


def test_what_is_written_is_read(tmp_path):
    written(tmp_path)
    found = KIND.read(tmp_path, {"names"}, {"colors"})
    assert (found["names"], found["schema"], found["marltrain"]) == (["ball", "kite"], 2, __version__)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"format": "marltrain-tools"}, "does not describe toys: its format is not 'marltrain-toys'"),
        ({"schema": 3}, rf"schema 3, written by marltrain {__version__}; .* reads schema 2"),
        ({"price": 1}, "keys missing or unknown: price"),
        ({"files": {"other": ""}}, '"files" must name toys.safetensors and nothing else'),
    ],
)
def test_another_description_is_refused(change, told, tmp_path):
    file = written(tmp_path)
    held = {name: value for name, value in read_json(file).items() if name != "sha256"}
    write_json(file, with_checksum({**held, **change}))
    with pytest.raises(SaveError, match=f"toys.json: .*{told}"):
        KIND.read(tmp_path, {"names"})


def test_a_changed_file_of_arrays_and_a_changed_description_are_refused(tmp_path):
    file = written(tmp_path)
    with pytest.raises(SaveError, match=r"toys.json: keys missing or unknown: names"):
        KIND.read(tmp_path, set())
    text = file.read_text()
    file.write_text(text.replace("kite", "bike"))
    with pytest.raises(SaveError, match=r"toys\.json"):
        KIND.read(tmp_path, {"names"})
    file.write_text(text)
    write_arrays(tmp_path / KIND.files[0], {"sizes": np.arange(3)})
    with pytest.raises(SaveError, match=r"toys\.safetensors"):
        KIND.read(tmp_path, {"names"})
    with pytest.raises(SaveError, match="does not describe games"):
        replace(KIND, format="marltrain-games", what="games").read(tmp_path, {"names"})
