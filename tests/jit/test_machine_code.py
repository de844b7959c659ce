"""Files of machine code: one that is damaged, or not this user's own, is compiled anew with a warning."""

import hashlib
import os
import pickle
import stat
import warnings

import pytest
from numba.core.serialize import dumps

from marltrain.jit import machine_code
from marltrain.jit.cache import FORMAT, SIZE
from marltrain.jit.compiling import cached_on_disk


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The folder of an empty cache; warnings of it are given again in each test."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(machine_code, "_WARNED", set())
    return tmp_path / "cache"


def made():
    """Return a function of this file, as a new process would make it."""

    def add(x):
        return x + 1

    return cached_on_disk(add, "key")


def hits(argument=3):
    """Call the function, and return how often machine code was loaded for it."""
    function = made()
    assert function(argument) == argument + 1
    return sum(function.stats.cache_hits.values())


def file_of(cache, ending):
    (file,) = cache.rglob(f"*.{ending}")
    return file


def with_checksum(data):
    return FORMAT + hashlib.sha256(data).digest() + data


def unknown():
    """Return a pickle of a class that is no longer there."""
    return pickle.dumps(hits).replace(b"hits", b"hots")


def flipped(data):
    """Return the bytes with one bit of the middle changed, which no unpickling would find."""
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


DAMAGED = {
    "empty": lambda data: b"",
    "cut in its head": lambda data: data[:10],
    "cut in its checksum": lambda data: data[: len(FORMAT) + SIZE - 1],
    "cut in its values": lambda data: data[:-1],
    "longer": lambda data: data + b"\0",
    "one bit": flipped,
    "zeros": lambda data: bytes(len(data)),
    "text": lambda data: b"no machine code\n",
    "without a checksum": lambda data: data[len(FORMAT) + SIZE :],
    "of other versions": lambda data: with_checksum(unknown()),
}


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_file_is_compiled_anew_with_one_warning(cache, ending, damage):
    assert hits() == 0
    file = file_of(cache, ending)
    whole = file.read_bytes()
    file.write_bytes(DAMAGED[damage](whole))
    with pytest.warns(UserWarning, match="compiled anew") as data:
        assert hits() == 0
    (warning,) = data
    assert str(file) in str(warning.message) and str(cache) in str(warning.message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert hits() == 1  # the file is whole again
    assert stat.S_IMODE(file_of(cache, ending).stat().st_mode) == 0o600
    assert not list(cache.rglob("*.tmp.*"))


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_not_read(cache, ending, mode, monkeypatch):
    hits()
    file_of(cache, ending).chmod(mode)
    monkeypatch.setattr(pickle, "loads", _checked(monkeypatch, file_of(cache, ending)))
    with pytest.warns(UserWarning, match="belongs to another user, or others may write it"):
        assert hits() == 0


def test_a_file_of_another_user_is_not_read(cache, monkeypatch):
    hits()
    mine = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: mine + 1)
    monkeypatch.setattr(pickle, "loads", _refused)
    with pytest.warns(UserWarning, match="belongs to another user"):
        assert hits() == 0


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
@pytest.mark.parametrize("kind", ["folder", "link", "pipe", "nowhere"])
def test_another_thing_in_the_place_of_a_file(cache, ending, kind, tmp_path):
    hits()
    file = file_of(cache, ending)
    kept = file.rename(tmp_path / "kept")
    if kind == "folder":
        file.mkdir()
    elif kind == "pipe":
        os.mkfifo(file)
    else:
        file.symlink_to(kept if kind == "link" else tmp_path / "gone")
    with pytest.warns(UserWarning, match="The program is compiled anew"):
        assert hits() == 0
    assert hits() == (0 if kind == "folder" else 1)  # a folder cannot be replaced


def test_code_that_cannot_be_written_runs(cache, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(machine_code, "write_checked", full)
        with pytest.warns(UserWarning, match="machine code cannot be kept: No space left on device"):
            assert hits() == 0
    assert [hits(), hits()] == [0, 1]


def test_types_whose_files_two_processes_have_mixed_up(cache):
    """Each writes its index and its data under the number 1, for an integer and for a float; the last one stays."""
    assert hits(3) == 0
    index, data = file_of(cache, "nbi"), file_of(cache, "nbc")
    first = index.read_bytes()
    index.unlink()
    data.unlink()
    assert hits(2.5) == 0
    index.write_bytes(first)  # says that the file of the float is that of the integer
    assert hits(3) == 0
    assert (hits(3), hits(2.5)) == (1, 0)


def test_an_index_of_another_source_is_not_used(cache):
    hits()
    index = file_of(cache, "nbi")
    version, names = machine_code._values(index)
    index.write_bytes(with_checksum(dumps(((version[0], b"another"), names))))
    assert [hits(), hits()] == [0, 1]


def test_a_cache_is_forgotten(cache):
    assert [hits(), hits()] == [0, 1]
    made()._cache.flush()
    assert hits() == 0


def _refused(data):
    raise AssertionError("unpickled")


def _checked(monkeypatch, file):
    """Return `pickle.loads` that refuses the values of a file."""
    refused, loads = file.read_bytes()[len(FORMAT) + SIZE :], pickle.loads

    def load(data):
        assert data != refused
        return loads(data)

    return load
