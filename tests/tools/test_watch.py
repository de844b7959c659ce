import io
import os
import socket
import subprocess
import sys

import pytest

import marltrain as mt
from marltrain.tools.watch import RunReader, _budgets
from marltrain.trainer.reporting.tensorboard import EventFile
from marltrain.trainer.reporting.text_charts import plain
from tests.trainer.running import ppo, trainer


def test_a_finished_run_is_shown_once(capsys):
    result = trainer(steps_per_train=60, test_freq=10).train(ppo(), [1, 1], plot=False)
    mt.watch("run")
    (line,) = capsys.readouterr().out.splitlines()
    metrics = result["reward_metric_stats"]
    assert line.startswith("100%, 18 episodes, 60 env steps") and "ended" in line
    assert f"metric {metrics[-1]:.4g} (best {max(metrics):.4g})" in line
    mt.watch("run", once=True)
    drawn = capsys.readouterr().out
    assert len(drawn.splitlines()) == 30 and "loss/total" in drawn and "return" in drawn


def test_the_share_of_a_budget_of_updates_is_shown(capsys):
    trainer(updates_per_train=4).train(ppo(), [1, 1], plot=False)
    mt.watch("run")
    assert capsys.readouterr().out.startswith("100%, ")


def test_a_run_is_watched_until_it_ends(tmp_path):
    """The run's lock file vanishes at its second look; in between it has written another point."""
    trainer(steps_per_train=9).train(ppo(), [1, 1], plot=False)
    lock = tmp_path / "run" / "run.lock"
    lock.write_text(f"process {os.getpid()} on {socket.gethostname()}, since 2026-01-01 00:00:00")

    class Lines(io.StringIO):
        def flush(self):
            if lock.exists():
                file = EventFile(tmp_path / "run")
                file.write({"test/metric": 77.0, "train/episodes": 500.0}, 1000)
                file.close()
                lock.unlink()

    file = Lines()
    mt.watch("run", every=0.01, file=file)
    first, second = file.getvalue().splitlines()
    assert "running" in first and "metric 77" not in first
    assert "500 episodes, 1,000 env steps" in second and "metric 77" in second and "ended" in second


def test_new_points_are_read_once_and_a_half_written_one_later(tmp_path):
    trainer(steps_per_train=9).train(ppo(), [1, 1], plot=False)
    for old in (tmp_path / "run").glob("events.*"):
        old.unlink()
    file = EventFile(tmp_path / "run")
    file.write({"test/metric": 1.0}, 10)
    file.flush()
    reader = RunReader("run")
    reader.read()
    file.write({"test/metric": 2.0}, 20)
    file.close()
    data = file.path.read_bytes()
    for size in (len(data) - 5, len(data)):
        file.path.write_bytes(data[:size])
        reader.read()
        assert reader.view.metric.steps == ([10] if size < len(data) else [10, 20])
    resumed = EventFile(tmp_path / "run")
    resumed.resume(15)
    resumed.write({"test/metric": 3.0}, 20)
    resumed.close()
    reader.read()
    assert (reader.view.metric.steps, reader.view.metric.values) == ([10, 20], [1.0, 3.0])


def test_a_killed_run_is_told_apart(tmp_path):
    trainer(steps_per_train=9).train(ppo(), [1, 1], plot=False)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    for number, host, note, going in (
        (gone.pid, socket.gethostname(), "is gone", False), (gone.pid, "elsewhere", "running", True),
        (os.getpid(), socket.gethostname(), "running", True),
    ):  # fmt: skip
        (tmp_path / "run" / "run.lock").write_text(f"process {number} on {host}, since 2026-01-01 00:00:00")
        reader = RunReader("run")
        assert (reader.going_on(), note in reader.view.note) == (going, True)


@pytest.mark.parametrize(
    ("given", "budgets"),
    [
        ({"episodes_per_train": 5000, "steps_per_train": None, "updates_per_train": None}, (5000, None, None)),
        ({"episodes_per_train": 5000, "steps_per_train": 9, "updates_per_train": None}, (None, 9, None)),
        ({"episodes_per_train": 70, "steps_per_train": 9, "updates_per_train": 4}, (70, 9, 4)),
    ],
)
def test_budgets_are_those_of_the_trainer(given, budgets):
    assert tuple(_budgets(given).values()) == budgets


def test_another_folder_is_refused(tmp_path):
    with pytest.raises(mt.SaveError):
        mt.watch(tmp_path)
    with pytest.raises(mt.ConfigError, match="every must be greater than 0, got 0"):
        mt.watch(tmp_path, every=0)


def test_a_damaged_event_file_is_named(tmp_path):
    trainer(steps_per_train=9).train(ppo(), [1, 1], plot=False)
    next((tmp_path / "run").glob("events.*")).write_bytes(b"\x05" + bytes(11) + b"\xff" * 400)
    with pytest.raises(mt.SaveError, match=r"events\.out\.tfevents"):
        mt.watch("run", once=True)


def test_the_pause_before_a_run_was_resumed_is_no_part_of_its_duration(tmp_path, monkeypatch):
    """100 of 400 steps in 10 s, 100 more that are lost, and after an hour 100 in 10 s: 200 more take 20 s."""
    trainer(steps_per_train=9).train(ppo(), [1, 1], plot=False)
    for old in (tmp_path / "run").glob("events.*"):
        old.unlink()
    config = tmp_path / "run" / "config.json"
    config.write_text(config.read_text().replace('"steps_per_train": 9', '"steps_per_train": 400'))
    now = [1000.0]
    monkeypatch.setattr("marltrain.trainer.reporting.tensorboard.time.time", lambda: now[0])
    for resumed, begin in ((0, 1000.0), (101, 5000.0)):
        now[0] = begin
        file = EventFile(tmp_path / "run")
        if resumed:
            file.resume(resumed)
        for env_steps in (100, 200) if not resumed else (200,):
            now[0] += 10.0
            file.write({"train/episodes": env_steps / 10, "train/updates": 0.0}, env_steps)
        file.close()
    reader = RunReader("run")
    reader.read()
    text = plain(reader.view.lines(80, 24))
    assert "20 episodes, 200 env steps" in text and "0:20 < 0:20" in text
