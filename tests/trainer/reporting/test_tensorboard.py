import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from marltrain.core.errors import SaveError
from marltrain.trainer.events.callbacks import CallbackList, Moment
from marltrain.trainer.reporting.tensorboard import EventFile, TensorBoard


def moment(event, env_steps=0, seconds=0.0, updates=0, **data):
    trainer: Any = None
    return Moment(trainer, event, 2, env_steps, updates, 0, seconds, data)


def scalars(folder):
    found = EventAccumulator(str(folder)).Reload()
    return {tag: [(e.step, pytest.approx(e.value)) for e in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def episode(left, right):
    return {"names": ("left", "right"), "returns": np.array([left, right]), "env": 0, "episode": 0, "length": 1}


def test_tensorboard_reads_the_written_values(tmp_path):
    """Two points of training, one second apart, and a test; values in between are averaged, without nan.

    The second update stands for three rounds: 1 + 3 * 2 over 4. Rates end with updates: 50 steps in 0.5 s after the
    first one, 80 in 1 s, 110 in 1.6 s.
    """

    def updated(steps, seconds, updates, rounds, **metrics):
        callbacks.call(moment("on_update_end", steps, seconds, updates, rounds=rounds, metrics=metrics))

    result = SimpleNamespace(names=("left", "right"), returns=np.array([[1.0, 2.0], [3.0, 4.0]]))
    callbacks = CallbackList([TensorBoard(tmp_path)])
    callbacks.call(moment("on_train_start"))
    callbacks.call(moment("on_episode_end", 20, 0.2, **episode(1.0, -1.0)))
    callbacks.call(moment("on_episode_end", 40, 0.4, **episode(2.0, -1.0)))
    updated(50, 0.5, 1, 1, left={"loss/total": 1.0}, right={"entropy": 5.0})
    updated(100, 1.0, 4, 3, left={"loss/total": 2.0, "entropy": float("nan")})
    updated(130, 1.5, 5, 1, left={"loss/total": 8.0})
    callbacks.call(moment("on_test_end", 150, 2.0, 5, metric=2.5, result=result, best=True))
    updated(160, 2.1, 6, 1, left={"loss/total": 9.0})
    callbacks.call(moment("on_train_end", 200, 3.0, 6, reason="budget"))
    assert scalars(tmp_path) == {
        "left/loss/total": [(100, 1.75), (150, 8.0), (200, 9.0)],
        "right/entropy": [(100, 5.0)],
        "train/return/left": [(100, 1.5)],
        "train/return/right": [(100, -1.0)],
        "train/env_steps_per_second": [(100, 100.0), (150, 80.0), (200, 68.75)],
        "train/episodes": [(100, 2.0), (150, 2.0), (200, 2.0)],
        "train/updates": [(100, 4.0), (150, 5.0), (200, 6.0)],
        "test/metric": [(150, 2.5)],
        "test/return/left": [(150, 2.0)],
        "test/return/right": [(150, 3.0)],
    }


def test_points_are_readable_during_the_run(tmp_path):
    board = TensorBoard(tmp_path, every=0.0)
    board.on_train_start(moment("on_train_start"))
    board.on_update_end(moment("on_update_end", 50, 0.5, rounds=1, metrics={"left": {"loss/total": 1.0}}))
    assert scalars(tmp_path)["left/loss/total"] == [(50, 1.0)]
    board.on_train_end(moment("on_train_end", 50, 0.5, reason="budget"))


def test_file_is_closed_after_an_error(tmp_path):
    board = TensorBoard(tmp_path)
    board.on_train_end(moment("on_train_end", reason="ValueError"))  # training never started
    board.on_train_start(moment("on_train_start"))
    board.on_train_end(moment("on_train_end", reason="ValueError"))
    assert scalars(tmp_path) == {}


def test_second_training_writes_a_second_file(tmp_path):
    for _ in range(2):
        EventFile(tmp_path).close()
    assert len(list(tmp_path.iterdir())) == 2


def test_event_files_are_written_without_torch_and_tensorflow(tmp_path):
    code = (
        "import sys\nfrom marltrain.trainer.reporting.tensorboard import EventFile\n"
        f"file = EventFile({str(tmp_path)!r})\nfile.write({{'a': 1.0}}, 3)\nfile.close()\n"
        "print(sorted({'torch', 'tensorflow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert scalars(tmp_path) == {"a": [(3, 1.0)]}


def test_file_is_closed_after_a_write_error(tmp_path, monkeypatch):
    def full():
        raise OSError(28, "No space left on device")

    board = TensorBoard(tmp_path)
    board.on_train_start(moment("on_train_start"))
    file: Any = board._file
    board.on_episode_end(moment("on_episode_end", 20, 0.2, **episode(1.0, -1.0)))
    monkeypatch.setattr(file._records, "flush", full)
    with pytest.raises(SaveError, match=r"events\.out.*: cannot be written: No space left on device"):
        board.on_train_end(moment("on_train_end", 200, 3.0, reason="budget"))
    assert file._records._writer.closed
    board.on_train_end(moment("on_train_end", 200, 3.0, reason="budget"))


def test_sync_brings_the_values_to_the_disk(tmp_path, monkeypatch):
    flushed: list[str] = []
    logger = TensorBoard(tmp_path)
    logger.sync()  # before it is open, there is nothing to flush
    logger.open(moment("on_train_start"))
    monkeypatch.setattr("marltrain.storage.files._flush", lambda path: flushed.append(path.name))
    logger.write({"a": 1.5}, 10)
    assert "a" not in scalars(tmp_path)
    logger.sync()
    assert scalars(tmp_path) == {"a": [(10, 1.5)]}
    assert len(flushed) == 2 and flushed[0].startswith("events.") and flushed[1] == tmp_path.name
    logger.close()


@pytest.mark.parametrize("last", ["on_test_end", "on_train_end"])
def test_a_point_shortly_after_an_update_has_the_rate_up_to_the_update(tmp_path, last):
    """1,000 steps a second with updates; 5 ms before a test or the end, a compiled call makes 1,500 more."""
    result = SimpleNamespace(names=("left",), returns=np.array([[1.0]]))
    callbacks = CallbackList([TensorBoard(tmp_path)])
    callbacks.call(moment("on_train_start"))
    for i in range(1, 4):
        callbacks.call(moment("on_update_end", 1000 * i, float(i), i, rounds=1, metrics={}))
    callbacks.call(moment(last, 4500, 3.005, 3, metric=1.0, result=result, best=True, reason="budget"))
    assert scalars(tmp_path)["train/env_steps_per_second"][-1] == (4500, 1000)
    callbacks.call(moment("on_train_end", 4500, 3.005, 3, reason="budget"))


def test_the_rate_of_a_run_without_updates_is_that_of_its_steps(tmp_path):
    callbacks = CallbackList([TensorBoard(tmp_path)])
    callbacks.call(moment("on_train_start", 100, 10.0, 7))  # resumed
    callbacks.call(moment("on_train_end", 400, 12.0, 7, reason="budget"))
    assert scalars(tmp_path)["train/env_steps_per_second"] == [(400, 150)]
