import os
import tempfile

from marltrain.tools.doctor import folders as module
from marltrain.tools.doctor.folders import folders
from marltrain.tools.doctor.report import CORE, HERE


def values(section):
    return {fact.name: fact.value for fact in section.facts}


def test_folders_that_can_be_written(tmp_path):
    found = folders()
    assert values(found)["runs"]["folder"] == str(tmp_path / "runs") and values(found)["runs"]["writable"]
    assert values(found)["temporary"]["folder"] == tempfile.gettempdir()
    assert not found.findings and not list(tmp_path.iterdir())


def test_a_file_in_the_place_of_runs(tmp_path):
    (tmp_path / "runs").write_text("")
    (finding,) = folders().findings
    assert (finding.concerns, finding.subject) == (HERE, "runs folder")
    assert finding.cause == f"{tmp_path}/runs is not a folder" and "--run-dir" in finding.remedy


def test_no_working_folder_and_no_temporary_one(monkeypatch):
    def gone():
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(os, "getcwd", gone)
    monkeypatch.setattr(tempfile, "gettempdir", gone)
    found = folders()
    assert [(finding.concerns, finding.subject) for finding in found.findings] == [
        (HERE, "runs folder"), (CORE, "temporary folder"),
    ]  # fmt: skip
    assert values(found)["runs"] == {"folder": None, "writable": False, "free": None}


def test_a_disk_that_is_nearly_full(monkeypatch):
    monkeypatch.setattr(module, "free", lambda path: 2**20)
    assert [finding.concerns for finding in folders().findings] == [CORE, CORE]
