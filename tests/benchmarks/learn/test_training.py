import dataclasses

import numpy as np
import pytest

import marltrain as mt
from benchmarks.learn import training
from benchmarks.learn.results import path_of, read
from benchmarks.learn.rows import Row
from benchmarks.learn.tasks import Task
from tests.toys import Identity

TASK = Task("identity", "Identity", Identity, {"players": 1})
ROW = Row(
    TASK, "dqn", 400,
    own={"trainer": {"num_train_envs": 2, "update_freq": 20},
         "agents": {"learning_starts": 20, "batch_size": 16, "network": mt.MLP((8,)), "learning_rate": 1e-2}},
)  # fmt: skip


def trained(folder, stop_at=None):
    """Train ROW in `folder`, interrupted at an env step if one is given; return the result."""
    if stop_at is not None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(mt, "Checkpoint", stopping(stop_at))
            with pytest.raises(training.Interrupted, match=r"identity-dqn, seed 3: interrupted after \d+ env steps"):
                training.train(ROW, 3, folder, folder / "runs")
        assert not path_of(ROW, 3, folder).exists()
    training.train(ROW, 3, folder, folder / "runs")
    return read(ROW, 3, folder)


def stopping(at):
    class Stopping(mt.Checkpoint):
        def on_step(self, moment):
            if moment.env_steps >= at:
                moment.stop("interrupted")

    return Stopping


def test_row_is_trained_and_continues_after_an_interrupt(tmp_path):
    whole, interrupted = trained(tmp_path / "whole"), trained(tmp_path / "interrupted", stop_at=150)
    assert whole.score > 6  # of 10; random play names a third of the symbols
    assert len(whole.curve) == 21
    assert np.array_equal(whole.curve, interrupted.curve)
    assert np.array_equal(whole.returns, interrupted.returns)
    assert whole.sampled is not None and interrupted.sampled is not None
    assert np.array_equal(whole.sampled, interrupted.sampled)
    assert whole.sampled.mean() < whole.returns.mean()
    assert whole.processor is not None and whole.processor > 0
    assert interrupted.processor is None


def test_saved_agents_are_tested_on_the_original_environment(tmp_path):
    """The same environment in place of the original; the scores of both players are added."""
    row = dataclasses.replace(ROW, steps=40, task=dataclasses.replace(TASK, original=Identity, players=2))
    training.train(row, 3, tmp_path, tmp_path / "runs")
    assert training.score_on_original(row, 3, tmp_path / "runs") == pytest.approx(read(row, 3, tmp_path).score)


def test_random_play(tmp_path):
    row = Row(TASK, "random", 0, most_seeds=1)
    training.train(row, 0, tmp_path)
    assert 2.5 < read(row, 0, tmp_path).score < 4.2


def test_trial_changes_settings_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    row = dataclasses.replace(ROW, steps=40)
    content = training.try_settings(row, 100, {"agents": {"epsilon": 0.5}, "trainer": {"num_train_envs": 1}})
    assert content["env_steps"] == 40
    assert not list(tmp_path.iterdir())


def test_trial_saves_the_final_agents_where_it_is_told_to(tmp_path):
    row = dataclasses.replace(ROW, steps=40)
    content = training.try_settings(row, 100, {}, tmp_path / "kept")
    unseen = training._unseen(row, 100, mt.load(tmp_path / "kept"))
    assert unseen == content["returns"]
