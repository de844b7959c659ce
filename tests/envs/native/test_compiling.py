"""Compiled code on disk: found by the next process, and never stale."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

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
from marltrain.jit.compiling import compiled
STEP = {step}

@compiled
def gain(s):
    return STEP
"""
PLAY = """
import json
from marltrain.envs import make_vector
from marltrain.core.spec import empty_actions
told = {{}}
for env in {envs}:
    vector = make_vector(env, None, 2)
    vector.reset(0)
    step = vector.step(empty_actions(vector.spec, 2))
    hits = sum(vector.batch._run.stats.cache_hits.values())
    told[env] = [float(step.obs[0][0, 0, 0]), hits]
print(json.dumps(told))
"""


def start(folder: Path, *envs: str) -> "subprocess.Popen[str]":
    variables = {**os.environ, "NUMBA_CACHE_DIR": str(folder / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    variables["PYTHONPATH"] = os.pathsep.join([str(folder), variables["PYTHONPATH"]])
    command = [sys.executable, "-c", PLAY.format(envs=envs)]
    return subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def told(started: "subprocess.Popen[str]") -> dict[str, tuple[float, int]]:
    """Return what a process tells of each game: what is observed after one step, programs loaded from disk."""
    out, errors = started.communicate()
    assert started.returncode == 0, errors
    return json.loads(out)


def write(module: Path, gain: str, imports: str = "") -> None:
    module.write_text(textwrap.dedent(GAME.format(gain=gain, imports=imports)))


def test_what_is_compiled_is_loaded_by_other_processes_unless_its_rules_have_changed(tmp_path):
    """A game whose own rule changes, and two that reach a changed one in another file.

    Of two processes that need a program at the same time, one compiles it.
    """
    rule, name, module = "rule:Counter", "name:Counter", "module:Counter"
    write(tmp_path / "name.py", "gain(s)", "from helper import gain")
    write(tmp_path / "module.py", "helper.gain(s)", "import helper")
    for step, processes, loaded in ((2, 2, 1), (7, 1, 0), (2, 1, 1)):
        write(tmp_path / "rule.py", str(step))
        (tmp_path / "helper.py").write_text(HELPER.format(step=step))
        found = [told(each) for each in [start(tmp_path, rule, name, module) for _ in range(processes)]]
        for game in (rule, name, module):
            assert [data[game][0] for data in found] == [step] * processes
            assert sum(data[game][1] for data in found) == loaded
