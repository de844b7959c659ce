"""The packages wandb and mlflow themselves (`make loggers-test`): what they store is read back and compared."""

import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import marltrain as mt
from tests.trainer.running import ppo, trainer

HEADER, BLOCK = 7, 32_768
"""Sizes of the header of a .wandb file and of its blocks: records are cut as in a log of LevelDB."""


pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")  # in mlflow's store


@pytest.fixture(autouse=True)
def _quiet(monkeypatch, tmp_path):
    for name in ("MLFLOW_DISABLE_TELEMETRY", "DO_NOT_TRACK", "WANDB_SILENT"):
        monkeypatch.setenv(name, "true")
    for name in ("WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "wandb-files"))


def run(logger: Any, steps: int, **arguments: Any) -> dict[str, Any]:
    result = trainer(
        callbacks=[mt.Checkpoint(every_steps=30), logger], steps_per_train=steps, test_freq=10, run_dir="run"
    )
    return result.train(ppo(), [1, 1], **arguments)


def records(path: Path) -> Iterator[Any]:
    """Yield the records of a .wandb file."""
    record = import_module("wandb.proto.wandb_internal_pb2").Record
    data, place, part = path.read_bytes(), HEADER, b""
    while place + 7 <= len(data):
        left = BLOCK - place % BLOCK
        if left < 7:
            place += left
            continue
        _, size, kind = struct.unpack_from("<IHB", data, place)
        part += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # a whole record, or the last part of one
            yield record.FromString(part)
            part = b""


def history_of(path: Path) -> list[dict[str, Any]]:
    rows = [record.history.item for record in records(path) if record.WhichOneof("record_type") == "history"]
    return [{item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in row} for row in rows]


def curve(rows: list[dict[str, Any]], tag: str) -> dict[int, float]:
    return {row["env_steps"]: row[tag] for row in rows if tag in row}


def assert_equal_curves(curve_of: Any, history: Any) -> None:
    """The curves of a service equal the table of tests, if points are written at tests only."""
    columns = {"metric": "test/metric", "return/player_0": "test/return/player_0"}
    columns |= {name: name for name in history if "/loss/" in name or name.endswith("/entropy")}
    assert len(columns) > 4
    for column, tag in columns.items():
        wanted = history[history[column].notna()]
        found = curve_of(tag)
        assert list(found) == list(wanted["env_steps"]), tag
        np.testing.assert_allclose(list(found.values()), wanted[column], rtol=1e-9)


def test_wandb_offline_directory_holds_the_run_and_its_resumed_part():
    run(mt.WandbLogger(mode="offline", every=1e9), 90)
    run(mt.WandbLogger(mode="offline", every=1e9), 150, resume="run")
    files = sorted(Path("run/wandb").glob("offline-run-*/run-*.wandb"))
    assert len(files) == 2 and len({file.name for file in files}) == 1, "one id in both directories"
    rows = [row for file in files for row in history_of(file)]
    assert_equal_curves(lambda tag: curve(rows, tag), pd.read_parquet("run/history.parquet"))
    begun = [record.run for record in records(files[1]) if record.WhichOneof("record_type") == "run"]
    assert begun[0].display_name == "run" and begun[0].project == "marltrain"
    kinds = [record.artifact for record in records(files[1]) if record.WhichOneof("record_type") == "artifact"]
    requests = [r.request.log_artifact.artifact for r in records(files[1]) if r.request.HasField("log_artifact")]
    assert {"run-tables", "run-best"} <= {artifact.name for artifact in [*kinds, *requests]}
    assert list(files[1].parent.glob("files/media/images/*.png")) and list(
        files[1].parent.glob("files/media/table/*.json")
    )


def test_mlflow_store_holds_the_run_and_its_resumed_part(tmp_path):
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    run(mt.MLflowLogger("games", uri=uri, every=1e9), 90)
    run(mt.MLflowLogger("games", uri=uri, every=1e9), 150, resume="run")
    client = import_module("mlflow").MlflowClient(uri)
    experiment = client.get_experiment_by_name("games")
    (there,) = client.search_runs([experiment.experiment_id])
    number = there.info.run_id
    assert_equal_curves(
        lambda tag: {m.step: m.value for m in sorted(client.get_metric_history(number, tag), key=lambda m: m.step)},
        pd.read_parquet("run/history.parquet"),
    )
    assert there.info.status == "FINISHED" and there.info.run_name == "run"
    assert there.data.params["seats/0/agent/settings/epochs"] == "1" and there.data.params["env"] == result_env()
    names = {file.path for file in client.list_artifacts(number)}
    assert names == {"best", "config.json", "episodes.parquet", "history.parquet", "metrics.png"}
    best = client.download_artifacts(number, "best", str(tmp_path))
    assert len(mt.load(best)) == 2


class Raising(mt.Callback):
    """Logs two values for each update, and raises an error between those after an env step."""

    def __init__(self, at: int = 0) -> None:
        self.at = at

    def on_update_end(self, moment):
        moment.log("twice", moment.updates)
        if moment.env_steps == self.at:
            raise RuntimeError("mine")
        moment.log("twice", -moment.updates)


def interrupted(logger: Any) -> None:
    """Train 84 env steps with an update every 12, end them by an exception after 60, and resume them at 36."""
    for raising in (Raising(60), Raising()):
        callbacks = [mt.Checkpoint(every_steps=36), logger, raising]
        result = trainer(callbacks=callbacks, steps_per_train=84, update_freq=12, test_freq=None, run_dir="run")
        if raising.at:
            with pytest.raises(RuntimeError, match="mine"):
                result.train(ppo(), [1, 1], plot=False)
        else:
            result.train(ppo(), [1, 1], plot=False, resume="run")


STEPS = range(12, 85, 12)
TWICE = [(step, sign * step / 12) for step in STEPS for sign in (1, -1)]


def test_mlflow_holds_every_value_once_after_an_exception(tmp_path):
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    interrupted(mt.MLflowLogger("games", uri=uri, every=0))
    client = import_module("mlflow").MlflowClient(uri)
    (there,) = client.search_runs([client.get_experiment_by_name("games").experiment_id])

    def values(tag: str) -> list[tuple[int, float]]:
        return [(metric.step, metric.value) for metric in client.get_metric_history(there.info.run_id, tag)]

    assert sorted(values("train/updates")) == [(step, step / 12) for step in STEPS]
    assert sorted(values("user/twice")) == sorted(TWICE)


def test_wandb_holds_every_value_after_an_exception():
    interrupted(mt.WandbLogger(mode="offline", every=0))
    rows = [row for file in Path("run/wandb").glob("offline-run-*/run-*.wandb") for row in history_of(file)]
    assert {(row["env_steps"], row["user/twice"]) for row in rows if "user/twice" in row} == set(TWICE)
    points = {(row["env_steps"], row["train/updates"]) for row in rows if "train/updates" in row}
    assert points == {(step, step / 12) for step in STEPS}


def test_wandb_holds_every_value_after_a_kill():
    """The process is killed after the checkpoint at 36, when W&B has written nothing yet."""
    code = (
        "import os, signal, marltrain as mt\nfrom tests.trainer.running import ppo, trainer\n"
        "from tests.tools.loggers.services import Raising\n"
        "kill = mt.LambdaCallback(on_checkpoint=lambda moment: os.kill(os.getpid(), signal.SIGKILL))\n"
        "callbacks = [mt.Checkpoint(every_steps=36), mt.WandbLogger(mode='offline', every=0), Raising(), kill]\n"
        "trainer(callbacks=callbacks, steps_per_train=84, update_freq=12, test_freq=None, run_dir='run').train("
        "ppo(), [1, 1], plot=False)"
    )
    own = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_SERVICE")}
    assert subprocess.run([sys.executable, "-c", code], env=own, check=False).returncode == -9
    callbacks = [mt.Checkpoint(every_steps=36), mt.WandbLogger(mode="offline", every=0), Raising()]
    result = trainer(callbacks=callbacks, steps_per_train=84, update_freq=12, test_freq=None, run_dir="run")
    result.train(ppo(), [1, 1], plot=False, resume="run")
    rows = [row for file in Path("run/wandb").glob("offline-run-*/run-*.wandb") for row in history_of(file)]
    assert [(row["env_steps"], row["user/twice"]) for row in rows if "user/twice" in row] == TWICE


def result_env() -> str:
    return str(json.loads(Path("run/config.json").read_text())["env"])
