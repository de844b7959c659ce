"""The cache of machine code: whole, damaged, of another user, in a place that takes no files."""

import os
import shlex
from pathlib import Path

import pytest

from marltrain.jit.cache import write_checked
from marltrain.tools.doctor import code
from marltrain.tools.doctor.code import machine_code
from marltrain.tools.doctor.report import CORE, EXTRA


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of a cache of two programs, of two files each: 57 bytes and the data."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "a cache"))
    folder = tmp_path / "a cache" / "marltrain" / "native"
    for key in ("first", "second"):
        (folder / key / "game_1").mkdir(parents=True)
        for name in ("step.nbi", "step.1.nbc"):
            write_checked(folder / key / "game_1" / name, b"123")
    return folder


def facts(section):
    return {fact.name: fact.value for fact in section.facts}


def test_a_whole_cache(folder):
    found = machine_code()
    assert facts(found) == {
        "folder": str(folder), "state": None, "owner": facts(found)["owner"], "size": 240, "programs": 2, "files": 4,
        "unusable": 0,
    }  # fmt: skip
    assert "(this user), mode 7" in facts(found)["owner"]
    assert str(found.facts[0]) == f"{folder} (by NUMBA_CACHE_DIR)"
    assert not found.findings


def test_an_empty_cache(folder, tmp_path, monkeypatch):
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    found = machine_code()
    assert facts(found)["folder"] == str(tmp_path / "home" / "marltrain" / "native")
    assert (facts(found)["programs"], facts(found)["owner"], str(found.facts[1])) == (0, None, "can be made")
    assert not found.findings and not (tmp_path / "home").exists()


def test_damaged_files_are_counted_and_the_folder_is_to_be_removed(folder):
    first, second = folder / "first" / "game_1" / "step.nbi", folder / "second" / "game_1" / "step.1.nbc"
    first.write_bytes(first.read_bytes()[:-1])
    second.unlink()
    second.symlink_to(first)
    found = machine_code()
    assert (facts(found)["files"], facts(found)["unusable"]) == (4, 2)
    (finding,) = found.findings
    assert (finding.concerns, finding.remedy) == (EXTRA, f"rm -r '{folder}'")
    assert "2 files cannot be used" in finding.cause and str(folder) in finding.cause
    assert shlex.split(finding.remedy)[2] == str(folder)


def test_files_that_others_may_write_are_not_used(folder):
    (folder / "first" / "game_1" / "step.nbi").chmod(0o666)
    assert facts(machine_code())["unusable"] == 1


def test_files_of_another_user(folder, monkeypatch):
    mine = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: mine + 1)
    found = facts(machine_code())
    assert found["unusable"] == 4 and "ANOTHER USER" in found["owner"]


def test_a_user_without_a_name(folder, monkeypatch):
    """As in containers that run as any number."""
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    assert facts(machine_code())["owner"].startswith(f"user {os.getuid()} (this user)")


def test_other_files_are_no_programs(folder):
    (folder / "first" / "step.nbi.tmp.0123").write_bytes(b"1234567890")
    found = facts(machine_code())
    assert (found["size"], found["files"], found["unusable"]) == (250, 4, 0)


def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    """The home is a file, as in a container without one."""
    (tmp_path / "home").write_text("")
    for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    found = machine_code()
    (finding,) = found.findings
    assert facts(found)["state"] == f"{tmp_path}/home is not a folder" and facts(found)["state"] in finding.cause
    assert finding.concerns == CORE and "NUMBA_CACHE_DIR" in finding.remedy


def test_a_folder_that_this_user_may_not_even_look_into(folder, monkeypatch):
    """pathlib raises PermissionError there, which permission bits cannot show to root."""

    def refused(path):
        raise PermissionError(13, "Permission denied")

    for name in ("exists", "is_dir"):
        monkeypatch.setattr(Path, name, refused)
    assert facts(machine_code())["programs"] == 2


def test_no_home(monkeypatch):
    def unknown():
        raise RuntimeError("Could not determine home directory.")

    for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", unknown)
    (finding,) = machine_code().findings
    assert "Could not determine home directory" in finding.cause and "NUMBA_CACHE_DIR" in finding.remedy


def test_a_full_disk(folder, monkeypatch):
    monkeypatch.setattr(code, "free", lambda path: 3 * 2**20)
    (finding,) = machine_code().findings
    assert finding.cause == f"{folder} has 3.0 MiB free" and finding.concerns == CORE
