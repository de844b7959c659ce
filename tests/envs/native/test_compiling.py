"""Compiled code on disk: found by the next process, and never stale."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

GAME = """
from gymnasium import spaces
from marltrain.envs.native.game import Game
{imports}

class Counter(Game):
    name = "counter_v0"

    def __init__(self) -> None:
        super().__init__({{"a": (spaces.Box(-9, 99, (1,)), spaces.Discrete(2))}}, fields={{"count": int}}, limit=5)

    @staticmethod
    def reset(s, rules):
        s.count = 0

    @staticmethod
    def step(s, rules):
        s.count += {gain}

    @staticmethod
    def observe(s, rules, p, obs):
        obs[0] = s.count
"""
HELPER = """
from marltrain.compiling import compiled
STEP = {step}

@compiled
def gain(s):
    return STEP
"""
PLAY = """
import json
from marltrain.envs import make_vector
from marltrain.spec import empty_actions
from marltrain.envs.native import compiling
vector = make_vector({env!r}, None, 2)
vector.reset(0)
step = vector.step(empty_actions(vector.spec, 2))
hits = sum(vector.batch._run.stats.cache_hits.values())
print(json.dumps([float(step.obs[0][0, 0, 0]), hits]))
"""


def play(folder: Path, env: str = "own:Counter"):
    """In a new process: what is observed after one step, programs loaded from disk."""
    variables = {**os.environ, "NUMBA_CACHE_DIR": str(folder / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    variables["PYTHONPATH"] = os.pathsep.join([str(folder), variables["PYTHONPATH"]])
    code = PLAY.format(env=env)
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def write(folder: Path, gain: str, imports: str = "") -> None:
    (folder / "own.py").write_text(textwrap.dedent(GAME.format(gain=gain, imports=imports)))


def test_a_changed_rule_is_seen_and_an_unchanged_one_is_loaded(tmp_path):
    write(tmp_path, "1")
    assert play(tmp_path) == [1.0, 0]
    write(tmp_path, "3")
    assert play(tmp_path) == [3.0, 0]
    write(tmp_path, "1")
    assert play(tmp_path) == [1.0, 1]


@pytest.mark.parametrize("imports", ["from helper import gain", "import helper"])
def test_a_change_in_another_file_that_a_rule_reaches_is_seen(tmp_path, imports):
    write(tmp_path, "gain(s)" if "from" in imports else "helper.gain(s)", imports)
    for step, hits in ((2, 0), (7, 0), (2, 1)):
        (tmp_path / "helper.py").write_text(HELPER.format(step=step))
        assert play(tmp_path) == [float(step), hits]


def test_a_shipped_game_is_compiled_once_and_then_loaded(tmp_path):
    first, second = play(tmp_path, "marltrain/simple_v3"), play(tmp_path, "marltrain/simple_v3")
    assert (first[1], second[1]) == (0, 1)
