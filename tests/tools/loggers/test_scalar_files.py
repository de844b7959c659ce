"""Files of scalars: the rows equal the table of tests, and a resumed run leaves no row twice."""

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import marltrain as mt
from marltrain.trainer.events.callbacks import Moment
from marltrain.trainer.saving.places import PlaceInRun
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
        output = trainer(
            callbacks=[mt.Checkpoint(every_steps=30), *loggers], steps_per_train=steps, test_freq=10, run_dir="run"
        )
        return output.train(ppo(), [1, 1], plot=False, **arguments)

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


KINDS = pytest.mark.parametrize("kind", [mt.CSVLogger, mt.JSONLinesLogger])
OURS = {"CSVLogger": "env_steps,time\n10,1.0\n", "JSONLinesLogger": '{"env_steps": 10, "time": 1.0}\n'}
FOREIGN = {
    "text": "some notes\nof mine\n",
    "table": "time,env_steps\n1.0,10\n",
    "longer name": "env_steps,timer\n10,1.0\n",
    "object": '{"time": 1.0, "env_steps": 10}\n',
    "list": "[1]\n",
    "bytes": "\0\1\2",
    "line": "\n",
}


@KINDS
@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("env_steps", [0, 30])
def test_a_file_of_somebody_else_is_refused(kind, name, env_steps, tmp_path):
    (tmp_path / "notes.txt").write_text(FOREIGN[name])
    with pytest.raises(mt.ConfigError, match=rf"notes\.txt exists and is not a file of {kind.__name__}"):
        kind(tmp_path / "notes.txt").open(moment(tmp_path, env_steps))
    assert (tmp_path / "notes.txt").read_text() == FOREIGN[name]


@KINDS
def test_the_file_of_the_other_logger_is_refused(kind, tmp_path):
    (other,) = set(OURS) - {kind.__name__}
    (tmp_path / "log").write_text(OURS[other])
    with pytest.raises(mt.ConfigError, match="exists and is not"):
        kind(tmp_path / "log").open(moment(tmp_path, 0))


@KINDS
def test_a_damaged_file_of_ours_is_not_continued(kind, tmp_path):
    (tmp_path / "log").write_text(OURS[kind.__name__] + "text,{\n")
    with pytest.raises(mt.SaveError, match=r"log: cannot be continued"):
        kind(tmp_path / "log").open(moment(tmp_path, 30))


@KINDS
def test_our_own_file_is_replaced_by_a_new_run_and_continued_by_the_same(kind, tmp_path):
    for env_steps, expected in ((20, [10, 30]), (0, [30])):
        (tmp_path / "log").write_text(OURS[kind.__name__])
        logger = kind(tmp_path / "log")
        logger.open(moment(tmp_path, env_steps))
        logger.write({"a": 1.0}, 30)
        logger.close()
        rows = pd.read_csv(tmp_path / "log") if kind is mt.CSVLogger else pd.DataFrame(rows_of(tmp_path / "log"))
        assert rows["env_steps"].tolist() == expected


@pytest.mark.parametrize("place", ["notes.txt", None])
def test_a_refused_file_ends_the_call_before_the_run_has_a_folder(place, tmp_path):
    """By the path in the call, and by the default place in a folder that the user gives."""
    run = tmp_path / "run"
    if place is None:
        run.mkdir()
    taken = tmp_path / "notes.txt" if place else run / "metrics.png"
    taken.write_text("mine")
    result = trainer(callbacks=[mt.CSVLogger(place)], steps_per_train=12)
    with pytest.raises(mt.ConfigError, match=taken.name):
        result.train(ppo(), [1, 1], plot=False)
    assert taken.read_text() == "mine" and not (run / "config.json").exists() and not (run / "run.lock").exists()


def test_a_foreign_file_at_the_default_place_is_kept(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "scalars.csv").write_text("mine")
    with pytest.raises(mt.ConfigError, match=r"scalars\.csv exists and is not"):
        trainer(callbacks=[mt.CSVLogger()], steps_per_train=12).train(ppo(), [1, 1], plot=False)
    assert (tmp_path / "run" / "scalars.csv").read_text() == "mine"


def test_two_loggers_do_not_write_the_same_file(tmp_path):
    first, second = mt.CSVLogger(), mt.CSVLogger(tmp_path / "scalars.csv")
    first.open(moment(tmp_path, 0))
    with pytest.raises(mt.ConfigError, match="another logger of this process is writing this file"):
        second.open(moment(tmp_path, 0))
    first.close()
    second.open(moment(tmp_path, 0))
    second.close()


def test_a_link_in_the_run_leads_to_no_other_folder(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "run" / "tables").symlink_to(tmp_path / "outside")
    with pytest.raises(mt.SaveError, match="leads out of the folder"):
        mt.CSVLogger(PlaceInRun("tables/x.csv")).open(moment(tmp_path / "run", 0))
    assert not list((tmp_path / "outside").iterdir())


def test_wrong_interval_is_refused():
    with pytest.raises(mt.ConfigError, match=r"CSVLogger: every.*'often'"):
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
    monkeypatch.setattr("marltrain.storage.files._flush", lambda path: flushed.update({path.name: read()}))
    logger.write({"a": 1.5}, 10)
    logger.sync()
    assert list(flushed) == ["scalars", tmp_path.name] and all("1.5" in found for found in flushed.values())
    logger.close()
