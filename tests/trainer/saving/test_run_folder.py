"""The folder of a run: created for one run, locked during it, checked before each write; and runs without a folder."""

import multiprocessing
import os
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import marltrain as mt
from marltrain.trainer.saving import run_folder as folders
from marltrain.trainer.saving.run_folder import LOCK, InUseError, RunFolder, existing_folder, new_folder
from tests.toys import Identity
from tests.trainer.running import SHORT, At, ppo, trainer


def held_by_a_child(path: Path, ready: Any, done: Any) -> None:
    folder = existing_folder(path)
    ready.set()
    done.wait()
    os._exit(int(folder.path != path))  # without a word to the lock, as a process that is killed


@contextmanager
def child(path: Path) -> Iterator[Any]:
    """A process that holds the lock of a folder until the `with` block ends."""
    context = multiprocessing.get_context("fork")
    ready, done = context.Event(), context.Event()
    process = context.Process(target=held_by_a_child, args=(path, ready, done))
    process.start()
    ready.wait()
    try:
        yield process
    finally:
        done.set()
        process.join()
    assert process.exitcode == 0


def run(path: Path) -> Path:
    """A folder that looks like a run's."""
    path.mkdir()
    (path / "config.json").write_text("{}")
    return path


@pytest.mark.parametrize("fresh", [True, False])
def test_simultaneous_runs_get_different_folders(tmp_path, recwarn, fresh):
    start, result = threading.Barrier(30), []

    def begin():
        start.wait()
        folder = new_folder(tmp_path / "runs" / "x", fresh=fresh)
        (folder.path / "config.json").write_text("{}")
        result.append(folder)

    threads = [threading.Thread(target=begin) for _ in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({folder.path for folder in result}) == len(list((tmp_path / "runs").iterdir())) == 30
    for folder in result:
        folder.release()
        assert sorted(path.name for path in folder.path.iterdir()) == ["config.json"]


def test_no_run_overwrites_another_and_a_file_is_refused():
    here = Path.cwd()
    first = new_folder(here / "run")
    (first.path / "config.json").write_text("{}")
    first.release()
    assert new_folder(here / "run").path == here / "run-2"
    assert new_folder(here / "run", fresh=True).path == here / "run-3"
    Path("file").write_text("")
    for taken in ("file", "file/below"):
        with pytest.raises(mt.ConfigError, match=r"run_dir '.*file"):
            new_folder(here / taken)


def test_locked_folder_is_refused_until_the_process_ends(tmp_path):
    path = run(tmp_path / "run")
    with child(path) as process:
        text = f"run is in use by process {process.pid} on {socket.gethostname()}, since 20"
        with pytest.raises(InUseError, match=text):
            existing_folder(path)
        with pytest.raises(mt.ConfigError, match=text):
            trainer(run_dir=None, steps_per_train=30).train(ppo(), [1, 1], plot=False, resume=path)
        with pytest.warns(UserWarning, match=f"{text}.*: the new run gets another folder"):
            other = new_folder(path)
        assert other.path == tmp_path / "run-2"
    assert (path / LOCK).exists()
    existing_folder(path).release()
    assert not (path / LOCK).exists()


def test_forked_child_does_not_keep_the_lock(tmp_path):
    folder = existing_folder(run(tmp_path / "run"))
    context = multiprocessing.get_context("fork")
    ready, done = context.Event(), context.Event()

    def idle() -> None:
        ready.set()
        done.wait()

    process = context.Process(target=idle)
    process.start()
    ready.wait()
    assert folder._file is not None
    os.close(folder._file)  # as the end of this process would
    folder._file = None
    try:
        existing_folder(folder.path).release()
    finally:
        done.set()
        process.join()


def test_removed_lock_file_is_not_locked_twice(tmp_path, monkeypatch):
    """The previous run ends between the opening and the locking of the file."""
    path = run(tmp_path / "run")
    before = existing_folder(path)
    lock_file = RunFolder._lock_file

    def late(self, file):
        before.release()
        return lock_file(self, file)

    monkeypatch.setattr(RunFolder, "_lock_file", late)
    folder = existing_folder(path)
    monkeypatch.undo()
    assert folder.whole() == path
    with pytest.raises(InUseError):
        existing_folder(path)


def test_file_system_without_locks_shows_a_warning(tmp_path, monkeypatch, caplog):
    """New runs still get separate folders; another process can resume the same run."""

    class Refusing:
        LOCK_EX = LOCK_NB = 0

        @staticmethod
        def flock(file, how):
            raise OSError(38, "Function not implemented")

    monkeypatch.setattr(folders, "fcntl", Refusing)
    first = new_folder(tmp_path / "x")
    assert "no locks (flock: Function not implemented)" in caplog.text
    with pytest.warns(UserWarning, match="x is in use by process"):
        second = new_folder(tmp_path / "x")
    assert (first.path.name, second.path.name) == ("x", "x-2")
    assert existing_folder(first.path).path == first.path


def test_folder_is_locked_during_the_run():
    """Also for a trainer in the same process; reading is possible."""
    seen = []

    def look(moment):
        folder = moment.run_dir
        with pytest.raises(InUseError):
            existing_folder(folder)
        assert len(mt.load(folder / "best")) == 2
        seen.append(folder)

    result = trainer(steps_per_train=9, callbacks=[At(2, look)]).train(ppo(), [1, 1], plot=False)
    assert [str(folder) for folder in seen] == [result["run_dir"]]
    assert not (seen[0] / LOCK).exists()
    existing_folder(seen[0]).release()


def test_lock_is_released_if_a_run_cannot_start():
    folder = run(Path("run").absolute())
    with pytest.raises(mt.MaskError):
        trainer(run_dir=None).train(ppo(), [0, 0], resume=folder)
    existing_folder(folder).release()


class Wandering(Identity):
    """Changes the working folder as soon as it is built, and at every reset."""

    def __init__(self) -> None:
        super().__init__(**SHORT)
        self._wander()

    def reset(self, seed=None, options=None):
        self._wander()
        return super().reset(seed, options)

    def _wander(self) -> None:
        Path("away").mkdir(exist_ok=True)
        os.chdir("away")


@pytest.mark.parametrize("run_dir", ["run", None])
def test_environment_may_change_the_working_folder(tmp_path, run_dir):
    output = trainer(Wandering, run_dir=run_dir, steps_per_train=30, test_freq=4)
    result = output.train(ppo(), [1, 1])
    parent = tmp_path if run_dir else tmp_path / "runs"
    assert Path(result["run_dir"]).parent == parent
    for name in ("history.parquet", "episodes.parquet", "config.json", "metrics.png", "best", "last"):
        assert (Path(result["run_dir"]) / name).exists()
    left = [path for path in (tmp_path / "away").rglob("*") if path.name != "away"]
    assert not left


def gone(moment):
    shutil.rmtree(moment.run_dir)


def replaced(moment):
    gone(moment)
    moment.run_dir.mkdir()


@pytest.mark.parametrize("removed", [gone, replaced])
@pytest.mark.parametrize("callbacks", [[], [mt.Checkpoint(every_steps=6)]])
def test_removed_folder_is_an_error_at_the_next_write(removed, callbacks):
    result = trainer(steps_per_train=90, test_freq=10, callbacks=[At(2, removed), *callbacks])
    with pytest.raises(mt.SaveError, match=r"/run: the run's folder was removed, moved or replaced while the run"):
        result.train(ppo(), [1, 1])
    assert result.run is not None
    assert result.run.counters.env_steps <= (12 if callbacks else 36)
    assert not Path("run").exists() or not any(Path("run").iterdir())


class Unclosable(Identity):
    """Cannot be closed."""

    def close(self) -> None:
        raise RuntimeError("the window is gone")


@pytest.mark.filterwarnings("ignore:environment .* close")
def test_result_is_kept_if_an_environment_cannot_be_closed():
    with pytest.warns(UserWarning, match=r"close\(\) raised RuntimeError: the window is gone. No result is lost"):
        result = trainer(lambda: Unclosable(**SHORT), steps_per_train=9).train(ppo(), [1, 1], plot=False)
    assert result["num_collected_steps"] == 9
    assert len(trainer(lambda: Unclosable(**SHORT)).test(ppo()).lengths) == 2


def test_run_dir_false_writes_nothing():
    data, calls = [], []

    class Watching(mt.Callback):
        def on_checkpoint(self, moment):
            data.append(moment.data["path"])

        def on_test_end(self, moment):
            with pytest.raises(
                mt.ConfigError, match="the run has no folder, since the trainer was given run_dir=False"
            ):
                calls.append(moment.run_dir)

    output = trainer(
        steps_per_train=60, test_freq=6, run_dir=False, callbacks=[Watching()], save_best_fn=calls.append,
        save_last_fn=lambda: calls.append("last"),
    )  # fmt: skip
    result = output.train(ppo(), [1, 1])
    assert result["run_dir"] is None
    assert (len(result["episodes"]), len(result["history"]) > 2) == (18, True)
    assert not data
    assert (calls[0], calls[-1]) == (0, "last")
    with pytest.raises(mt.ConfigError, match="run_dir=False"):
        print(output.folder)
    with pytest.raises(mt.ConfigError, match="run_dir=False writes nothing, but resume needs a folder"):
        output.train(ppo(), [1, 1], resume="run")
    assert not list(Path.cwd().iterdir())
