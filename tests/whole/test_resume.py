"""A run that was stopped and goes on in another process is the run that was not stopped, bit for bit.

The short tier leaves out the cases whose state is that of another one: they differ in the game or in where they stop.
"""

import json
import subprocess
import sys

import pytest

import marltrain as mt
from tests.tiers import LONG, rounds
from tests.whole.resuming import CASES

LATER = ("ppo after an update", "ppo by turns", "dqn by turns", "frames on-policy", "to workers", "gymnasium", "noisy",
         "sac by turns", "line-up", "agent of one's own", "tianshou", "tianshou's own optimizer", "mappo by turns",
         "matd3", "sac with a gru", "ppo", "dqn", "tensorflow", "lstm from a memory", "ragged", "from workers",
         "one agent in two seats", "boxes and pictures", "frames", "td3", "mappo", "qmix",
         )  # fmt: skip
PLAYED = [name for name in CASES if LONG or name not in LATER]


@pytest.mark.timeout(600)
def test_a_run_equals_its_two_halves(tmp_path):
    """Every case, run half way here and to its end by another process: one, since its imports take seconds."""
    for name in PLAYED:
        case = CASES[name]
        case.train(tmp_path / name, case.at, callbacks=[mt.Checkpoint(every_steps=1000)])
    command = [sys.executable, "-W", "error::UserWarning", "-m", "tests.whole.resuming", str(tmp_path), *PLAYED]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr
    differing = []
    for name in PLAYED:
        case = CASES[name]
        whole = json.loads(json.dumps(case.train(tmp_path / "whole" / name, case.steps)))
        again = json.loads((tmp_path / f"{name}.json").read_text())
        differing += [(name, what) for what, value in whole.items() if again[what] != value]
    assert not differing


def test_runs_that_are_killed_at_random_moments_end_as_if_nothing_had_happened():
    """A short form of `make crash-test`."""
    kills = rounds(1, 8)
    command = [sys.executable, "-m", "tests.whole.crashing", str(kills)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=170)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{kills} of {kills} runs ended as the uninterrupted ones"), done.stdout
