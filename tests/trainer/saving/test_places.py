"""Places that a file may name, and files that may be replaced."""

import pytest

import marltrain as mt
from marltrain.trainer.saving.places import HEAD, PlaceInRun, check_folder, check_replaceable

ALLOWED = (
    "mine.csv",
    "tables/mine.csv",
    "a/b/c.d.csv",
    "שלום.csv",
    "scalars.csv",
    "best.csv",
    "lasting/x.csv",
    "k=1,2.csv",
)
REFUSED = {
    "is an absolute path": ("/etc/x.csv", "//host/share/x.csv", "C:/x", "c:x.csv", "\\x.csv", "\\\\host\\share\\x.csv"),
    "leaves its folder": ("..", "../x.csv", "a/../../x.csv", "a/..", "a\\..\\..\\x.csv"),
    "begins at a home folder": ("~/x.csv", "~root/x.csv", "~"),
    "has an empty name": ("", "a//x.csv", "a/", "/"[1:]),
    "is no part of a name on every system": ("a\\x.csv", "x.csv:s", "x\n.csv", "x\0.csv", "\x1b[2Jx", "a\u202e.csv"),
    "has a hidden name": (".", "./x.csv", ".x.csv", "a/.x.csv"),
    "Windows reads otherwise": ("x.csv.", "x.csv ", " x.csv", "a./x.csv", "nul", "CON.csv", "a/com1.txt"),
    "is too long": ("a" * 201, "ä" * 101),
    "that the run writes itself": (
        "config.json", "Config.JSON", "history.parquet", "best/agents.json", "LAST", "checkpoints/1/x", "films/x.gif",
        "metrics.png", "run.lock", "events.out.tfevents.1", "faults.parquet", "range_test.csv", "chec\u212apoints/x",
    ),
}  # fmt: skip


@pytest.mark.parametrize("text", ALLOWED)
def test_a_relative_path_is_a_place_in_the_run(text, tmp_path):
    assert PlaceInRun(text).within(tmp_path) == tmp_path / text


@pytest.mark.parametrize(("reason", "text"), [(reason, text) for reason, texts in REFUSED.items() for text in texts])
def test_other_places_are_refused(reason, text):
    with pytest.raises(mt.ConfigError, match=reason):
        PlaceInRun(text)


@pytest.mark.parametrize("value", [1, None, ("a",), b"x.csv", True])
def test_a_place_is_text(value):
    with pytest.raises(mt.ConfigError, match="is not text"):
        PlaceInRun(value)


def test_a_link_out_of_the_run_is_refused(tmp_path):
    run, outside = tmp_path / "run", tmp_path / "outside"
    run.mkdir()
    outside.mkdir()
    (run / "tables").symlink_to(outside)
    (run / "x.csv").symlink_to(outside / "x.csv")
    for text in ("tables/mine.csv", "x.csv"):
        with pytest.raises(mt.SaveError, match="leads out of the folder"):
            PlaceInRun(text).within(run)


def test_only_our_files_are_replaced(tmp_path):
    def check(path):
        check_replaceable(path, "a table", lambda head: head.startswith(b"ours"))

    ours, others, empty = tmp_path / "ours", tmp_path / "others", tmp_path / "empty"
    ours.write_bytes(b"ours" + b"x" * 2 * HEAD)
    others.write_text("theirs")
    empty.touch()
    (tmp_path / "link").symlink_to(others)
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    for path in (ours, empty, tmp_path / "free"):
        check(path)
    for path in (others, tmp_path / "link"):
        with pytest.raises(mt.ConfigError, match=rf"{path} exists and is not a table of marltrain's"):
            check(path)
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(mt.ConfigError, match="exists and is no file"):
            check(path)
    assert others.read_text() == "theirs"


def test_a_folder_with_files_of_these_names_becomes_no_run(tmp_path):
    (tmp_path / "notes.txt").touch()
    check_folder(tmp_path)
    (tmp_path / "last").mkdir()
    (tmp_path / "metrics.png").touch()
    with pytest.raises(mt.ConfigError, match=r"holds last, metrics\.png, and no run"):
        check_folder(tmp_path)
