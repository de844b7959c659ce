"""A run that was stopped and goes on in another process is the run that was not stopped, bit for bit."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import marltrain as mt
from tests.whole.resuming import CASES


@pytest.fixture(scope="module")
def resumed(tmp_path_factory) -> Path:
    """Every case, run half way here and to its end by another process."""
    folder = tmp_path_factory.mktemp("resumed")
    for name, case in CASES.items():
        case.train(folder / name, case.at, callbacks=[mt.Checkpoint(every_steps=1000)])
    command = [sys.executable, "-W", "error::UserWarning", "-m", "tests.whole.resuming", str(folder), *CASES]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=170)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("name", CASES)
def test_a_run_equals_its_two_halves(name, resumed, tmp_path):
    case = CASES[name]
    whole = case.train(tmp_path / "whole", case.steps)
    again = json.loads((resumed / f"{name}.json").read_text())
    for what, value in json.loads(json.dumps(whole)).items():
        assert again[what] == value, what


def test_runs_that_are_killed_at_random_moments_end_as_if_nothing_had_happened():
    """A short form of `make crash-test`."""
    command = [sys.executable, "-m", "tests.whole.crashing", "4"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=170)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("4 of 4 runs ended as the uninterrupted ones"), done.stdout
