import math

import numpy as np
import pandas as pd
import pytest

from marltrain.trainer.history import EPISODES_FILE, TESTS_FILE, Columns, History, Means


def add_test(history, metric, **changed):
    row = dict(episodes=4, env_steps=40, updates=2, gradient_steps=8, seconds=1.5, interval=(-1.0, 2.0))
    history.add_test(**{**row, **changed}, metric=metric, returns=np.array([1.0, 2.0]))


def test_means_are_of_what_came_since():
    means = Means()
    means.add({"a": {"loss": 1.0, "kl": 4.0}, "b": {"loss": 10.0}})
    means.add({"a": {"loss": 2.0, "kl": math.nan}})
    assert means.take() == {"a/loss": 1.5, "a/kl": 4.0, "b/loss": 10.0}
    assert means.take() == {}


def test_columns_grow():
    columns = Columns({"a": np.int64, "b": np.float64})
    for i in range(1000):
        columns.add(i, i / 2)
    arrays = columns.arrays()
    np.testing.assert_array_equal(arrays["a"], np.arange(1000))
    np.testing.assert_array_equal(arrays["b"], np.arange(1000) / 2)
    assert arrays["a"].dtype == np.int64


def test_a_row_of_the_wrong_width_is_refused():
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        Columns({"a": np.int64, "b": np.float64}).add(1)


def test_the_table_of_tests():
    history = History(["x", "y"])
    add_test(history, 1.0, episodes=0, env_steps=0)
    history.add_update({"x": {"loss/total": 1.0}, "y": {"loss/total": 3.0}})
    history.add_update({"x": {"loss/total": 2.0}})
    add_test(history, 2.0)
    history.add_update({"x": {"entropy": 0.25}})
    add_test(history, 3.0)
    tests = history.tests
    assert list(tests.columns) == [
        "episodes", "env_steps", "updates", "gradient_steps", "seconds", "metric", "interval_low", "interval_high",
        "return/x", "return/y", "x/entropy", "x/loss/total", "y/loss/total",
    ]  # fmt: skip
    assert tests["episodes"].tolist() == [0, 4, 4]
    assert tests["metric"].tolist() == [1.0, 2.0, 3.0]
    assert tests[["interval_low", "interval_high", "return/x", "return/y"]].iloc[0].tolist() == [-1.0, 2.0, 1.0, 2.0]
    np.testing.assert_array_equal(tests["x/loss/total"], [math.nan, 1.5, math.nan])
    np.testing.assert_array_equal(tests["y/loss/total"], [math.nan, 3.0, math.nan])
    np.testing.assert_array_equal(tests["x/entropy"], [math.nan, math.nan, 0.25])
    assert tests.dtypes["env_steps"] == np.int64


def test_the_table_of_episodes():
    history = History(["x", "y"])
    history.add_episode(env=2, env_steps=30, length=7, seconds=0.5, returns=np.array([1.5, -2.5]))
    history.add_episode(env=0, env_steps=35, length=9, seconds=0.75, returns=np.array([3.0, 4.0]))
    episodes = history.episodes
    assert list(episodes.columns) == ["episode", "env", "env_steps", "length", "seconds", "return/x", "return/y"]
    assert episodes.iloc[0].tolist() == [0, 2, 30, 7, 0.5, 1.5, -2.5]
    assert episodes.iloc[1].tolist() == [1, 0, 35, 9, 0.75, 3.0, 4.0]


def test_tables_that_are_given_out_are_copies():
    history = History(["x", "y"])
    history.add_episode(env=0, env_steps=1, length=1, seconds=0.0, returns=np.zeros(2))
    given = history.episodes
    given["length"] += 98
    assert given["length"].tolist() == [99]
    assert history.episodes["length"].tolist() == [1]


def test_empty_tables_have_their_columns(tmp_path):
    history = History(["x"])
    assert len(history.tests) == 0
    history.write(tmp_path)
    assert "metric" in pd.read_parquet(tmp_path / TESTS_FILE).columns
    assert "return/x" in pd.read_parquet(tmp_path / EPISODES_FILE).columns


def test_files_are_what_is_in_memory(tmp_path):
    history = History(["x", "y"])
    history.add_update({"x": {"loss/total": 1.0}})
    add_test(history, 1.0)
    history.add_episode(env=0, env_steps=1, length=1, seconds=0.0, returns=np.array([0.1, 0.2]))
    history.write(tmp_path / "run")
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "run" / TESTS_FILE), history.tests)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "run" / EPISODES_FILE), history.episodes)
    assert len(list((tmp_path / "run").iterdir())) == 2


def test_files_are_rewritten_rarely_unless_asked(tmp_path):
    history = History(["x", "y"])
    for _ in range(20):
        add_test(history, 1.0)
        history.write(tmp_path)
    assert len(pd.read_parquet(tmp_path / TESTS_FILE)) == 1  # all others came within 50 times what writing took
    history.write(tmp_path, now=True)
    assert len(pd.read_parquet(tmp_path / TESTS_FILE)) == 20
