"""A run that fails before its first update gives its folder back: the next run gets its name. No other file is lost."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import marltrain as mt
from marltrain.core.errors import AgentError, ConfigError, EnvError
from marltrain.trainer.reporting.tensorboard import EventFile
from marltrain.trainer.saving.given_back import OWN_FILES, emptied
from marltrain.trainer.saving.run_folder import LOCK, RunFolder, existing_folder, new_folder
from tests.faulty_toys import Broken, Flaky
from tests.tiers import LONG
from tests.toys import Crowd
from tests.trainer.running import At, dqn, ppo, trainer

NOT_YET = 4
"""A batch step before the first update of `ppo`: it is due after 10 env steps, in the fourth of 3 environments."""


class MineError(Exception):
    """An error of the user's code."""


def fail(*_: Any, **__: Any) -> None:
    raise MineError("mine")


def failing(settings: Any = None, *, at: int = 1, agents: Any = None, plot: bool = False, **train: Any) -> Path:
    """Let a run fail in a batch step; return the folder that it had."""
    given = {"callbacks": [], **(settings or {})}
    run = trainer(**{**given, "callbacks": [*given["callbacks"], At(at, fail)]})
    with pytest.raises(MineError):
        run.train(agents or ppo(), [1, 1], plot=plot, **train)
    return run.folder


def content(folder: Path = Path("run")) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


class Writing(mt.Callback):
    """Writes into the run's folder when training starts; write: gets the folder."""

    def __init__(self, write: Callable[[Path], Any]) -> None:
        self.write = write

    def on_train_start(self, moment):
        self.write(moment.run_dir)


def text(name: str) -> Callable[[Path], Any]:
    def write(folder: Path) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("mine")

    return write


@pytest.mark.parametrize("at", [NOT_YET - 1, *LONG * [1]])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"vector": "subproc", "num_workers": 2},
        {"callbacks": [mt.Checkpoint(every_steps=1000)]},
        {"test_freq": None},
    ],
)
def test_a_run_that_fails_before_its_first_update_gives_its_folder_back(settings, at):
    failing(settings, at=at, plot=True)
    assert content(Path()) == []
    assert trainer(steps_per_train=3).train(ppo(), [1, 1], plot=False)["run_dir"] == str(Path("run").absolute())


def test_the_default_folder_is_given_back():
    folder = failing({"run_dir": None})
    assert folder.parent == Path("runs").absolute()
    assert content(Path("runs")) == []


@pytest.mark.parametrize("agents", [dqn, ppo])
def test_a_run_that_fails_after_an_update_keeps_its_folder(agents):
    failing(at=NOT_YET + 1, agents=agents())
    assert {"config.json", "last", "best", "history.parquet"} <= set(content())


def test_the_error_names_the_folder():
    with pytest.raises(MineError) as raised:
        trainer(callbacks=[At(1, fail)]).train(ppo(), [1, 1], plot=False)
    folder = Path("run").absolute()
    assert f"{folder} is free again: the run made no update, and its files are removed" in raised.value.__notes__


def test_errors_of_the_environment_and_of_agents_give_it_back():
    with pytest.raises(EnvError):
        trainer(Broken, {"fault": "raise", "at": 3}, steps_per_train=60).train(ppo(Broken), [1, 1], plot=False)
    with pytest.raises(AgentError, match="differ in test environment"):
        trainer(Crowd).train(mt.make_agents("qmix", Crowd, seed=0, network=mt.MLP((4,))), [1, 1, 1], plot=False)
    assert content(Path()) == []


def test_a_report_of_faults_stays():
    """The first test survives some."""
    run = trainer(Flaky, {"every": 2}, on_fault="restart", callbacks=[At(1, fail)])
    with pytest.raises(MineError):
        run.train(ppo(Flaky), [1, 1], plot=False)
    assert run.run is not None and len(run.run.faults)
    assert {"config.json", "faults.parquet", "last"} <= set(content())


@pytest.mark.parametrize(
    ("write", "name"),
    [
        (text("notes.txt"), "notes.txt"),
        (text("films/0.mp4"), "films"),
        (text("metrics.csv"), "metrics.csv"),
        (text(".hidden"), ".hidden"),
        (text("best/notes.txt"), "best"),
        (text("checkpoints/notes.txt"), "checkpoints"),
        (text("config.json.bak"), "config.json.bak"),
        (lambda folder: (folder / "empty").mkdir(), "empty"),
        (lambda folder: (folder / "metrics.png").symlink_to(folder.parent / "away"), "metrics.png"),
        (lambda folder: EventFile(folder / ".").close(), None),  # TensorBoard points of the user's own
    ],
)
def test_anything_else_in_it_keeps_the_folder(write, name):
    folder = failing({"callbacks": [Writing(write)], "test_freq": None})
    assert {"config.json", "last", "history.parquet", *([name] if name else [])} <= set(content(folder))
    assert name or len([found for found in content(folder) if found.startswith("events.out.tfevents")]) == 2


@pytest.mark.parametrize("logger", [mt.CSVLogger, mt.JSONLinesLogger])
def test_logs_of_callbacks_stay(logger):
    result = logger()
    failing({"callbacks": [result]})
    assert {"config.json", "last"} < set(content())
    assert any(name.startswith("log") or name.endswith((".csv", ".jsonl")) for name in content())


def test_a_checkpoint_keeps_the_folder():
    failing({"callbacks": [mt.Checkpoint(every_steps=3)]}, at=3)
    assert content(Path("run/checkpoints")) != []
    assert {"config.json", "last"} <= set(content())


def test_agents_that_were_trained_before_stay():
    """`last/` may be their only copy."""
    agents = ppo()
    trainer(run_dir="first", steps_per_train=30).train(agents, [1, 1], plot=False)
    failing(agents=agents)
    assert {"config.json", "last"} <= set(content())


def test_a_folder_that_the_run_has_not_made_stays():
    """Left as it was if it was empty; else nothing is removed."""
    Path("run").mkdir()
    failing()
    assert content() == []
    text("notes.txt")(Path("run"))
    failing()
    assert {"config.json", "notes.txt", "last"} <= set(content())


def test_a_run_that_continues_another_never_gives_its_folder_back():
    result = trainer(steps_per_train=3, callbacks=[mt.Checkpoint(every_steps=1000)]).train(ppo(), [1, 1], plot=False)
    assert result["num_updates"] == 0
    failing({"run_dir": None}, resume="run")
    assert {"config.json", "checkpoints", "last"} <= set(content())
    with pytest.warns(UserWarning, match="holds no finished checkpoint: a new run starts"):
        failing({"run_dir": None}, resume="other")
    assert {"config.json", "last"} <= set(content(Path("other")))
    run = trainer(run_dir="again", steps_per_train=3)
    run.train(ppo(), [1, 1], plot=False)
    run.setup = trainer(run_dir="again", callbacks=[At(1, fail)]).setup
    with pytest.raises(MineError):
        run.train(ppo(), [1, 1], plot=False, go_on=True)
    assert {"config.json", "last"} <= set(content(Path("again")))


def test_a_run_that_gave_its_folder_back_cannot_be_continued():
    run = trainer(callbacks=[At(1, fail)])
    with pytest.raises(MineError):
        run.train(ppo(), [1, 1], plot=False)
    with pytest.raises(ConfigError, match="this trainer failed before its first update, and its files are removed"):
        run.train(ppo(), [1, 1], plot=False, go_on=True)


@pytest.mark.parametrize("second", [False, True])
def test_an_interrupted_run_keeps_its_folder(second):
    """Ctrl-C is no error: the result names the folder."""
    signals = [At(1, lambda *_: os.kill(os.getpid(), signal.SIGINT)) for _ in range(2 if second else 1)]
    if second:
        with pytest.raises(KeyboardInterrupt):
            trainer(callbacks=signals).train(ppo(), [1, 1], plot=False)
        assert "config.json" in content()
    else:
        result = trainer(callbacks=signals).train(ppo(), [1, 1], plot=False)
        assert (result["stop_reason"], result["run_dir"]) == ("interrupted", str(Path("run").absolute()))
        assert {"config.json", "last"} <= set(content())


def test_a_run_that_is_refused_while_it_is_prepared_gives_its_folder_back(monkeypatch):
    monkeypatch.setattr("marltrain.trainer.preparing.prepare.built_in_callbacks", fail)
    with pytest.raises(MineError):
        trainer().train(ppo(), [1, 1], plot=False)
    assert content(Path()) == []


def test_the_environments_are_closed_before_the_folder_is_given_back():
    """An environment that writes when it is closed finds the folder, and its file keeps it."""

    class Late(Crowd):
        def close(self):
            if Path("run").exists():
                Path("run/late.txt").write_text("mine")

    with pytest.raises(AgentError, match="differ in test environment"):
        trainer(Late).train(mt.make_agents("vdn", Late, seed=0, network=mt.MLP((4,))), [1, 1, 1], plot=False)
    assert {"config.json", "late.txt", "last"} <= set(content())


def test_emptied_removes_all_or_nothing(tmp_path):
    for name in (*OWN_FILES, "events", LOCK):
        text(name)(tmp_path)
    (tmp_path / "checkpoints").mkdir()
    before = sorted(tmp_path.rglob("*"))
    assert not emptied(tmp_path, ["other"], but=LOCK)
    assert not emptied(tmp_path, ["events"], but="other")
    assert sorted(tmp_path.rglob("*")) == before
    assert emptied(tmp_path, ["events"], but=LOCK)
    assert content(tmp_path) == [LOCK]


def test_only_the_folder_of_a_run_is_given_back(tmp_path):
    """`own` is set by a run that can end without use."""
    folder = new_folder(tmp_path / "run")
    folder.release()
    assert folder.path.exists() and not folder.given_back
    folder = new_folder(tmp_path / "run")
    folder.own = frozenset()
    folder.release()
    assert folder.path.exists() and folder.given_back  # made by another


@pytest.mark.filterwarnings("ignore:.*the new run gets another folder")
def test_runs_that_begin_while_others_give_their_folders_back_get_folders(tmp_path):
    """Sixteen threads lock and give back the same few names; each has its folder for itself."""
    start, errors = threading.Barrier(16), []

    def work():
        start.wait()
        for _ in range(25):
            try:
                folder = new_folder(tmp_path / "x", fresh=False)
                folder.own = frozenset()
                assert folder.whole() == folder.path
                folder.release()
            except BaseException as error:
                errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_a_folder_that_was_given_back_is_made_again(tmp_path, monkeypatch):
    """It vanishes between the look at it and its lock."""
    (tmp_path / "x").mkdir()
    lock = RunFolder._locked

    def late(folder: RunFolder, known: bool) -> int:
        monkeypatch.setattr(RunFolder, "_locked", lock)
        folder.path.rmdir()
        return lock(folder, known)

    monkeypatch.setattr(RunFolder, "_locked", late)
    folder = new_folder(tmp_path / "x")
    assert folder.path == tmp_path / "x"
    folder.release()
    with pytest.raises(ConfigError, match="cannot be written to"):
        existing_folder(tmp_path / "missing")
