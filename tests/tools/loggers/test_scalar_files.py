"""Files of scalars: the rows equal the table of tests, and a resumed run leaves no row twice."""

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import marltrain as mt
from marltrain.trainer.callbacks import Moment
from tests.trainer.running import ppo, trainer


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def moment(folder, env_steps):
    there: Any = SimpleNamespace(folder=folder)
    return Moment(there, "on_train_start", 0, env_steps, 0, 0, 0.0)


def assert_equal_tests(rows, history):
    """Rows written at tests only, so that their means cover the same updates as those of the table."""
    tests = rows[rows["test/metric"].notna()]
    np.testing.assert_array_equal(tests["env_steps"], history["env_steps"])
    np.testing.assert_array_equal(tests["test/metric"], history["metric"])
    for player in ("player_0", "player_1"):
        np.testing.assert_array_equal(tests[f"test/return/{player}"], history[f"return/{player}"])
    measured = [name for name in history if "/loss/" in name or name.endswith("/entropy")]
    trained = rows[rows["test/metric"].isna()].set_index("env_steps")
    wanted = history[history[measured[0]].notna()].set_index("env_steps")
    assert len(wanted) > 1
    for name in measured:
        np.testing.assert_allclose(trained.loc[wanted.index, name], wanted[name], rtol=1e-12)


def test_files_equal_the_tables_of_the_run_and_its_resumed_part(tmp_path):
    def run(steps, **arguments):
        loggers = [mt.CSVLogger(every=1e9), mt.JSONLinesLogger("other/file.jsonl", every=1e9)]
        made = trainer(
            callbacks=[mt.Checkpoint(every_steps=30), *loggers], steps_per_train=steps, test_freq=10, run_dir="run"
        )
        return made.train(ppo(), [1, 1], plot=False, **arguments)

    run(90)
    with (tmp_path / "run" / "scalars.csv").open("a") as file:  # as of a run that was killed in a later line
        file.write("9999,1.0,2.5\n99")
    result = run(150, resume="run")
    for rows in (pd.read_csv("run/scalars.csv"), pd.DataFrame(rows_of(tmp_path / "other" / "file.jsonl"))):
        assert list(rows.columns[:2]) == ["env_steps", "time"]
        assert rows["env_steps"].is_monotonic_increasing
        assert_equal_tests(rows, result["history"])


def test_a_new_column_keeps_the_rows_before_it(tmp_path):
    logger = mt.CSVLogger()
    logger.open(moment(tmp_path, 0))
    logger.write({"a": 1.5}, 10)
    logger.write({"a": 2.5, "b,c": 3.5}, 20)
    logger.write({"a": 4.5}, 20)
    logger.close()
    found = pd.read_csv(tmp_path / "scalars.csv").drop(columns="time")
    wanted = {"env_steps": [10, 20, 20], "a": [1.5, 2.5, 4.5], "b,c": [np.nan, 3.5, np.nan]}
    pd.testing.assert_frame_equal(found, pd.DataFrame(wanted))


def test_json_lines_are_strict_json_and_a_new_run_begins_a_new_file(tmp_path):
    for metric in (1.0, float("nan")):
        logger = mt.JSONLinesLogger()
        logger.open(moment(tmp_path, 0))
        logger.write({"test/metric": metric}, 0)
        logger.close()
    (row,) = rows_of(tmp_path / "scalars.jsonl")
    assert row["test/metric"] is None and row["env_steps"] == 0


@pytest.mark.parametrize("kind", [mt.CSVLogger, mt.JSONLinesLogger])
def test_another_file_is_not_continued(kind, tmp_path):
    (tmp_path / "notes.txt").write_text("some notes\nof mine\n")
    with pytest.raises(mt.SaveError, match=r"notes\.txt: cannot be continued"):
        kind(tmp_path / "notes.txt").open(moment(tmp_path, 30))
    assert (tmp_path / "notes.txt").read_text() == "some notes\nof mine\n"


def test_wrong_interval_is_refused():
    with pytest.raises(mt.ConfigError, match="CSVLogger: every must be a number of seconds, at least 0, got 'often'"):
        mt.CSVLogger(every="often")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [mt.CSVLogger, mt.JSONLinesLogger])
def test_sync_brings_the_rows_to_the_disk(kind, tmp_path, monkeypatch):
    """The rows are in the file when it is flushed to the disk, and its entry in the folder is flushed, too."""
    flushed: dict[str, str] = {}
    logger = kind(tmp_path / "scalars")
    logger.sync()  # before it is open, there is nothing to flush
    logger.open(moment(tmp_path, 0))
    logger.write({"a": 0.5}, 0)
    read = (tmp_path / "scalars").read_text
    monkeypatch.setattr("marltrain.files._flush", lambda path: flushed.update({path.name: read()}))
    logger.write({"a": 1.5}, 10)
    logger.sync()
    assert list(flushed) == ["scalars", tmp_path.name] and all("1.5" in found for found in flushed.values())
    logger.close()
