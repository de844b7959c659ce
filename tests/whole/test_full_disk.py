"""A disk that is full: what was whole stays whole, nothing half-written stays, and the error says what to go on from.

The system is told to write no file beyond some bytes, as a quota would: every write fails where a disk is full, or in
the middle of one.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import SaveError
from marltrain.storage.files import write_arrays
from marltrain.trainer.reporting.history import History
from tests.trainer.running import At, dqn, ppo, tables, trainer, weights

BYTES = 1000
"""What fits: the small files, and the beginning of the others."""


@contextmanager
def disk(size: int = BYTES) -> Iterator[Callable[..., None]]:
    """Give a function that fills it: no file grows beyond `size` bytes then."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        yield lambda *_: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def full_disk(size: int = BYTES) -> Iterator[None]:
    """Let no file grow beyond `size` bytes."""
    with disk(size) as fill:
        fill()
        yield


def half_written(folder: Path) -> list[Path]:
    """What is not in its place."""
    return [path for path in folder.rglob("*") if path.name.startswith(".")]


def test_training_stops_and_goes_on_from_the_checkpoint_before(tmp_path):
    """The disk is full from env step 36 on; what is due next, at 60, is the second checkpoint."""
    with (
        disk() as fill,
        pytest.warns(UserWarning, match="metrics.png"),
        pytest.raises(SaveError, match=r"^/.*/run/checkpoints/60/state\.json: cannot be written: ") as data,
    ):
        callbacks = [At(12, fill), mt.Checkpoint(every_steps=30)]
        trainer(steps_per_train=90, callbacks=callbacks).train(dqn(), [1, 1])
    assert f"The previous checkpoint, {Path.cwd()}/run/checkpoints/30, is complete" in str(data.value)
    said = "\n".join(data.value.__notes__)
    for file in ("run/last/", "run/history.parquet"):  # a picture that cannot be drawn is a warning
        assert f"then, when the run was ended: {Path.cwd()}/{file}" in said
    assert said.endswith("run/checkpoints/30 is complete: the run can be resumed from it")
    assert half_written(Path("run")) == []
    assert mt.load("run/best")
    agents, again = dqn(), dqn()
    expected = trainer(steps_per_train=90, run_dir="whole").train(agents, [1, 1], plot=False)
    result = trainer(steps_per_train=90, run_dir=None).train(again, [1, 1], plot=False, resume="run")
    assert tables(result) == tables(expected)
    assert all((a[n] == b[n]).all() for a, b in zip(weights(agents), weights(again), strict=True) for n in a)


def test_the_first_checkpoint_has_none_before_it():
    with disk() as fill, pytest.raises(SaveError, match=r"File too large\. There is no previous checkpoint"):
        callbacks = [At(9, fill), mt.Checkpoint(every_steps=30)]
        trainer(steps_per_train=90, callbacks=callbacks).train(dqn(), [1, 1], plot=False)
    assert list(Path("run/checkpoints").iterdir()) == []


def test_a_test_that_cannot_be_written_down_names_the_checkpoint_to_go_on_from():
    with disk() as fill, pytest.raises(SaveError, match=r"^/.*/run/\w.*: cannot be written: .*File too large") as data:
        callbacks = [At(12, fill), mt.Checkpoint(every_steps=30)]
        trainer(steps_per_train=90, test_freq=13, callbacks=callbacks).train(dqn(), [1, 1], plot=False)
    assert data.value.__notes__[-1] == f"{Path.cwd()}/run/checkpoints/30 is complete: the run can be resumed from it"
    assert half_written(Path("run")) == []


def test_saved_agents_stay_as_they_were(tmp_path):
    agents = ppo()
    mt.save(tmp_path / "agents", agents)
    before = weights(agents)
    with full_disk(), pytest.raises(SaveError, match=rf"^{tmp_path}/agents/agents\.safetensors: cannot be written"):
        mt.save(tmp_path / "agents", ppo(seed=5))
    again = weights(mt.load(tmp_path / "agents"))
    assert all((a[n] == b[n]).all() for a, b in zip(before, again, strict=True) for n in a)
    assert half_written(tmp_path) == []


def test_tables_stay_as_they_were(tmp_path):
    history = History(["a"], tmp_path)
    history.write(now=True)
    before, fits = (tmp_path / "episodes.parquet").read_bytes(), (tmp_path / "history.parquet").stat().st_size
    rng = np.random.default_rng(0)
    for i in range(1000):
        history.add_episodes(
            envs=np.array([0]), env_steps=i, lengths=np.array([1]), seconds=rng.random(), returns=rng.random(1)[:, None]
        )
    with full_disk(fits + 100), pytest.raises(SaveError, match=r"episodes\.parquet: cannot be written: .*too large"):
        history.write(now=True)
    assert (tmp_path / "episodes.parquet").read_bytes() == before
    assert half_written(tmp_path) == []


def test_arrays_stay_as_they_were(tmp_path):
    write_arrays(tmp_path / "a.safetensors", {"a": np.zeros(10)})
    before = (tmp_path / "a.safetensors").read_bytes()
    with full_disk(), pytest.raises(SaveError, match=r"a\.safetensors: cannot be written: File too large"):
        write_arrays(tmp_path / "a.safetensors", {"a": np.ones(1000)})
    assert (tmp_path / "a.safetensors").read_bytes() == before
    assert half_written(tmp_path) == []
