"""The header of config.json, and the errors of files that another version wrote."""

import json

import pyarrow.parquet as pq
import pytest

import marltrain as mt
from marltrain.core.errors import SaveError
from marltrain.tools.run_files.config import plan_of_config
from marltrain.trainer.reporting.config_file import read_config
from marltrain.trainer.reporting.table_files import SCHEMA


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    env = "marltrain/tictactoe_v3"
    trainer = mt.DecentralizedTrainer(
        env, num_train_envs=2, episodes_per_test=2, steps_per_train=40, run_dir=folder, progress=False, seed=0
    )
    trainer.train(mt.make_agents("dqn", env, seed=0, learning_starts=10), learning_mask=[1, 1], plot=False)
    return folder


def altered(run, folder, **values):
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    file = folder / "config.json"
    file.write_text(json.dumps({**config, **values}), encoding="utf-8")
    return file


def test_runs_write_the_header_and_read_it(run):
    config = read_config(run / "config.json")
    assert (config["format"], config["schema"]) == ("marltrain-run", 1)
    assert config["versions"]["marltrain"] == mt.__version__


@pytest.mark.parametrize("values, expected", [
    ({"schema": 2}, "schema 2; .*reads schema 1"),
    ({"schema": "1"}, "schema '1'"),
    ({"schema": True}, "schema True"),
    ({"format": "marltrain-agents"}, "its format is 'marltrain-agents', not 'marltrain-run'"),
])  # fmt: skip
def test_another_version_is_refused_by_each_reader(run, tmp_path, values, expected):
    file = altered(run, tmp_path, **values)
    for read in (read_config, plan_of_config):
        with pytest.raises(SaveError, match=expected):
            read(file)


def test_a_file_of_a_development_version_has_schema_1(run, tmp_path):
    file = altered(run, tmp_path)
    content = json.loads(file.read_text(encoding="utf-8"))
    del content["format"], content["schema"]
    file.write_text(json.dumps(content), encoding="utf-8")
    assert read_config(file)["env"] == "marltrain/tictactoe_v3"


def test_a_file_that_holds_no_object_is_refused(tmp_path):
    file = tmp_path / "config.json"
    file.write_text("[1]", encoding="utf-8")
    with pytest.raises(SaveError, match=r"holds .*no JSON object"):
        read_config(file)


@pytest.mark.parametrize("table", ["history.parquet", "episodes.parquet"])
def test_tables_hold_their_versions(run, table):
    metadata = pq.read_schema(run / table).metadata
    assert metadata[b"marltrain"].decode() == mt.__version__
    assert metadata[b"marltrain_schema"].decode() == str(SCHEMA)
