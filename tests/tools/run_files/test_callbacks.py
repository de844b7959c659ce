"""Callbacks in files of runs: each with its arguments, as TOML and back."""

import sys
from types import ModuleType
from typing import Any

import pytest

import marltrain as mt
from marltrain.tools.run_files.callbacks import CALLBACKS, arguments_of, make_callback
from marltrain.tools.run_files.config import _callbacks
from marltrain.tools.run_files.plan import RunPlan
from marltrain.tools.run_files.reading import read_plan
from marltrain.tools.run_files.writing import to_toml
from marltrain.trainer.preparing.run_config import PLACES, described_callback

GIVEN: dict[str, dict[str, Any]] = {
    "Adapt": {"name": "learning_rate", "by": "kl", "low": 1e-5, "high": 1e-2, "target": 0.02, "direction": "down"},
    "Checkpoint": {"every_minutes": 2.5, "memory": False},
    "CSVLogger": {"path": "tables/mine.csv", "every": 5.0},
    "EarlyStopping": {"patience": 3, "episodes": 100},
    "Film": {"env": "gymnasium/CartPole-v1", "env_args": {"max_episode_steps": 9}, "every": 2, "suffix": ".mp4"},
    "JSONLinesLogger": {"every": 0.5},
    "LearningRateRangeTest": {"high": 0.5, "stop_at": None, "players": ("wolf_*",)},
    "MLflowLogger": {"experiment": "games", "files": False},
    "ReduceOnPlateau": {"players": ("wolf_*", "hare"), "factor": 0.3},
    "WandbLogger": {"project": "games", "tags": ("a", "b"), "mode": "offline", "folder": "elsewhere"},
}


@pytest.fixture(autouse=True)
def _services(monkeypatch):
    for name in ("wandb", "mlflow"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))


def test_every_callback_with_its_arguments_becomes_a_file_and_back(tmp_path):
    assert set(GIVEN) == set(CALLBACKS)
    given = {kind: {"type": kind, **own} for kind, own in GIVEN.items()}
    result = [make_callback(arguments) for arguments in given.values()]
    assert [arguments_of(callback) for callback in result] == list(given.values())
    (tmp_path / "run.toml").write_text(to_toml(RunPlan("gymnasium/CartPole-v1", algo="ppo", callbacks=result)))
    again = read_plan(tmp_path / "run.toml").callbacks
    assert [described_callback(callback) for callback in again] == [described_callback(callback) for callback in result]


@pytest.mark.parametrize("kind", CALLBACKS)
def test_unknown_arguments_are_refused(kind):
    with pytest.raises(mt.ConfigError, match=f"{kind} has no argument 'color'"):
        make_callback({"type": kind, **GIVEN[kind], "color": 1})


def test_a_file_chooses_no_code():
    class Mine(mt.CSVLogger):
        pass

    with pytest.raises(mt.ConfigError, match="no file can hold the callback Mine"):
        arguments_of(Mine())
    with pytest.raises(mt.ConfigError, match=r"Film: 'env' is 'mine:Env'\. No file may choose what code is run"):
        make_callback({"type": "Film", "env": "mine:Env"})
    with pytest.raises(mt.ConfigError, match="No file may choose what code is run"):
        arguments_of(mt.Film(object()))


def test_a_file_holds_no_place_outside_of_the_run(tmp_path):
    for callback in (mt.CSVLogger("mine.csv"), mt.WandbLogger(folder="w"), mt.MLflowLogger(uri="sqlite:///mlflow.db")):
        with pytest.raises(mt.ConfigError, match=f"no file can hold the place of {type(callback).__name__}"):
            arguments_of(callback)
    for kind, name, value in (("WandbLogger", "folder", "/tmp"), ("MLflowLogger", "uri", "http://10.0.0.7")):
        with pytest.raises(mt.ConfigError, match=f"{kind}: '{name}'"):
            make_callback({"type": kind, name: value})


def test_a_config_makes_no_logger_of_a_service_and_names_no_place(tmp_path):
    entries: list[dict[str, Any]] = [{"type": kind, **own} for kind, own in GIVEN.items()]
    entries += [{"type": "Film", "env": "mine:Env"}, {"type": "Mine"}]
    with pytest.warns(UserWarning, match=r"are left out: MLflowLogger, WandbLogger, Film, Mine\. Give loggers again"):
        result = _callbacks(tmp_path / "config.json", entries)
    assert [type(callback).__name__ for callback in result] == [
        kind for kind in GIVEN if kind not in ("MLflowLogger", "WandbLogger")
    ]
    assert all(described_callback(callback).get(place) is None for callback in result for place in PLACES)
