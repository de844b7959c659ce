"""Resume: required arguments, messages, and environments that cannot be restored."""

from __future__ import annotations

import dataclasses
import enum
import json
import os
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import AgentError, ConfigError
from marltrain.trainer.preparing import resume
from marltrain.trainer.saving.checkpoint import Checkpoint
from tests.faulty_toys import Forgetful
from tests.toys import Crowd, Identity
from tests.trainer.running import SHORT, Student, change, dqn, ppo, streams_of, tables, trainer, weights


@pytest.fixture(scope="module")
def half(tmp_path_factory) -> Path:
    """A run of 30 env steps."""
    here = os.getcwd()
    os.chdir(tmp_path_factory.mktemp("half"))
    trainer(steps_per_train=30, callbacks=[Checkpoint(every_steps=30)]).train(ppo(), [1, 1], plot=False)
    folder = Path("run").resolve()
    os.chdir(here)
    return folder


def test_budgets_callbacks_and_workers_may_differ_on_resume(half, tmp_path):
    run = shutil.copytree(half, tmp_path / "run")
    agents, again = ppo(), ppo()
    expected = trainer(steps_per_train=60, run_dir="whole").train(agents, [1, 1], plot=False)
    result = trainer(
        updates_per_train=6, episodes_per_train=20, run_dir=None, seed=None, vector="subproc", num_workers=2,
        callbacks=[mt.Callback()],
    ).train(again, [1, 1], plot=False, resume=run)  # fmt: skip
    assert (result["stop_reason"], result["run_dir"]) == ("episodes_per_train", str(run))
    assert result["num_collected_steps"] == 63
    expected = trainer(steps_per_train=63, run_dir="whole").train(agents := ppo(), [1, 1], plot=False)
    assert tables(result) == tables(expected)
    assert all((a[n] == b[n]).all() for a, b in zip(weights(agents), weights(again), strict=True) for n in a)


def test_resume_without_checkpoint_callback_is_logged(half, tmp_path, caplog):
    run = shutil.copytree(half, tmp_path / "run")
    trainer(steps_per_train=33, run_dir=None, callbacks=[Checkpoint(every_steps=90)]).train(
        ppo(), [1, 1], plot=False, resume=run
    )
    assert caplog.messages == []
    trainer(steps_per_train=60, run_dir=None).train(ppo(), [1, 1], plot=False, resume=run)
    assert caplog.messages == [
        f"{run}/checkpoints/33 is resumed without a Checkpoint callback: no further checkpoints are written"
    ]


OTHER = {"players": 2, "length": 4}


@pytest.mark.parametrize(
    ("settings", "agents", "masks", "message"),
    [
        ({"num_train_envs": 4}, ppo, [1, 1], "trainer.num_train_envs is 4, and was 3"),
        ({"update_freq": 11}, ppo, [1, 1], "trainer.update_freq is 11, and was 10"),
        ({"team_reward": "sum"}, ppo, [1, 1], "trainer.team_reward is 'sum', and was None"),
        ({"reward_metric": np.max}, ppo, [1, 1], "trainer.reward_metric is 'a function', and was None"),
        ({"env": Identity, "env_args": OTHER}, ppo, [1, 1], "env_args.length is 4, and was 3"),
        ({"env": Identity, "env_args": {**SHORT, "choices": 3}}, ppo, [1, 1], "env_args.choices is given only now"),
        ({}, ppo, [1, 0], r"learning_mask\[1\] is False, and was True"),
        ({}, dqn, [1, 1], r"agents\[0\].type is 'DQN', and was 'PPO'"),
        ({}, lambda: ppo(share=True), [1, 1], r"agents\[1\].place is 0, and was 1"),
        ({}, lambda: ppo(network=mt.MLP((5,))), [1, 1], r"agents\[0\].settings.network.hidden\[0\] is 5, and was 4"),
        ({}, lambda: ppo(learning_rate=0.1), [1, 1], r"agents\[0\].settings.learning_rate is 0.1, and was 0.0003"),
        ({"seed": 1}, ppo, [1, 1], "is of a run with seed 0, and seed=1 was given"),
        ({"run_dir": "elsewhere"}, ppo, [1, 1], "run_dir is '.*elsewhere', but resume continues in"),
        ({"run_dir": False}, ppo, [1, 1], "run_dir=False writes nothing, but resume needs a folder"),
    ],
)  # fmt: skip
def test_resume_error_names_the_difference(half, settings, agents, masks, message):
    with pytest.raises(ConfigError, match=message):
        trainer(steps_per_train=60, **{"run_dir": None, **settings}).train(agents(), masks, plot=False, resume=half)
    assert sorted(path.name for path in (half / "checkpoints").iterdir()) == ["30"]


def test_resume_refuses_another_environment(half):
    with pytest.raises(ConfigError, match="env is 'Crowd', and was 'Identity'"):
        trainer(Crowd, run_dir=None).train(ppo(Crowd), [1, 1, 1], plot=False, resume=half)


def test_resume_refuses_another_line_up(half):
    with pytest.raises(ConfigError, match="test_agents is "):
        trainer(run_dir=None).train(
            agents := ppo(), [1, 1], plot=False, resume=half, test_agents=[agents[0], mt.RandomAgent()]
        )


def test_resume_refuses_a_line_up_that_no_longer_changes_seats(tmp_path):
    agents = ppo()
    line_up = [agents[0], mt.RandomAgent()]
    run = tmp_path / "run"
    trainer(steps_per_train=24, run_dir=run, callbacks=[mt.Checkpoint(every_steps=12)]).train(
        agents, [1, 1], plot=False, test_agents=line_up, rotate_tests=False
    )
    again = ppo()
    line_up = [again[0], mt.RandomAgent()]
    with pytest.raises(ConfigError, match="rotate_tests is given only there"):
        trainer(steps_per_train=60, run_dir=None).train(again, [1, 1], plot=False, resume=run, test_agents=line_up)
    result = trainer(steps_per_train=36, run_dir=None).train(
        again, [1, 1], plot=False, resume=run, test_agents=line_up, rotate_tests=False
    )
    assert result["num_collected_steps"] == 36


def test_resume_refuses_another_number_of_threads_by_default(half, tmp_path):
    run = shutil.copytree(half, tmp_path / "run")
    torch.set_num_threads(2)
    try:
        with pytest.raises(ConfigError, match=r"with 1 threads of torch, and there are 2.*OMP_NUM_THREADS=1"):
            trainer(steps_per_train=60, run_dir=None).train(ppo(), [1, 1], plot=False, resume=run)
        with pytest.warns(UserWarning, match="there are 2: the run continues, but is not exact"):
            trainer(steps_per_train=60, run_dir=None).train(
                ppo(), [1, 1], plot=False, resume=run, any_threads=True
            )  # fmt: skip
    finally:
        torch.set_num_threads(1)


def test_resume_warns_of_other_versions(half, tmp_path, monkeypatch):
    run = shutil.copytree(half, tmp_path / "run")
    now = resume.versions()
    monkeypatch.setattr("marltrain.trainer.preparing.prepare.versions", lambda: {**now, "numpy": "9.0"})
    with pytest.warns(UserWarning, match=r"was written with numpy .*, this is 9\.0"):
        trainer(steps_per_train=33, run_dir=None).train(ppo(), [1, 1], plot=False, resume=run)


def test_resume_without_checkpoint_starts_a_new_run_with_a_warning():
    """In the same folder if no run has ended in it, such as after an early crash; else in a new folder."""
    Path("runs/x").mkdir(parents=True)
    Path("runs/x/config.json").write_text("{}")
    with pytest.warns(UserWarning, match=r"runs/x holds no finished checkpoint: a new run starts, in /.*runs/x$"):
        result = trainer(steps_per_train=12, run_dir=None).train(ppo(), [1, 1], plot=False, resume="runs/x")
    assert result["run_dir"] == str(Path("runs/x").absolute())
    with pytest.warns(UserWarning, match=r"a new run starts, in /.*runs/x-2$"):
        result = trainer(steps_per_train=12, run_dir=None).train(ppo(), [1, 1], plot=False, resume="runs/x")
    assert (result["run_dir"], result["num_collected_steps"]) == (str(Path("runs/x-2").absolute()), 12)


def test_checkpoint_refuses_a_learning_agent_without_state():
    agents = [Student(lambda row: 0), ppo()[1]]
    with pytest.raises(AgentError, match=r"a Student defines no state and no restore"):
        trainer(callbacks=[Checkpoint(every_steps=3)]).train(agents, [1, 1], plot=False)
    trainer(steps_per_train=12).train(agents, [1, 1], plot=False)


def test_resume_of_a_second_call_of_train(tmp_path):
    """Streams and episode seeds continue from call to call, and in a resumed trainer."""

    def two(steps, folder):
        agents = dqn()
        run = trainer(steps_per_train=30, run_dir=folder, callbacks=[Checkpoint(every_steps=1000)])
        run.train(agents, [1, 1], plot=False)
        change(run, settings=dataclasses.replace(run.settings, steps_per_train=steps))
        return run.train(agents, [1, 1], plot=False), agents

    expected, agents = two(60, "whole")
    two(39, "half")
    again = dqn()
    result = trainer(steps_per_train=60, run_dir=None).train(again, [1, 1], plot=False, resume="half-2")
    assert tables(result) == tables(expected)
    assert all((a[n] == b[n]).all() for a, b in zip(weights(agents), weights(again), strict=True) for n in a)


class Moody(Identity):
    """Shows another symbol on request: its episodes cannot be replayed."""

    mood = 0

    def _draw(self, names=None):
        self.symbols = {name: (symbol + self.mood) % 3 for name, symbol in super()._draw(names).items()}
        return dict(self.symbols)


@pytest.mark.parametrize("make", [ppo, dqn])
def test_environment_that_cannot_be_restored_starts_a_new_episode(monkeypatch, make):
    """Three environments, each 1 step into an episode of 3 when the run stops."""
    args = {"length": 3}
    trainer(Moody, args, steps_per_train=39, callbacks=[Checkpoint(every_steps=1000)]).train(
        make(Moody, args), [1, 1], plot=False
    )
    monkeypatch.setattr(Moody, "mood", 1)
    run = trainer(Moody, args, steps_per_train=60, run_dir=None)
    with warnings.catch_warnings(record=True) as data:
        warnings.simplefilter("always")
        result = run.train(make(Moody, args), [1, 1], plot=False, resume="run")
    assert [str(one.message).split(" (")[0] for one in data] == ["environment 0", "environment 1", "environment 2"]
    assert "episode 4 (seed" in str(data[0].message)
    assert "step 1: played again, player 'player_0' is shown another observation. " in str(data[0].message)
    assert result["episodes"].length.tolist() == [3] * 18  # none has a step of two
    assert streams_of(run) is not None
    ring = streams_of(run).rings[0]
    assert ring.drawable_count.tolist() == [(ring.next[p] != -1).sum() for p in range(2)]
    if make is dqn:
        assert (ring.next[:, 12] == -1).all()  # the moves whose outcome is gone


def test_resume_with_an_irreproducible_environment_warns():
    env = {"flaw": "random", "declared": True}
    trainer(Forgetful, env, steps_per_train=30, callbacks=[Checkpoint(every_steps=1000)]).train(
        ppo(Forgetful, env), [1], plot=False
    )
    with pytest.warns(UserWarning, match="Forgetful is marked as not reproducible: the run continues") as data:
        result = trainer(Forgetful, env, steps_per_train=60, run_dir=None).train(
            ppo(Forgetful, env), [1], plot=False, resume="run"
        )
    assert len(data) == 1
    assert result["num_collected_steps"] == 60
    assert set(result["episodes"].length) == {3}


@dataclasses.dataclass
class Rules:
    """A custom argument of an environment."""

    length: int
    board: np.ndarray
    inner: object = None


class Opaque:
    """A custom argument without a description of its content."""

    def __init__(self, held):
        self.held = held


class Side(enum.Enum):
    LEFT = 1
    RIGHT = 2


SQUARE, LARGE = np.arange(4).reshape(2, 2), np.arange(1000.0)


@pytest.mark.parametrize(
    ("then", "now", "same"),
    [
        (Rules(3, SQUARE), Rules(3, SQUARE.copy()), True),
        (Rules(3, SQUARE), Rules(4, SQUARE), False),
        (Rules(3, SQUARE), Rules(3, SQUARE.T), False),
        (Rules(3, SQUARE, {"a": [LARGE]}), Rules(3, SQUARE, {"a": [LARGE.copy()]}), True),
        (Rules(3, SQUARE, {"a": [LARGE]}), Rules(3, SQUARE, {"a": [LARGE + 1e-9]}), False),
        (SQUARE, SQUARE.astype(np.int32), False),
        (SQUARE, SQUARE.reshape(4), False),
        (Side.LEFT, Side.RIGHT, False),
        (range(3), range(4), False),
        (b"ab", b"ac", False),
        ({1, 2}, {2, 1}, True),
        ({Side.LEFT}, {Side.RIGHT}, False),
        (spaces.Discrete(3), spaces.Discrete(4), False),
        (spaces.Text(3), spaces.Text(3), True),
        (np.float32(0.5), 0.5, True),
        (Opaque(1), Opaque(1), True),
        (Opaque(1), Opaque(2), True),
        (Opaque(1), Rules(1, SQUARE), False),
        (Opaque, Rules, False),
    ],
)
def test_comparison_of_environment_arguments(then, now, same):
    before, after = (json.loads(json.dumps(resume.described_argument({"x": value}))) for value in (then, now))
    assert (before == after) is same
    assert bool(resume.difference_of(before, after, "env_args")) is not same


def test_resume_from_the_working_folder(half, tmp_path, monkeypatch):
    """Named "."."""
    run = shutil.copytree(half, tmp_path / "run")
    (checkpoint,) = (run / "checkpoints").iterdir()
    for folder in (run, checkpoint):
        monkeypatch.chdir(folder)
        result = trainer(steps_per_train=36, run_dir=None).train(ppo(), [1, 1], plot=False, resume=".")
        assert (result["num_collected_steps"], result["run_dir"]) == (36, str(run))
