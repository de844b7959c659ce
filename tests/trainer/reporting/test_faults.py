"""Faults in training and in tests: learned rows, counts, reports and reproducibility."""

import json
import logging
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

import marltrain as mt
from marltrain.cli import main
from marltrain.core.errors import ConfigError, EnvError, SaveError
from marltrain.core.seeds import child_seed
from marltrain.envs.faults import Fault
from marltrain.envs.rotation import Rotation
from marltrain.storage.state import State
from marltrain.trainer.reporting.faults import COLUMNS, FaultTable
from tests.faulty_toys import Broken, Flaky
from tests.toys import Identity
from tests.trainer.running import Recorder, Student, changed, ppo, tables, trainer, weights

SURVIVING = {"on_fault": "restart", "max_env_restarts": 200}


def flaky(fault="raise", at=3, every=3, **settings):
    return trainer(Flaky, {"fault": fault, "at": at, "every": every}, **{**SURVIVING, **settings})


# What is counted


class Lengths(mt.Callback):
    """Adds up the env steps of finished episodes, and records their numbers."""

    def __init__(self):
        self.steps, self.numbers = 0, []

    def on_episode_end(self, moment):
        self.steps += moment.data["length"]
        assert moment.data["length"] == 10 and (moment.data["returns"] == 10).all()
        self.numbers.append((moment.data["env"], moment.data["episode"]))


@pytest.mark.parametrize(("fault", "at"), [("raise", 3), ("nan", 10), ("raise", 0), ("nan", 5)])
def test_env_steps_include_finished_dropped_and_running_episodes(fault, at):
    seen = Lengths()
    run = flaky(fault, at, callbacks=[seen], steps_per_train=300)
    result = run.train([mt.RandomAgent(), ppo(Flaky)[1]], [0, 1], plot=False)
    data = result["faults"]
    ours = data[data["role"] == "train"]
    assert result["num_collected_steps"] == 300 and len(ours) > 3
    assert result["num_dropped_steps"] == at * len(ours)
    running = int(run.run.episodes.lengths.sum())
    assert seen.steps + result["num_dropped_steps"] + running == 300
    assert result["num_collected_episodes"] == len(seen.numbers) == len(result["episodes"])
    skipped = set(zip(ours["env"], ours["episode"], strict=True))
    skipped |= {(e, k + 1) for e, k in skipped} if (fault, at) == ("nan", 10) else set()
    finished = set(seen.numbers)
    assert not finished & skipped
    for e in range(3):  # every number is played once, or skipped for a fault
        numbers = [k for i, k in finished | skipped if i == e]
        assert sorted(numbers)[: len(numbers) - 1] == list(range(len(numbers) - 1))


def test_fault_table_has_place_and_time(tmp_path):
    result = flaky(every=2, steps_per_train=120, run_dir=tmp_path / "run").train(ppo(Flaky), [1, 1], plot=False)
    data = result["faults"]
    assert list(data.columns) == list(COLUMNS) and len(data) == result["num_faults"] > 4
    assert set(data["role"]) == {"train", "test"}
    for row in data.itertuples():
        assert row.seed == child_seed(0, "episode", row.role, row.env, row.episode) and row.seed % 2 == 0
        assert (row.kind, row.step) == ("exception", 3) and 0 <= row.seconds < 60
        kind = "test environment" if row.role == "test" else "environment"
        assert row.message.startswith(
            f"{kind} {row.env} (Flaky), episode {row.episode} (seed {row.seed}), step 3: Zero"
        )
    assert data["env_steps"].is_monotonic_increasing and data["env_steps"].max() <= 120
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "run" / "faults.parquet"), data)


def test_run_without_faults_has_an_empty_table_and_no_file(tmp_path):
    result = flaky("", steps_per_train=60, run_dir=tmp_path / "run").train(ppo(Flaky), [1, 1], plot=False)
    assert len(result["faults"]) == result["num_faults"] == result["num_dropped_steps"] == 0
    assert not (tmp_path / "run" / "faults.parquet").exists()


# What is learned from


def test_decision_before_a_fault_is_not_learned_from():
    """An observation is t/10, the reward is 1, and the fault comes with step 3: the decision at 0.2 has no outcome."""
    student = Student(lambda seen: 0)
    run = flaky(every=2, update_freq=3, steps_per_train=300)
    result = run.train([student, mt.RandomAgent()], [1, 0], plot=False)
    seen = np.concatenate([batch.observation[:, 0] for batch in student.seen])
    after = np.concatenate([batch.next_observation[:, 0] for batch in student.seen])
    assert np.allclose(after - seen, 0.1) and (np.concatenate([batch.reward for batch in student.seen]) == 1).all()
    assert not np.concatenate([batch.terminated for batch in student.seen]).any()
    cut = int((result["faults"]["role"] == "train").sum())
    assert cut > 5 and len(seen) == 300 - cut
    begun, third = np.isclose(seen, 0.0).sum(), np.isclose(seen, 0.2).sum()
    assert begun - third == cut + (run.run.episodes.lengths < 3).sum() - (run.run.episodes.lengths == 0).sum()


@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_runs_with_faults_are_reproducible_with_any_workers(algorithm):
    output = []
    for place in ({}, {}, {"vector": "subproc", "num_workers": 2}):
        own: Any = {"epochs": 1, "minibatches": 2} if algorithm == "ppo" else {"learning_starts": 0, "n_step": 3}
        agents = mt.make_agents(algorithm, Flaky, seed=0, network=mt.MLP(hidden=(4,)), **own)
        result = flaky("nan", 4, test_freq=5, steps_per_train=200, **place).train(agents, [1, 1], plot=False)
        output.append((result, agents))
    (first, agents), *others = output
    assert first["num_faults"] > 10
    for result, again in others:
        assert tables(result) == tables(first)
        assert not any(changed(weights(agents), weights(again)))
        pd.testing.assert_frame_equal(result["faults"].drop(columns="seconds"), first["faults"].drop(columns="seconds"))


# Tests


def test_tests_count_finished_episodes_only():
    run = flaky(every=2)
    result = run.test([mt.RandomAgent(), mt.RandomAgent()], episodes=9)
    assert result.lengths.tolist() == [10] * 9 and (result.returns == 10).all()


def test_test_episode_with_a_fault_is_replayed_with_the_same_line_up():
    """The line-up rotates by one seat per episode: each entry occupies each seat as often as without faults."""
    run, faults = flaky(every=2), list[Fault]()
    with run.setup.vector_env(2, "test") as envs:
        from marltrain.trainer.evaluating.evaluation import Evaluation
        from marltrain.trainer.seats.seats import Seating

        seating = Seating(
            envs.spec, [mt.FunctionAgent(lambda seen: 0), mt.FunctionAgent(lambda seen: 1)], 0, stack=False
        )
        rotation = Rotation(envs.spec)
        result = Evaluation(envs, 0, None).play(seating.learners, 8, rotation=rotation, on_faults=faults.extend)
    assert len(faults) > 2
    assert result.seats.tolist() == [[0, 1], [1, 0]] * 4
    assert result.lengths.tolist() == [10] * 8


def test_faults_in_tests_are_recorded_and_drop_no_training_steps():
    """The first test episode raises in step 3; training has no fault in 30 steps."""
    run = flaky(every=5, steps_per_train=30, seed=_calm_seed())
    result = run.train(ppo(Flaky), [1, 1], plot=False)
    assert result["num_dropped_steps"] == 0 and set(result["faults"]["role"]) == {"test"}
    assert result["num_faults"] == len(result["faults"]) >= 2


def _calm_seed() -> int:
    def broken(run, role, episodes):
        return [e for e in range(3) for k in range(episodes) if child_seed(run, "episode", role, e, k) % 5 == 0]

    return next(run for run in range(9999) if not broken(run, "train", 2) and 0 in broken(run, "test", 1))


# When it is too much


def test_too_many_faults_end_training_with_a_full_report_and_a_table(tmp_path):
    calls: list = []
    run = flaky(every=1, at=2, max_env_restarts=7, run_dir=tmp_path / "run", num_test_envs=1, episodes_per_test=1,
                callbacks=[Recorder(calls, ["on_train_end"])])  # fmt: skip
    with pytest.raises(EnvError, match="8 faults within 10,000 env steps; max_env_restarts=7 are survived") as raised:
        run.train(ppo(Flaky), [1, 1], plot=False)
    data = pd.read_parquet(tmp_path / "run" / "faults.parquet")
    assert len(data) == 8 and all(message in str(raised.value) for message in data["message"])
    assert run.run.faults.frame["role"].tolist() == ["test"] * 8 and len(calls) == 1


def test_fault_before_the_first_finished_episode_is_an_error_by_default():
    with pytest.raises(EnvError, match=r"episode 0 .*step 3: ZeroDivisionError"):
        trainer(Broken, {"fault": "raise", "at": 3}, steps_per_train=60).train(ppo(Broken), [1, 1], plot=False)
    later = trainer(Broken, {"fault": "raise", "at": 3, "episode": 2}, steps_per_train=75, num_train_envs=1,
                    num_test_envs=1, episodes_per_test=1)  # fmt: skip
    result = later.train(ppo(Broken), [1, 1], plot=False)
    assert result["num_dropped_steps"] == 9
    assert result["faults"]["role"].tolist() == ["train"] * 3 + ["test"]  # this object's third episode, too


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"env_timeout": 1.0}, r'env_timeout=1 needs worker processes.* use vector="subproc"'),
        ({"env_timeout": 0.0, "vector": "subproc"}, "env_timeout must be greater than 0"),
        ({"on_fault": "ignore"}, "on_fault must be one of raise, restart, got 'ignore'"),
        ({"max_env_restarts": -1}, "max_env_restarts must be at least 0"),
    ],
)
def test_wrong_settings_are_refused_before_anything_runs(settings, message):
    with pytest.raises(ConfigError, match=message):
        trainer(Identity, **settings)


def test_native_games_refuse_env_timeout():
    with pytest.raises(ConfigError, match="env_timeout=2 has no meaning for a native game"):
        trainer("marltrain/CartPole-v1", {}, vector="subproc", env_timeout=2.0)


# Resuming


@pytest.mark.parametrize(
    "places", [({}, {"max_env_restarts": 300}), ({"vector": "subproc", "num_workers": 2, "env_timeout": 9.0}, {})]
)
def test_resumed_run_with_faults_equals_an_uninterrupted_run(places, tmp_path):
    def train(folder, steps, place, resume=None):
        run = flaky("raise", 4, test_freq=5, steps_per_train=steps, callbacks=[mt.Checkpoint(every_steps=1000)],
                    run_dir=None if resume else folder, **place)  # fmt: skip
        agents = ppo(Flaky)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return run.train(agents, [1, 1], plot=False, resume=resume), agents

    whole, expected = train(tmp_path / "whole", 300, {})
    train(tmp_path / "halves", 132, places[0])
    result, agents = train(None, 300, places[1], resume=tmp_path / "halves")
    assert tables(result) == tables(whole) and whole["num_faults"] > 10
    assert result["num_dropped_steps"] == whole["num_dropped_steps"] > 0
    pd.testing.assert_frame_equal(result["faults"].drop(columns="seconds"), whole["faults"].drop(columns="seconds"))
    assert not any(changed(weights(expected), weights(agents)))


class Turned(Flaky):
    """Raises in the second step of some episodes, after a certain time."""

    turned: frozenset[int] = frozenset()

    def _now(self, fault):
        return fault == "raise" and self.t == 2 and self.seed in self.turned


def test_steps_of_episodes_that_cannot_be_replayed_are_dropped(tmp_path, monkeypatch):
    def train(steps, **where):
        run = trainer(Turned, {}, callbacks=[mt.Checkpoint(every_steps=1000)], steps_per_train=steps, **SURVIVING,
                      run_dir=None if "resume" in where else tmp_path / "run")  # fmt: skip
        return run.train(ppo(Turned), [1, 1], plot=False, **where)

    assert train(15)["num_dropped_steps"] == 0
    broken = frozenset(child_seed(0, "episode", "train", e, 0) for e in (0, 2))
    monkeypatch.setattr(Turned, "turned", broken)
    with pytest.warns(UserWarning, match=r"played again, it raised ZeroDivisionError.*A new episode begins"):
        result = train(18, resume=tmp_path / "run")
    assert result["num_dropped_steps"] == 10 and result["num_faults"] == 0
    result = train(24, resume=tmp_path / "run")  # now they raise while they are played
    assert result["num_dropped_steps"] == 10 + 2 + 2 and result["num_faults"] == 2


def test_fault_table_continues_in_a_resumed_run(tmp_path):
    fault = Fault("exception", 0, 1, 2, 3, "it broke", "line 3", (0,))
    table, other = FaultTable(tmp_path), FaultTable(tmp_path)
    table.add([fault, fault], role="train", env_steps=4, seconds=0.5)
    other.restore(State(json.loads(json.dumps(table.state().info)), {}))
    pd.testing.assert_frame_equal(other.frame, table.frame)
    assert table.frame.to_dict("records")[1] == {
        "role": "train", "env_steps": 4, "seconds": 0.5, "kind": "exception", "env": 0, "episode": 1, "seed": 2,
        "step": 3, "message": "it broke",
    }  # fmt: skip
    with pytest.raises(SaveError, match="a table of faults has the columns role"):
        other.restore(State({"rows": [["train", 4]]}, {}))


# The command line


def test_command_line_reports_faults(capsys, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("marltrain"), "propagate", True)
    words = ["train", "tests.faulty_toys:Flaky", "--algo", "ppo", "--steps-per-train", "120", "--num-train-envs", "3",
             "--episodes-per-test", "2", "--no-progress", "--on-fault", "restart", "--max-env-restarts", "99",
             "--run-dir", "run", "--seed", "0", "--set", "minibatches=2", "--env-arg", "at=4"]  # fmt: skip
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "faults of environments, " in said and "run/faults.parquet" in said
    assert main([*words[:-2], "--env-timeout", "1"]) == 2
    assert "env_timeout=1 needs worker processes" in capsys.readouterr().err


# Errors that are hard to tell


class SilentError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


ERRORS: dict[str, tuple[Any, str]] = {
    "surrogate": (lambda: ValueError("caf\udce9"), "ValueError: caf?"),
    "silent": (SilentError, "SilentError: (an error whose text cannot be shown)"),
    "long": (lambda: ValueError("x" * 5_000_000), "characters left out ... xxx"),
}


class Foul(Identity):
    """Raises at the second step of every episode but the first."""

    def __init__(self, error: str, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.error, self.episodes, self.moves = error, 0, 0

    def reset(self, seed=None, options=None):
        self.episodes, self.moves = self.episodes + 1, 0
        return super().reset(seed, options)

    def step(self, actions):
        self.moves += 1
        if self.moves == 2 and self.episodes > 1:
            raise ERRORS[self.error][0]()
        return super().step(actions)


@pytest.mark.parametrize("error", ERRORS)
def test_any_error_text_is_recorded_without_ending_the_run(error, tmp_path):
    """The text is shortened and cleaned in the table, in checkpoints and in the final error."""
    args = {"error": error, "players": 2, "length": 3}
    output = trainer(Foul, args, **SURVIVING, steps_per_train=24, callbacks=[mt.Checkpoint(every_steps=12)])
    result = output.train(ppo(), [1, 1], plot=False)
    assert result["num_faults"] > 1
    assert all(ERRORS[error][1] in message and len(message) < 2_500 for message in result["faults"]["message"])
    table = pd.read_parquet(f"{result['run_dir']}/faults.parquet")
    pd.testing.assert_frame_equal(table, result["faults"])
    size = sum(path.stat().st_size for path in (tmp_path / "run").rglob("*") if path.suffix != ".safetensors")
    assert size < 300_000
    few = trainer(Foul, args, on_fault="restart", max_env_restarts=1, steps_per_train=60)
    with pytest.raises(EnvError, match="max_env_restarts=1 are survived") as raised:
        few.train(ppo(), [1, 1], plot=False)
    assert len(str(raised.value)) < 15_000
    str(raised.value).encode()
