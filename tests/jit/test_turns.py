"""Processes that need one program at the same time: one compiles it. A lock that cannot be had costs nothing else."""

import subprocess
import sys
import time

import pytest

from marltrain.jit import turns
from marltrain.jit.turns import LOCK, turn

HOLDER = """
import sys
from pathlib import Path
from marltrain.jit.turns import turn
with turn(Path(sys.argv[1])) as mine:
    print(mine, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """A process that has locked the folder."""
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        yield process
        process.kill()


@pytest.mark.parametrize("ends", [False, True])
def test_a_process_waits_for_another_one_until_it_goes_on_by_itself(tmp_path, holder, monkeypatch, ends):
    waits = []

    def paused(seconds):
        waits.append(seconds)
        if ends:
            holder.kill()
            holder.wait()

    monkeypatch.setattr(time, "sleep", paused)
    with turn(tmp_path, patience=600.0 if ends else 0.02) as mine:
        assert mine == ends
    assert waits and (not ends or len(waits) == 1)


def test_a_folder_is_free_again_and_one_that_is_not_there_has_no_lock(tmp_path):
    for _ in range(2):
        with turn(tmp_path) as mine:
            assert mine
    assert (tmp_path / LOCK).read_bytes() == b""
    with turn(tmp_path / "none") as mine:
        assert not mine


def test_a_system_without_locks(tmp_path, monkeypatch):
    monkeypatch.setattr(turns, "fcntl", None)
    with turn(tmp_path) as mine:
        assert not mine
