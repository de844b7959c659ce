import errno
import json
import os
import struct
from typing import Any

import numpy as np
import pytest

from marltrain.core.errors import SaveError
from marltrain.storage.files import (
    check_own_checksum,
    complete_folder,
    inside,
    path_of,
    read_arrays,
    replacing,
    replacing_folder,
    sha256,
    with_checksum,
    write_arrays,
)
from marltrain.storage.json_files import read_json, write_json


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    target = tmp_path / "deep" / "a.txt"
    with replacing(target) as beside:
        beside.write_text("old")
        assert beside.suffix == ".txt"
        assert not target.exists()
    with pytest.raises(RuntimeError, match="half"), replacing(target) as beside:
        beside.write_text("new, but")
        raise RuntimeError("half way")
    assert target.read_text() == "old"
    assert names(target.parent) == ["a.txt"]


def test_a_folder_is_replaced_whole_or_not_at_all(tmp_path):
    target = tmp_path / "agents"
    for text in ("first", "second"):
        with replacing_folder(target) as beside:
            (beside / "inner").mkdir()
            (beside / "inner" / text).write_text(text)
    assert names(target / "inner") == ["second"]  # nothing of the first is left
    with pytest.raises(RuntimeError), replacing_folder(target) as beside:
        (beside / "third").write_text("x")
        raise RuntimeError
    assert names(tmp_path) == ["agents"]
    assert names(target / "inner") == ["second"]


@pytest.mark.parametrize("failing", [1, 2])
def test_a_crash_between_the_moves_loses_nothing(tmp_path, monkeypatch, failing):
    target = tmp_path / "agents"
    with replacing_folder(target) as beside:
        (beside / "a").write_text("old")
    moves, move = [], os.replace

    def crashing(source, to):
        moves.append(to)
        if len(moves) == failing:
            raise KeyboardInterrupt
        move(source, to)

    monkeypatch.setattr(os, "replace", crashing)
    with pytest.raises(KeyboardInterrupt), replacing_folder(target) as beside:
        (beside / "a").write_text("new")
    monkeypatch.undo()
    assert (complete_folder(target) / "a").read_text() == "old"
    with replacing_folder(target) as beside:
        (beside / "a").write_text("newest")
    assert (complete_folder(target) / "a").read_text() == "newest"
    assert names(tmp_path) == ["agents"]


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(SaveError, match="nowhere: there is no such folder"):
        complete_folder(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["../b", "/etc/passwd", ".", "", "a/../../b"])
def test_no_name_leads_out_of_a_folder(tmp_path, name):
    with pytest.raises(SaveError, match="leads out"):
        inside(tmp_path / "a", name)


def test_a_name_inside_is_a_path(tmp_path):
    assert inside(tmp_path, "a/b") == tmp_path.resolve() / "a" / "b"


def test_arrays_come_back(tmp_path):
    whole = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    arrays: dict[str, Any] = {
        "plain": whole,
        "turned": whole.transpose(2, 0, 1),
        "part": whole[:, ::2, 1:3],
        "scalar": np.array(7, np.int64),
        "empty": np.zeros((0, 5), np.float64),
        "flags": np.array([True, False]),
        "image": np.arange(256, dtype=np.uint8),
        "foreign order": np.arange(3, dtype=">i4"),
    }
    write_arrays(tmp_path / "a.safetensors", arrays)
    found = read_arrays(tmp_path / "a.safetensors")
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].shape == array.shape
        assert found[name].dtype == array.dtype.newbyteorder("=")


def test_no_arrays_come_back_as_none(tmp_path):
    write_arrays(tmp_path / "a.safetensors", {})
    assert read_arrays(tmp_path / "a.safetensors") == {}


def test_objects_are_not_written(tmp_path):
    with pytest.raises(SaveError, match="cannot be written"):
        write_arrays(tmp_path / "a.safetensors", {"a": np.array([object()])})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("damage", ["cut", "header", "missing"])
def test_a_damaged_array_file_is_named(tmp_path, damage):
    path = tmp_path / "a.safetensors"
    write_arrays(path, {"a": np.arange(100)})
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(data[:-8] if damage == "cut" else b"\xff" * 8 + data[8:])
    with pytest.raises(SaveError) as raised:
        read_arrays(path)
    assert str(path) in str(raised.value)


def tensor(dtype: str, shape: list[int], end: int) -> bytes:
    """A safetensors file of one array that says this of itself, and holds 8 bytes."""
    header = json.dumps({"a": {"dtype": dtype, "shape": shape, "data_offsets": [0, end]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(8)


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("<Q", 2**60) + b"{}",
        struct.pack("<Q", 2**64 - 1) + b"{}",
        tensor("F32", [250_000_000_000], 10**12),
        tensor("F32", [250_000_000_000], 8),
        tensor("U8", [2**32, 2**32], 0),
        tensor("F32", [0, 2**62], 0),
        tensor("F32", [-2], 8),
        tensor("F32", [1] * 100 + [2], 8),
        tensor("F8_E4M3", [8], 8),
        tensor("O", [1], 8),
        struct.pack("<Q", 200_000) + b"[" * 100_000 + b"]" * 100_000,
        struct.pack("<Q", 600_001) + b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b"",
    ],
    ids=["header", "header-", "1TB", "1TB-", "huge", "none", "negative", "rank", "f8", "objects", "[[", "{{", "empty"],
)
def test_an_array_file_that_claims_what_it_does_not_hold_is_named(tmp_path, data):
    path = tmp_path / "a.safetensors"
    path.write_bytes(data)
    with pytest.raises(SaveError) as raised:
        read_arrays(path)
    assert str(path) in str(raised.value)


def test_what_is_larger_than_the_memory_is_not_read(tmp_path, monkeypatch):
    path = tmp_path / "a.safetensors"
    write_arrays(path, {"a": np.zeros(1000)})
    monkeypatch.setattr(os, "sysconf", lambda name: 64, raising=False)  # pages, of bytes: 4,096
    for read in (read_arrays, sha256):
        with pytest.raises(SaveError, match=r"a\.safetensors: 8,0\d\d bytes, and this machine's memory has 4,096"):
            read(path)


def test_a_link_out_of_the_folder_a_pipe_and_a_folder_are_refused(tmp_path):
    """A link within the folder, and one to the folder, are the user's own business."""
    here, out = tmp_path / "here", tmp_path / "out.json"
    here.mkdir()
    out.write_text("1")
    (here / "good.json").write_text("1")
    (here / "link.json").symlink_to("good.json")
    (tmp_path / "there").symlink_to(here)
    assert read_json(tmp_path / "there" / "link.json") == 1
    (here / "out.json").symlink_to(out)
    (here / "up.json").symlink_to("../out.json")
    (here / "loop.json").symlink_to("loop.json")
    (here / "folder.json").mkdir()
    os.mkfifo(here / "pipe.json")
    said = {"out": "out of its folder", "up": "out of its folder", "loop": "cannot be read", "folder": "is not a file",
            "pipe": "is not a file"}  # fmt: skip
    for name, what in said.items():
        for read in (read_json, read_arrays, sha256):
            with pytest.raises(SaveError, match=rf"here/{name}\.json: .*{what}"):
                read(here / f"{name}.json")


def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch, failing):
    write_json(tmp_path / "v.json", 1)
    with replacing_folder(tmp_path / "f") as folder:
        write_json(folder / "v.json", 1)
    monkeypatch.setattr(os, failing, full)
    with pytest.raises(SaveError, match=r"v\.json: cannot be written: No space left on device"):
        write_json(tmp_path / "v.json", 2)
    with (
        pytest.raises(SaveError, match=r"f/v\.json: cannot be written: No space left on device"),
        replacing_folder(tmp_path / "f") as folder,
    ):
        write_json(folder / "v.json", 2)
    monkeypatch.undo()
    assert names(tmp_path) == ["f", "v.json"]
    assert read_json(tmp_path / "v.json") == read_json(tmp_path / "f" / "v.json") == 1


def test_a_folder_that_cannot_be_made_or_moved_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(SaveError, match=r"file/f: cannot be written: Not a directory"),
        replacing_folder(tmp_path / "file" / "f"),
    ):
        pass
    with pytest.raises(SaveError, match=r"/f: cannot be written: No space left"), replacing_folder(tmp_path / "f"):
        monkeypatch.setattr(os, "replace", full)
    assert names(tmp_path) == ["file"]


def test_what_cannot_be_written_in_a_folder_is_told_by_its_place(tmp_path):
    with (
        pytest.raises(SaveError, match=rf"^{tmp_path}/f/v\.json: cannot be written as JSON"),
        replacing_folder(tmp_path / "f") as folder,
    ):
        write_json(folder / "v.json", object())
    assert names(tmp_path) == []


def test_what_is_signed_is_known_again(tmp_path):
    content = with_checksum({"b": 1, "a": [1.5, "ü"]})
    write_json(tmp_path / "v.json", content)
    check_own_checksum("v", read_json(tmp_path / "v.json"))
    for wrong in ({**content, "b": 2}, {**content, "c": 1}, {"a": content["a"], "b": 1}, {**content, "sha256": 7}):
        with pytest.raises(SaveError, match="v: its checksum is not the one it holds"):
            check_own_checksum("v", wrong)


def test_checksums(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    assert sha256(tmp_path / "a") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    with pytest.raises(SaveError, match="cannot be read"):
        sha256(tmp_path / "b")


def test_truth_values_are_0_or_1(tmp_path):
    write_arrays(tmp_path / "a", {"good": np.array([True, False]), "bad": np.array([1, 255], np.uint8).view(bool)})
    with pytest.raises(SaveError, match="a: bad holds truth values that are neither 0 nor 1"):
        read_arrays(tmp_path / "a")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (3, "path must be a path, got 3"), ("", "path must be a path, got ''"), (b"x", "must be a path, got b'x'"),
        ("a\0b", "embedded null byte"), ("x" * 5000, "File name too long"), ("a/" + "x" * 300, "File name too long"),
        ("\ud800", "cannot be used as a path"),
    ],
)  # fmt: skip
def test_what_is_no_path_is_refused_everywhere(path, said):
    os.mkdir("a")
    for use in (path_of, complete_folder, lambda path: replacing(path).__enter__(),
                lambda path: replacing_folder(path).__enter__()):  # fmt: skip
        with pytest.raises(SaveError, match=said):
            use(path)


def test_paths_have_a_last_name(tmp_path):
    assert path_of(".") == path_of(tmp_path) == tmp_path
    (tmp_path / "a").mkdir()
    assert path_of("a/..").name == tmp_path.name
    assert path_of("/").name == ""


def test_the_working_folder_and_the_root_are_read_and_not_replaced(tmp_path):
    assert complete_folder(".").samefile(tmp_path)
    assert str(complete_folder("/")) == "/"
    for path in (".", "..", tmp_path, "/"):
        with pytest.raises(SaveError, match="the working folder is this folder, or lies in it"):
            replacing_folder(path).__enter__()
    with pytest.raises(SaveError, match="is the root of the file system: name a file"):
        replacing("/").__enter__()
    (tmp_path / "gone").mkdir()
    os.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with replacing_folder(tmp_path / "made") as folder:  # where the working folder is gone
        (folder / "file").write_text("")
    assert (tmp_path / "made" / "file").exists()
