"""Population-based training that goes on after its process has ended: equal in every number to one that did not."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import ConfigError, SaveError
from marltrain.tools.tuning import pbt
from marltrain.trainer.saving.checkpoint import find, write
from marltrain.trainer.training import loop
from marltrain.trainer.training.run import Run
from tests.tiers import LONG
from tests.tools.killing import Killed, kill
from tests.toys import Identity
from tests.trainer.running import SHORT, SMALL

FEW = {"num_train_envs": 3, "num_test_envs": 2, "update_freq": 24, "episodes_per_test": 2}
SPACE = {"network": SMALL, "minibatches": 2, "epochs": 1, "learning_rate": (1e-3, 0.1), "gae_lambda": (0.5, 0.9),
         "gamma": 0.9, "clip": 0.2, "entropy_coef": 0.0, "value_coef": 0.5}  # fmt: skip


def trained(resume: Any = None, space: Any = SPACE, **settings: Any) -> mt.PBTResult:
    """4 members; tests after 36, 72, 108 and 120 env steps, of which those at 36 and 108 fall into a rollout of 24."""
    given = {"members": 4, "steps": 120, "every": 36, "trainer": FEW, "env_args": SHORT, "resume": resume, **settings}
    return mt.population_based_training("ppo", Identity, space, **given)


@pytest.fixture(scope="module")
def whole() -> mt.PBTResult:
    """A population that was not saved."""
    return trained()


@pytest.fixture(scope="module")
def begun(tmp_path_factory) -> Path:
    """A search that was killed after its test at env step 72."""
    folder = tmp_path_factory.mktemp("search") / "s"
    with pytest.MonkeyPatch.context() as patch:
        kill(patch, Run, "collect", 30)
        with pytest.raises(Killed):
            trained(folder)
    return folder


@pytest.fixture
def saved(begun, tmp_path) -> Path:
    """A copy to change."""
    return Path(shutil.copytree(begun, tmp_path / "search"))


def assert_equal(result, whole):
    """The table, the best member, its settings, and everything in the state of its agents."""
    assert result.table.to_csv() == whole.table.to_csv()
    assert (result.member, result.metric, result.settings) == (whole.member, whole.metric, whole.settings)
    for own, expected in zip(result.agents, whole.agents, strict=True):
        one, other = own.state(), expected.state()
        assert one.info == other.info and one.arrays.keys() == other.arrays.keys()
        assert all(np.array_equal(one.arrays[name], array) for name, array in other.arrays.items())


def test_a_population_that_is_saved_equals_one_that_is_not(whole, tmp_path, monkeypatch, caplog):
    """The folder holds checkpoints only; the finished search is not trained again."""
    assert (whole.table["copied"] >= 0).sum() == 3
    assert_equal(trained(tmp_path / "s"), whole)
    names = sorted(str(path.relative_to(tmp_path / "s")) for path in (tmp_path / "s").glob("*/*/*"))
    assert names == ["together/checkpoints/120"] and not caplog.text
    monkeypatch.setattr(Run, "collect", None)
    assert_equal(trained(str(tmp_path / "s")), whole)
    assert "this search is finished: nothing is trained" in caplog.text


@pytest.mark.parametrize(
    ("owner", "name", "call", "step"),
    [
        (Run, "collect", 4, 0),  # in the first round
        (loop, "checkpoint_if_due", 12, 0),  # between the copy and the checkpoint
        (pbt, "copy_rows", 3, 72),
        (os, "replace", 9, 36),  # while the second checkpoint is written
        *LONG
        * [
            (loop, "play_test", 1, 0),  # before the first test
            (pbt, "copy_rows", 1, 0),  # in the first copy, at env step 36
            (Run, "collect", 27, 72),  # between two rounds
        ],
    ],
)
def test_a_killed_population_goes_on_and_equals_the_whole_one(
    owner, name, call, step, whole, tmp_path, monkeypatch, caplog
):
    with monkeypatch.context() as patch:
        kill(patch, owner, name, call)
        with pytest.raises(Killed):
            trained(tmp_path / "s")
    assert_equal(trained(tmp_path / "s"), whole)
    assert f"the search goes on from env step {step}\n" in caplog.text


def test_ctrl_c_keeps_the_step_and_tells_how_to_go_on(whole, tmp_path, monkeypatch, capsys):
    """Within a rollout, three steps after the copy of env step 36; then again within a test."""
    for place, (owner, name, call) in {"45": (Run, "collect", 15), "72": (loop, "play_test", 1)}.items():
        with monkeypatch.context() as patch:
            kill(patch, owner, name, call, lambda: os.kill(os.getpid(), signal.SIGINT))
            with pytest.raises(KeyboardInterrupt):
                trained(tmp_path / "s")
        data = capsys.readouterr().err.splitlines()[-1]
        assert data == f"marltrain: interrupted; the same call goes on with the search: resume='{tmp_path / 's'}'"
        assert [path.name for path in (tmp_path / "s" / "together" / "checkpoints").iterdir()] == [place]
    assert_equal(trained(tmp_path / "s"), whole)


def test_a_process_that_is_killed_leaves_a_population_that_goes_on(whole, tmp_path, caplog):
    """SIGKILL in batch step 20, at env step 57; the lock of the folder ends with the process."""
    code = f"from tests.tools.tuning.test_pbt_resumed import killed; killed({str(tmp_path / 's')!r})"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    assert (tmp_path / "s" / "run.lock").exists()
    assert_equal(trained(tmp_path / "s"), whole)
    assert "the search goes on from env step 36" in caplog.text and not (tmp_path / "s" / "run.lock").exists()


def killed(folder: str) -> None:
    """Train a population in a process that kills itself."""
    kill(pytest.MonkeyPatch(), Run, "collect", 20, lambda: os.kill(os.getpid(), signal.SIGKILL))
    trained(folder)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"seed": 1}, "seed is 1, and was 0"),
        ({"members": 5}, "members is 5, and was 4"),
        ({"steps": 150}, "steps is 150, and was 120"),
        ({"every": 24}, "trainer.test_freq_steps is 24, and was 36"),
        ({"share": 0.3}, "share is 0.3, and was 0.2"),
        ({"trainer": {**FEW, "num_train_envs": 4}}, "trainer.num_train_envs is 4, and was 3"),
        ({"env_args": {"players": 3, "length": 3}}, "env_args.players is 3, and was 2"),
        ({"reward_metric": lambda rewards: rewards.min()}, "reward_metric is .*, and was None"),
        ({"space": {**SPACE, "gamma": 0.8}}, "space.gamma is 0.8, and was 0.9"),
        ({"space": {**SPACE, "gae_lambda": (0.5, 0.8)}}, r"space.gae_lambda\[1\] is 0.8, and was 0.9"),
        ({"space": dict(sorted(SPACE.items()))}, r"order\[0\] is 'gae_lambda', and was 'learning_rate'"),
    ],
)
def test_a_population_of_other_settings_is_refused(settings, told, begun):
    with pytest.raises(ConfigError, match=told):
        trained(begun, **settings)


def test_a_search_of_another_tool_is_refused(begun):
    with pytest.raises(ConfigError, match=r"find_learning_rate.*population_based_training"):
        mt.find_learning_rate("ppo", Identity, [0.1, 1.0], resume=begun, env_args=SHORT)


def forged(folder: Path, change: Any) -> None:
    """Change the state of the recorder in the newest checkpoint, and write it with right checksums."""
    found = find(folder / "together")
    assert found is not None
    (own,) = [one["state"] for one in found.state.info["callbacks"]["all"] if one["type"] == "Recorder"]
    change(own)
    of_the_run = ("env_steps", "episodes", "best", "seed", "call", "versions", "threads", "reproducible")
    write(folder / "together", {name: found.manifest[name] for name in of_the_run}, found.state, keep=1)


def put(value, *place):
    """Return what replaces a value in a nested state."""

    def change(state):
        for key in place[:-1]:
            state = state[key]
        state[place[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (put([], "trainings"), "0 trainings are saved, and 4 go on"),
        (put([], "trainings", 1, "readings"), "a training without an error must have a reading"),
        (put([0, 1.0, {}, 1], "trainings", 0, "readings", 0), "a reading must hold env_steps, metric, losses"),
        (put(40, "trainings", 0, "readings", 1, 0), r"tested at the env steps \[0, 40, 72\], and the run at"),
        (put({"float": "nan"}, "trainings", 0, "readings", 1, 1), "metric of a reading must be a number, got nan"),
        (put("x", "trainings", 2, "error"), "a training with an error must be stopped"),
        (put(9, "trainings", 2, "more"), "an outcome must hold readings, error and stopped"),
        (put({}, "memory"), "settings"),
        (put(3.0, "memory", "settings", 0, "gae_lambda"), "gae_lambda must be from 0.5 to 0.9, got 3.0"),
        (put([{}], "memory", "settings"), "settings of 1 members are saved, and there are 4"),
        (put({}, "memory", "settings", 3), "a member must have the settings learning_rate, gae_lambda"),
        (put(7, "memory", "rows", 0, "member"), "member must be from 0 to 3, got 7"),
        (put(-2, "memory", "rows", 0, "copied"), "copied must be from -1 to 3, got -2"),
        (put({}, "memory", "rows", 2), "a row must hold member, env_steps, metric, learning_rate"),
        (put("PCG32", "memory", "rng", "bit_generator"), "a generator's state must be what numpy's PCG64"),
    ],
)
def test_a_forged_state_is_refused(change, told, saved):
    forged(saved, change)
    with pytest.raises(SaveError, match=f"cannot be resumed: .*{told}") as refused:
        trained(saved)
    assert refused.value.__notes__[0] == "To begin the search again, name another folder: resume=..."


def test_a_damaged_checkpoint_is_refused(saved):
    file = saved / "together" / "checkpoints" / "72" / "run.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    with pytest.raises(SaveError, match=r"its checksum is not the one in checkpoint\.json"):
        trained(saved)
