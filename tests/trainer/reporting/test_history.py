import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import marltrain as mt
from marltrain.trainer.reporting.history import EPISODES, EPISODES_FILE, TESTS_FILE, History, Means
from tests.trainer.running import ppo, tables, trainer


def add_test(history, metric, **changed):
    row = dict(episodes=4, env_steps=40, updates=2, gradient_steps=8, seconds=1.5, interval=(-1.0, 2.0))
    row |= dict(judged=["x", "y"], best=True, num_unfinished=0)
    history.add_test(**{**row, **changed}, metric=metric, returns=np.array([1.0, 2.0]))


def test_means_cover_the_values_since_the_last_take():
    means = Means()
    means.add({"a": {"loss": 1.0, "kl": 4.0}, "b": {"loss": 10.0}})
    means.add({"a": {"loss": 2.0, "kl": math.nan}})
    assert means.take() == {"a/loss": 1.5, "a/kl": 4.0, "b/loss": 10.0}
    assert means.take() == {}


@pytest.mark.parametrize("gone", [None, (2, 0, 1)], ids=["all there", "a nan"])
def test_add_rows_equals_adding_row_after_row(gone):
    """Seven rows of two metrics of three agents, after a single one: bit-identical sums."""
    values = np.random.default_rng(0).normal(size=(7, 2, 3)) * 10.0 ** np.arange(-3, 4)[:, None, None]
    if gone is not None:
        values[gone] = np.nan
    agents, metrics = ("a", "b", "c"), ("loss", "norm")
    at_once, one_by_one = Means(), Means()
    for means in (at_once, one_by_one):
        means.add({"b": {"loss": 0.1}})
    for _ in range(2):
        at_once.add_rows(agents, metrics, values[:4])
        at_once.add_rows(agents, metrics, values[4:])
        for row in values:
            one_by_one.add({a: {m: row[i, k] for i, m in enumerate(metrics)} for k, a in enumerate(agents)})
        result = at_once.take()
        assert result == one_by_one.take()
        assert len(result) == 6


def test_means_are_weighted_by_their_number_of_values():
    means = Means()
    means.add({"a": {"loss": 2.0}}, 3)
    means.add({"a": {"loss": 4.0}})
    assert means.take() == {"a/loss": 2.5}


def test_the_table_of_tests(tmp_path):
    history = History(["x", "y"], tmp_path)
    add_test(history, 1.0, episodes=0, env_steps=0)
    history.add_update({"x": {"loss/total": 1.0}, "y": {"loss/total": 3.0}})
    history.add_update({"x": {"loss/total": 2.0}})
    add_test(history, 2.0, judged=["y"])
    history.add_update({"x": {"entropy": 0.25}})
    add_test(history, 3.0, best=False)
    tests = history.tests
    assert list(tests.columns) == [
        "episodes", "env_steps", "updates", "gradient_steps", "seconds", "metric", "interval_low", "interval_high",
        "return/x", "return/y", "judged", "best", "num_unfinished", "x/entropy", "x/loss/total", "y/loss/total",
    ]  # fmt: skip
    assert tests["episodes"].tolist() == [0, 4, 4]
    assert tests["metric"].tolist() == [1.0, 2.0, 3.0]
    assert tests[["interval_low", "interval_high", "return/x", "return/y"]].iloc[0].tolist() == [-1.0, 2.0, 1.0, 2.0]
    np.testing.assert_array_equal(tests["x/loss/total"], [math.nan, 1.5, math.nan])
    np.testing.assert_array_equal(tests["y/loss/total"], [math.nan, 3.0, math.nan])
    np.testing.assert_array_equal(tests["x/entropy"], [math.nan, math.nan, 0.25])
    assert tests.dtypes["env_steps"] == np.int64
    assert tests["judged"].tolist() == ["x+y", "y", "x+y"]
    assert tests["best"].tolist() == [True, True, False]


def test_the_table_of_episodes(tmp_path):
    history = History(["x", "y"], tmp_path)
    history.add_episodes(
        envs=np.array([2]), env_steps=30, lengths=np.array([7]), seconds=0.5, returns=np.array([1.5, -2.5])[:, None]
    )
    history.add_episodes(
        envs=np.array([0]), env_steps=35, lengths=np.array([9]), seconds=0.75, returns=np.array([3.0, 4.0])[:, None]
    )
    episodes = history.episodes
    assert list(episodes.columns) == ["episode", "env", "env_steps", "length", "seconds", "return/x", "return/y"]
    assert episodes.iloc[0].tolist() == [0, 2, 30, 7, 0.5, 1.5, -2.5]
    assert episodes.iloc[1].tolist() == [1, 0, 35, 9, 0.75, 3.0, 4.0]


def test_returned_tables_are_copies(tmp_path):
    history = History(["x", "y"], tmp_path)
    history.add_episodes(
        envs=np.array([0]), env_steps=1, lengths=np.array([1]), seconds=0.0, returns=np.zeros(2)[:, None]
    )
    given = history.episodes
    given["length"] += 98
    assert given["length"].tolist() == [99]
    assert history.episodes["length"].tolist() == [1]


def test_empty_tables_have_their_columns(tmp_path):
    history = History(["x"], tmp_path)
    assert len(history.tests) == 0
    history.write()
    assert "metric" in pd.read_parquet(tmp_path / TESTS_FILE).columns
    assert "return/x" in pd.read_parquet(tmp_path / EPISODES_FILE).columns


def test_parquet_files_equal_the_tables_in_memory(tmp_path):
    history = History(["x", "y"], tmp_path)
    history.add_update({"x": {"loss/total": 1.0}})
    add_test(history, 1.0)
    history.add_episodes(
        envs=np.array([0]), env_steps=1, lengths=np.array([1]), seconds=0.0, returns=np.array([0.1, 0.2])[:, None]
    )
    history.write()
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / TESTS_FILE), history.tests)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / EPISODES_FILE), history.episodes)
    assert len(list(tmp_path.iterdir())) == 2


def test_files_are_rewritten_rarely_unless_forced(tmp_path):
    history = History(["x", "y"], tmp_path)
    for _ in range(20):
        add_test(history, 1.0)
        history.write()
    assert len(pd.read_parquet(tmp_path / TESTS_FILE)) == 1  # all others came within 50 times what writing took
    history.write(now=True)
    assert len(pd.read_parquet(tmp_path / TESTS_FILE)) == 20


def test_long_table_of_episodes_is_stored_on_disk_and_written_completely(tmp_path, monkeypatch):
    monkeypatch.setattr("marltrain.trainer.reporting.history.HELD", 500)  # a row of two players is 48 bytes: 11 rows
    history = History(["x", "y"], tmp_path)
    for i in range(30):
        history.add_episodes(
            envs=np.array([i % 3]),
            env_steps=10 * i,
            lengths=np.array([i]),
            seconds=i / 4,
            returns=np.array([i, -i])[:, None],
        )
    assert len([*(tmp_path / EPISODES).iterdir()]) == 2
    assert history.episodes["episode"].tolist() == list(range(30))
    assert history.episodes["return/y"].tolist() == [-float(i) for i in range(30)]
    history.write(now=True)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / EPISODES_FILE), history.episodes)


def test_history_continues_from_a_state(tmp_path, monkeypatch):
    monkeypatch.setattr("marltrain.trainer.reporting.history.HELD", 500)
    history = History(["x", "y"], tmp_path)
    for i in range(30):
        if i == 25:
            history.add_update({"x": {"loss/total": 1.0}})
            add_test(history, 1.0)
            history.add_update({"x": {"loss/total": 4.0}})
            state = history.state()
        history.add_episodes(
            envs=np.array([0]), env_steps=i, lengths=np.array([i]), seconds=0.0, returns=np.array([i, -i])[:, None]
        )
    again = History(["x", "y"], tmp_path)
    again.restore(state)
    for i in range(25, 30):
        again.add_episodes(
            envs=np.array([0]), env_steps=i, lengths=np.array([i]), seconds=0.0, returns=np.array([i, -i])[:, None]
        )
    pd.testing.assert_frame_equal(again.episodes, history.episodes)
    for one in (history, again):
        add_test(one, 2.0)
    pd.testing.assert_frame_equal(again.tests, history.tests)
    assert again.tests["x/loss/total"].tolist() == [1.0, 4.0]


def test_resumed_run_has_all_episodes(monkeypatch):
    """Identity's episodes are 3 steps long: of 3 environments, 200 env steps end 66; a part on disk is 10 rows."""
    monkeypatch.setattr("marltrain.trainer.reporting.history.HELD", 480)

    def run(folder, steps, **how):
        result = trainer(steps_per_train=steps, run_dir=folder, callbacks=[mt.Checkpoint(every_steps=60)])
        return result.train(ppo(), [1, 1], plot=False, **how)

    whole = run("whole", 200)
    run("halves", 130)
    assert len([*Path("halves", EPISODES).iterdir()]) == 4
    halves = run("halves", 200, resume="halves")
    assert tables(halves) == tables(whole) and len(halves["episodes"]) == 66
    pd.testing.assert_frame_equal(pd.read_parquet("halves/episodes.parquet"), halves["episodes"])
    next(Path("halves", EPISODES).iterdir()).unlink()
    with pytest.raises(mt.SaveError, match=r"cannot be resumed: .*\.safetensors: cannot be read"):
        run("halves", 300, resume="halves")
