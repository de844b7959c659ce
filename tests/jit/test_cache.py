"""The folder of machine code, and its files: written as a whole, read by their owner, with a checksum."""

import hashlib
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from marltrain.jit.cache import FORMAT, SIZE, UnusableError, cache_folder, read_checked, write_checked


def test_a_file_is_its_format_its_checksum_and_its_data(tmp_path):
    file = tmp_path / "a.nbi"
    write_checked(file, b"data")
    assert file.read_bytes() == FORMAT + hashlib.sha256(b"data").digest() + b"data"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert read_checked(file) == b"data"
    assert read_checked(tmp_path / "b.nbi") is None
    assert len(FORMAT) + SIZE == 57


@pytest.mark.parametrize("place", [0, 24, 25, 56, 57, 60])
def test_a_changed_byte_is_damage_wherever_it_is(tmp_path, place):
    file = tmp_path / "a.nbi"
    write_checked(file, b"data")
    whole = bytearray(file.read_bytes())
    whole[place] ^= 1
    file.write_bytes(whole)
    with pytest.raises(UnusableError, match="is damaged"):
        read_checked(file)


def test_a_failed_write_leaves_the_old_file(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("old")

    def failing(*arguments):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(OSError, match="Input/output error"):
        write_checked(tmp_path / "file", b"new")
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["file"]
    assert (tmp_path / "file").read_text() == "old"


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"NUMBA_CACHE_DIR": "/n", "XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/n/marltrain/native"),
        ({"NUMBA_CACHE_DIR": "", "XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/x/marltrain/native"),
        ({"HOME": "/h"}, "/h/.cache/marltrain/native"),
    ],
)
def test_the_folder_of_the_cache(monkeypatch, variables, expected):
    for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == Path(expected)


def test_its_state_can_be_told_without_numba():
    code = "import sys, marltrain.jit.cache\nprint({'numba', 'numpy', 'llvmlite'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
