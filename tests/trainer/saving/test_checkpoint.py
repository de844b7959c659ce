"""Checkpoints: their schedule, their number and their content."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from marltrain.core.errors import ConfigError
from marltrain.trainer.events.counters import Counters
from marltrain.trainer.saving import checkpoint
from marltrain.trainer.saving.checkpoint import Checkpoint, find
from tests.trainer.running import Recorder, dqn, ppo, tables, trainer, weights


def written(run: Path | str = "run") -> list[int]:
    """Return the env steps of a run's checkpoints; all folders must be checkpoints."""
    return sorted(int(path.name) for path in (Path(run) / "checkpoints").iterdir())


# when


def test_a_checkpoint_is_due_when_a_multiple_is_passed_or_the_minutes_are_over():
    def asked(callback, *moments):
        return [callback.due(Counters(episodes, steps), seconds, best=False) for episodes, steps, seconds in moments]

    assert asked(Checkpoint(every_steps=20), (0, 16, 0), (0, 32, 0), (0, 39, 0), (0, 85, 0), (0, 99, 0)) == [
        False, True, False, True, False,
    ]  # fmt: skip
    assert asked(Checkpoint(every_episodes=2), (1, 99, 0), (2, 99, 0), (3, 99, 0), (7, 99, 0)) == [0, 1, 0, 1]
    assert asked(Checkpoint(every_minutes=0.5), (1, 1, 29), (1, 1, 31), (1, 1, 60), (1, 1, 62)) == [0, 1, 0, 1]
    both = Checkpoint(every_steps=20, every_minutes=1)
    assert asked(both, (0, 10, 61), (0, 19, 62), (0, 20, 63), (0, 21, 122), (0, 22, 124)) == [1, 0, 1, 0, 1]
    assert [Checkpoint(every_steps=9, best=on).due(Counters(), 0.0, best=True) for on in (True, False)] == [True, False]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "give an interval"),
        ({"every_steps": 0}, "every_steps must be at least 1"),
        ({"every_minutes": 0}, "every_minutes must be greater than 0"),
        ({"every_episodes": 1.5}, "every_episodes must be an integer"),
        ({"every_steps": 1, "keep": 0}, "keep must be at least 1"),
        ({"every_steps": 1, "memory": "no"}, "memory must be True or False"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ConfigError, match=message):
        Checkpoint(**arguments)


def test_two_checkpoint_callbacks_are_refused():
    with pytest.raises(ConfigError, match="2 Checkpoints"):
        trainer(callbacks=[Checkpoint(every_steps=1), Checkpoint(every_minutes=1)])


# which stay


def test_newest_checkpoints_are_kept_and_one_is_written_at_the_end():
    """Batch steps of 3, so that training for 50 env steps ends at 51; no test is better than the first."""
    calls: list = []
    callbacks = [Checkpoint(every_steps=15, keep=2), Recorder(calls, ["on_checkpoint", "on_test_end"])]
    metrics = iter([1.0, 0.0])
    run = trainer(steps_per_train=50, callbacks=callbacks, reward_metric=lambda returns: next(metrics))
    run.train(ppo(), [1, 1], plot=False)
    assert written() == [45, 51]
    assert [steps for event, _, steps in calls if event == "on_checkpoint"] == [0, 15, 30, 45, 51, 51]
    assert calls[-2:] == [("on_test_end", 15, 51), ("on_checkpoint", 15, 51)]  # the last test comes after it


def test_best_checkpoint_is_kept_beside_the_newest():
    metrics = iter([0.0, 3.0, 1.0, 4.0, 2.0, 1.0, 1.0])
    callbacks = [Checkpoint(every_steps=9, keep=1, best=True)]
    trainer(
        steps_per_train=54, test_freq=3, callbacks=callbacks, reward_metric=lambda returns: next(metrics)
    ).train(ppo(), [1, 1], plot=False)  # fmt: skip
    assert written() == [27, 54]
    assert [checkpoint._manifest(Path(f"run/checkpoints/{n}"))["best"] for n in (27, 54)] == [True, False]


def test_later_checkpoints_and_temporary_files_are_removed(run):
    for left in (".99.removed", ".77.abcd.part"):
        (run / "checkpoints" / left).mkdir()
    trainer(steps_per_train=30, run_dir=None, callbacks=[Checkpoint(every_steps=3, keep=2)]).train(
        dqn(), [1, 1], plot=False, resume=run / "checkpoints" / "21"
    )
    assert written(run) == [27, 30]


def test_checkpoint_that_was_being_replaced_is_found(run):
    newest = run / "checkpoints" / "60"
    newest.rename(newest.with_name(".60.previous"))
    found = find(run)
    assert found is not None
    assert found.manifest["env_steps"] == 60


# content


def test_checkpoint_manifest(half):
    folder = half / "checkpoints" / "60"
    assert sorted(path.name for path in folder.iterdir()) == [
        "checkpoint.json", "memory.safetensors", "run.safetensors", "state.json",
    ]  # fmt: skip
    data = json.loads((folder / "checkpoint.json").read_text())
    assert (data["format"], data["schema"], data["env_steps"], data["seed"]) == ("marltrain-checkpoint", 1, 60, 0)
    assert data["threads"] == {"torch": 1}
    assert {"marltrain", "numpy", "torch"} <= data["versions"].keys()
    assert set(data["files"]) == {"memory.safetensors", "run.safetensors", "state.json"}


def test_resume_without_memory_warns_that_it_is_not_exact():
    trainer(steps_per_train=60, callbacks=[Checkpoint(every_steps=30, memory=False)]).train(dqn(), [1, 1], plot=False)
    assert (Path("run/checkpoints/60/memory.safetensors")).stat().st_size < 100
    agents = dqn()
    with pytest.warns(UserWarning, match=r"memory=False: the run continues, but with an empty memory: it is not exact"):
        result = trainer(steps_per_train=90, run_dir=None).train(agents, [1, 1], plot=False, resume="run")
    assert (result["num_collected_steps"], result["num_collected_episodes"]) == (90, 30)
    assert len(result["episodes"]) == 30
    assert all(agent.learner_.updates.sum() > 0 for agent in agents)


def test_all_checkpoints_of_a_run_lead_to_the_same_result(half, tmp_path):
    """The oldest one and one in the middle, by name; and a run that was resumed twice."""
    whole = dqn()
    expected = trainer(steps_per_train=99, run_dir=tmp_path / "whole").train(whole, [1, 1], plot=False)
    for place in ("21", "42"):
        again = Path(shutil.copytree(half, tmp_path / place))
        agents = dqn(seed=5)  # their initial weights are replaced
        trainer(steps_per_train=72, run_dir=None, callbacks=[Checkpoint(every_steps=50)]).train(
            agents, [1, 1], plot=False, resume=again / "checkpoints" / place
        )
        result = trainer(steps_per_train=99, run_dir=None).train(agents, [1, 1], plot=False, resume=again)
        assert tables(result) == tables(expected)
        assert all((a[n] == b[n]).all() for a, b in zip(weights(whole), weights(agents), strict=True) for n in a)
