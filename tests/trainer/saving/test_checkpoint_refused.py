"""Checkpoints that are damaged, invalid or cannot be written: each is refused with an error that names the file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import ConfigError, SaveError
from marltrain.storage import files
from marltrain.storage.files import sha256
from marltrain.trainer.saving import checkpoint
from marltrain.trainer.saving.checkpoint import Checkpoint, find
from tests.trainer.running import At, Recorder, dqn, ppo, trainer
from tests.trainer.saving.test_checkpoint import written

FILES = ("checkpoint.json", "state.json", "run.safetensors", "memory.safetensors")


@pytest.mark.parametrize("name", FILES)
def test_damaged_file_is_named(name, run):
    file = run / "checkpoints" / "60" / name
    good, rng = file.read_bytes(), np.random.default_rng(0)
    damaged = [good[: rng.integers(len(good))] for _ in range(20)]
    for place in rng.integers(len(good), size=200):
        damaged.append(good[:place] + bytes([good[place] ^ (1 << rng.integers(8))]) + good[place + 1 :])
    refused = 0
    for data in damaged:
        file.write_bytes(data)
        try:
            found = find(run)
        except SaveError as error:
            assert name in str(error)
            assert f"resume={str(run / 'checkpoints' / '42')!r}" in str(error)
            refused += 1
        else:  # a blank between two values, at most
            assert name == "checkpoint.json"
            assert found is not None
            assert found.manifest == json.loads(good)
    assert refused > 0.8 * len(damaged)


@pytest.mark.parametrize("name", FILES)
def test_missing_file_or_file_of_another_checkpoint_is_named(name, run):
    file = run / "checkpoints" / "60" / name
    shutil.copy(run / "checkpoints" / "42" / name, file)
    if name != "checkpoint.json":
        with pytest.raises(SaveError, match=f"{name}: its checksum is not the one"):
            find(run)
    else:
        with pytest.raises(SaveError, match=r"checkpoint\.json: is of env step 42, in the folder of env step 60"):
            find(run)
    file.unlink()
    with pytest.raises(SaveError, match=f"{name}: cannot be read"):
        find(run)


def test_resume_from_a_named_checkpoint_and_error_for_a_missing_one(run):
    (run / "checkpoints" / "60" / "state.json").write_text("{}")
    found = find(run / "checkpoints" / "42")
    assert found is not None
    assert (found.run_dir, found.manifest["env_steps"]) == (run, 42)
    with pytest.raises(SaveError, match="there is no such folder"):
        find(run / "checkpoints" / "43")
    with pytest.raises(ConfigError, match="resume must be the folder"):
        find(7)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="is a file"):
        find(run / "config.json")


def test_run_killed_before_its_first_file_is_restarted(tmp_path):
    """Between creating its folder and writing config.json; other folders are not treated as runs."""
    killed = tmp_path / "killed"
    (killed / "checkpoints").mkdir(parents=True)
    assert find(killed) is None
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("not a run")
    with pytest.raises(ConfigError, match=r"it holds no config\.json"):
        find(tmp_path / "other")


def signed(folder: Path, **changes) -> None:
    """Change a manifest and correct its checksum."""
    data = {**json.loads((folder / "checkpoint.json").read_text()), **changes}
    (folder / "checkpoint.json").write_text(json.dumps(files.with_checksum(data)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": 2, "marltrain": "9.9"}, "schema 2, written by marltrain 9.9; .* reads schema 1. Resume it with"),
        ({"format": "marltrain-agents"}, "does not describe a checkpoint"),
        ({"more": 1}, "keys missing or unknown: more"),
        ({"files": {"../../config.json": "0"}}, r"\"files\" must name memory.* and nothing else"),
        ({"env_steps": 42}, "is of env step 42, in the folder of env step 60"),
        ({"env_steps": "60"}, "'env_steps' must be of type int"),
        ({"seed": -1}, "'seed' must be of type int, and no less than 0, got -1"),
        ({"best": 1}, "'best' must be of type bool"),
        ({"threads": []}, "'threads' must be of type dict"),
    ],
)
def test_invalid_manifest_is_refused(run, changes, message):
    signed(run / "checkpoints" / "60", **changes)
    with pytest.raises(SaveError, match=message):
        find(run)


def test_incomplete_state_is_refused(run):
    folder = run / "checkpoints" / "60"
    info = json.loads((folder / "state.json").read_text())
    del info["courses"]
    (folder / "state.json").write_text(json.dumps(info))
    signed(folder, files={name: sha256(folder / name) for name in FILES[1:]})
    with pytest.raises(SaveError, match="60 cannot be resumed: courses is missing"):
        trainer(steps_per_train=90, run_dir=None).train(dqn(), [1, 1], plot=False, resume=run)


def test_full_disk_keeps_the_previous_checkpoint(monkeypatch):
    def full(path, arrays):
        raise OSError(28, "No space left on device")

    fill = At(12, lambda moment: monkeypatch.setattr(checkpoint, "write_arrays", full))
    callbacks = [fill, Checkpoint(every_steps=30)]
    with pytest.raises(SaveError, match=r"60: cannot be written: No space left on device\. .*/30, is complete"):
        trainer(steps_per_train=90, callbacks=callbacks).train(dqn(), [1, 1], plot=False)
    assert written() == [30]
    assert find("run") is not None


class Keeping(mt.Callback):
    """Stores the given state."""

    def __init__(self, kept):
        self.kept = kept

    def state_dict(self):
        return self.kept

    def load_state_dict(self, state):
        self.kept = state["kept"]


def test_state_of_callbacks_is_checked_before_training():
    calls: list = []
    callbacks = [Keeping({"array": np.array(["text"])}), Checkpoint(every_steps=1000), Recorder(calls)]
    with pytest.raises(
        SaveError, match=r"Keeping\.state_dict\(\) must return JSON values and arrays: its value\['array'\] is"
    ):
        trainer(steps_per_train=90, callbacks=callbacks).train(ppo(), [1, 1], plot=False)
    assert [event for event, *_ in calls] == ["on_train_start", "on_checkpoint", "on_train_end"]  # the last agents
    trainer(steps_per_train=90, callbacks=[Keeping(np.zeros(2))]).train(ppo(), [1, 1], plot=False)


def test_error_in_load_state_dict_names_the_callback(run):
    folder = run / "checkpoints" / "60"
    info = json.loads((folder / "state.json").read_text())
    info["callbacks"]["all"].append({"type": "Keeping", "state": {"other": 1}})
    (folder / "state.json").write_text(json.dumps(info))
    signed(folder, files={name: sha256(folder / name) for name in FILES[1:]})
    with pytest.raises(SaveError, match=r"60 cannot be resumed: Keeping\.load_state_dict: KeyError: 'kept'"):
        trainer(steps_per_train=90, run_dir=None, callbacks=[Keeping({})]).train(dqn(), [1, 1], plot=False, resume=run)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("counters", "env_steps"), "60", "counters/env_steps must be of type int, got '60'"),
        (("counters", "episodes"), True, "counters/episodes must be of type int, got True"),
        (("seconds",), "long", "seconds must be of type float, got 'long'"),
        (("hooks", "train"), {}, r"hooks/train must be of type int, got \{\}"),
        (("callbacks", "all", 0, "state", "last"), ["a", 1.0], "the last step must be of type int, got 'a'"),
        (("callbacks",), None, "callbacks must be of type dict, got None"),
        (("history", "tests", "names", 1), "steps", "a table that begins with episodes, env_steps"),
        (("history", "means", "names"), [1, 2], r"history/means/names\[0\] must be of type str, got 1"),
        (("actors", "carries"), [], "1 learners act here, and 0 did"),
        (("agents", "agents", "0"), [], r"agents/agents/0 must be of type dict, got \[\]"),
        (("agents", "agents", "0", "learner", "updates"), -1, "agents/agents/0/learner/updates must be from 0 to"),
        (("agents", "agents", "0", "learner", "hyper"), {}, r"agents/agents/0/learner/hyper holds \[\], expected"),
        (("agents", "agents", "0", "learner", "rngs", "act", "state", "inc"), 0, "a generator's state must be"),
        (("courses", "0", "gathered"), 1e308, r"courses/0/gathered must be of type int, got 1e\+308"),
        (("courses", "0", "gathered"), 10, "courses/0/gathered must be from 0 to 9, got 10"),
        (("courses", "0", "credit"), 1.0, "courses/0/credit must be a fraction of an update, below 1, got 1.0"),
        (("actors", "carries"), [{"list": 3}], "a carry/dict is missing"),
        (("callbacks", "all", 0, "state", "last"), [0, "1.5"], "its seconds must be of type float, got '1.5'"),
        (
            ("faults", "rows"),
            [["train", "0", 1.5, "died", 0, 0, 0, 0, "x"]],
            "env_steps of a fault must be of type int",
        ),
    ],
)
def test_state_with_wrong_types_is_refused(run, place, value, message):
    folder = run / "checkpoints" / "60"
    info = json.loads((folder / "state.json").read_text())
    *path, last = place
    inner = info
    for key in path:
        inner = inner[key]
    inner[last] = value
    (folder / "state.json").write_text(json.dumps(info))
    signed(folder, files={name: sha256(folder / name) for name in FILES[1:]})
    with pytest.raises(SaveError, match=f"60 cannot be resumed: .*{message}|{message}"):
        trainer(steps_per_train=90, run_dir=None).train(dqn(), [1, 1], plot=False, resume=run)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (
            "memory/0/rows/next",
            lambda a: a * 0 - 10**9,
            r"memory/0/rows/next\[0, 0, 0\] must be from -65 to -1, got -10",
        ),
        ("memory/0/rows/action", lambda a: a + 100, r"memory/0/rows/action\[0, 0, 0\] must be from 0 to 2, got 10"),
        ("memory/0/rows/obs/vector", lambda a: a + 1, "shows player 'player_0' another 'vector' than environment 0"),
        ("masks", lambda a: ~a, "masks is False for every player"),
        ("applied", lambda a: a[:1], r"applied must be bool of shape \(2, 2\), got bool of shape \(1, 2\)"),
        ("history/tests/rows", lambda a: a[:0], "history/tests has 0 rows, and 1 tests are counted"),
        ("history/tests/rows", lambda a: a + 0.5, "history/tests/rows: episodes, env_steps, .* must be whole numbers"),
        (
            "agents/agents/0/net/q/hidden0.weight",
            lambda a: a * np.nan,
            r"weight hidden0.weight\[0, 0\] must be a finite number",
        ),
        (
            "agents/agents/0/net/q/hidden0.weight",
            lambda a: a.astype(int),
            "weight hidden0.weight must be float32 of shape",
        ),
        ("agents/agents/0/optimizer/q/second", lambda a: a - 1, r"optimizer state 'second'\[0\] must be from 0"),
        ("agents/agents/0/optimizer/q/count", lambda a: a + 1e9, r"optimizer state 'count'\[0\] must be from 0 to 16"),
    ],
)
def test_impossible_numbers_are_refused(run, name, change, message):
    folder = run / "checkpoints" / "60"
    file = folder / ("memory.safetensors" if name.startswith("memory/") else "run.safetensors")
    arrays = files.read_arrays(file)
    files.write_arrays(file, {**arrays, name: change(arrays[name])})
    signed(folder, files={name: sha256(folder / name) for name in FILES[1:]})
    with pytest.raises(SaveError, match=f"60 cannot be resumed: .*{message}"):
        trainer(steps_per_train=90, run_dir=None).train(dqn(), [1, 1], plot=False, resume=run)


def test_checkpoint_that_cannot_be_removed_is_named(run, monkeypatch):
    """The new checkpoint exists, and the run can be resumed from it."""

    def refuse(path, ignore_errors=False):
        if not ignore_errors:
            raise OSError(13, "Permission denied")

    monkeypatch.setattr(shutil, "rmtree", refuse)
    with pytest.raises(SaveError, match=r"/63 is written, but older ones cannot be removed: Permission denied"):
        trainer(steps_per_train=63, run_dir=None, callbacks=[Checkpoint(every_steps=63, keep=1)]).train(
            dqn(), [1, 1], plot=False, resume=run
        )
    found = find(run)
    assert found is not None
    assert found.manifest["env_steps"] == 63
