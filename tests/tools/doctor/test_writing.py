import tempfile

import pytest

from marltrain.tools.doctor.writing import existing, free, in_bytes, obstacle


def test_folders_that_can_be_made(tmp_path):
    assert obstacle(tmp_path) == obstacle(tmp_path / "a" / "b") == ""
    assert existing(tmp_path / "a" / "b") == tmp_path
    assert not list(tmp_path.iterdir())
    assert free(tmp_path / "a") == pytest.approx(free(tmp_path), rel=0.5)


def test_a_folder_below_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    assert obstacle(tmp_path / "file" / "a" / "b") == f"{tmp_path}/file is not a folder"


def test_a_link_that_leads_nowhere(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    assert obstacle(tmp_path / "link" / "a") == f"{tmp_path}/link is not a folder"


@pytest.mark.parametrize(("number", "reason"), [(30, "Read-only file system"), (28, "No space left on device")])
def test_a_folder_that_takes_no_file(tmp_path, monkeypatch, number, reason):
    """Permissions bind nobody who is root, and tell nothing of these."""

    def failing(**arguments):
        raise OSError(number, reason)

    monkeypatch.setattr(tempfile, "TemporaryFile", failing)
    assert obstacle(tmp_path / "a") == f"{tmp_path} takes no file: {reason}"


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (None, "unknown"), (0, "0 bytes"), (1023, "1023 bytes"), (1024, "1.0 KiB"), (1536 * 2**20, "1.5 GiB"),
        (5000 * 2**40, "5000.0 TiB"),
    ],
)  # fmt: skip
def test_bytes(size, text):
    assert in_bytes(size) == text
