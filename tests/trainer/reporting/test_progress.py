import dataclasses
import io
import os
import subprocess
import sys
from typing import Any

import pytest

import marltrain as mt
from marltrain.core.errors import ConfigError
from marltrain.jit import notices
from marltrain.trainer.events.callbacks import CallbackList, Moment
from marltrain.trainer.events.due import Budgets
from marltrain.trainer.reporting import progress
from marltrain.trainer.reporting.progress import Progress, ProgressPrinter, announced
from tests.toys import Identity
from tests.trainer.running import ppo, trainer


class Terminal(io.StringIO):
    def isatty(self):
        return True


def showing(printer=None, *, file=None, **budgets):
    return Progress(Budgets(**{"episodes": None, "env_steps": None, "updates": None, **budgets}), printer, file=file)


def moment(event, *, episodes=0, env_steps=0, updates=0, seconds=0.0, **data):
    trainer: Any = None
    return Moment(trainer, event, episodes, env_steps, updates, 0, seconds, data)


def run(shown, *, seconds=10.0):
    """A short run: a test, a step, an update, a test, the end."""
    callbacks = CallbackList([shown])
    callbacks.call(moment("on_train_start"))
    callbacks.call(moment("on_test_end", metric=-26.0, best=True))
    callbacks.call(moment("on_collect", episodes=3, env_steps=1000, updates=0, seconds=seconds / 2))
    metrics = {"a": {"loss/total": 1.0, "entropy": 9.0}, "b": {"loss/total": 2.0}, "c": {"entropy": 1.0}}
    callbacks.call(moment("on_update_end", episodes=3, env_steps=1000, updates=1, seconds=seconds / 2, metrics=metrics))
    callbacks.call(
        moment("on_test_end", episodes=5, env_steps=2000, updates=1, seconds=seconds, metric=-27.5, best=False)
    )
    callbacks.call(moment("on_train_end", episodes=5, env_steps=2000, updates=1, seconds=seconds, reason="stop_fn"))


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(progress, "BAR_INTERVAL", 0.0)
    monkeypatch.setattr(progress, "LINE_INTERVAL", 0.0)


@pytest.mark.usefixtures("at_once")
def test_progress_is_printed_as_lines_outside_a_terminal():
    file = io.StringIO()
    run(showing(env_steps=4000, file=file))
    assert file.getvalue().splitlines() == [
        " 25%  3 episodes, 1,000 env steps, 200/s, metric -26 (best -26)  0:05 < 0:15",
        " 50%  5 episodes, 2,000 env steps, 200/s, metric -27.5 (best -26), loss 1.5  0:10 < 0:10",
        "training ended: stop_fn",
    ]


def lines(printer, episodes, seconds, *, file=None):
    """The lines of 1,000 batch steps, by default in a terminal; each step ends some episodes and takes time."""
    file = Terminal() if file is None else file
    shown = showing(printer, file=file)
    shown.on_train_start(moment("on_train_start"))
    for i in range(1, 1001):
        shown.on_collect(moment("on_collect", episodes=i * episodes, env_steps=i, seconds=i * seconds))
    return file.getvalue().splitlines()


def test_lines_are_printed_at_the_given_intervals():
    assert [line.split(",")[0] for line in lines(ProgressPrinter(every_episodes=700), 2, 0.0)] == [
        "700 episodes", "1"  # 1,400, and no more
    ]  # fmt: skip
    assert len(lines(ProgressPrinter(every_episodes=300), 7, 0.0)) == 23  # some multiples are passed, and not reached
    assert len(lines(ProgressPrinter(every_seconds=60), 2, 0.5)) == 8  # of 500 seconds
    both = lines(ProgressPrinter(every_seconds=60, every_episodes=900), 2, 0.5)
    assert [line.split()[-1] for line in both] == ["1:00", "2:00", "3:00", "3:45", "4:45", "5:45", "6:45", "7:30"]
    assert len(lines(ProgressPrinter(every_seconds=1e9), 2, 0.5)) == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "ProgressPrinter: give an interval: every_seconds= or every_episodes="),
        ({"every_seconds": 0}, "every_seconds must be greater than 0"),
        ({"every_episodes": 1.5}, "every_episodes must be an integer or None"),
        ({"every_episode": 1}, "Did you mean 'every_episodes'"),
    ],
)
def test_progress_printer_checks_its_arguments(given, message):
    with pytest.raises(ConfigError, match=message):
        ProgressPrinter(**given)


def test_trainer_uses_the_given_progress_printer(capsys):
    run = trainer(steps_per_train=27, progress=ProgressPrinter(every_episodes=6))
    run.train(ppo(), [1, 1], plot=False)
    shown = [line.split(",")[0].strip() for line in capsys.readouterr().err.splitlines()]
    assert shown == ["67%  6 episodes", "100%  9 episodes", "training ended: steps_per_train"]


def test_lines_are_printed_at_most_every_30_seconds():
    file = io.StringIO()
    shown = showing(env_steps=4000, file=file)
    shown.on_train_start(moment("on_train_start"))
    for i in range(1000):
        shown.on_collect(moment("on_collect", env_steps=i, seconds=i / 1000))
    assert file.getvalue() == ""


@pytest.mark.usefixtures("at_once")
def test_progress_is_a_bar_in_a_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    file = Terminal()
    run(showing(episodes=10, file=file))
    lines = [line.strip() for line in file.getvalue().split("\r")]
    assert any(line.startswith("30%|######    ") and "1,000 env steps, 200/s, metric -26" in line for line in lines)
    assert any(line.startswith("50%|##########    ") and "loss 1.5" in line for line in lines)
    assert file.getvalue().endswith("\ntraining ended: stop_fn\n")


def during_a_test(shown):
    """The first test, from its start to its third episode."""
    callbacks = CallbackList([shown])
    callbacks.call(moment("on_train_start"))
    callbacks.call(dataclasses.replace(moment("on_test_start"), data={"episodes": 50}))
    yield
    callbacks.call(
        dataclasses.replace(moment("on_test_step", seconds=1.0), data={"finished": 3, "episodes": 50, "steps": 160})
    )
    yield
    callbacks.call(moment("on_test_end", metric=1.0, best=True))
    callbacks.call(moment("on_train_end", reason="enough"))


def test_bar_shows_a_running_test_before_its_first_step(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    file = Terminal()
    test = during_a_test(showing(file=file, env_steps=4000))
    next(test)
    assert "0 episodes, 0 env steps, testing 0/50 episodes" in file.getvalue()
    next(test)
    assert "testing 3/50 episodes" in file.getvalue()
    assert list(test) == []
    assert "testing" not in file.getvalue().split("\r")[-1]


@pytest.mark.usefixtures("at_once")
def test_lines_show_the_progress_of_a_test():
    file = io.StringIO()
    test = during_a_test(showing(file=file, env_steps=4000))
    next(test)
    assert file.getvalue() == ""
    next(test)
    assert list(test) == []
    assert file.getvalue().splitlines() == [
        "  0%  0 episodes, 0 env steps, testing 3/50 episodes  0:01",
        "  0%  0 episodes, 0 env steps, metric 1 (best 1)  0:00",
        "training ended: enough",
    ]


@pytest.mark.usefixtures("at_once")
def test_bar_is_closed_after_an_error():
    file = Terminal()
    shown = showing(file=file)
    shown.on_train_start(moment("on_train_start"))
    shown.on_train_end(moment("on_train_end", reason="ValueError"))
    assert file.getvalue().endswith("training ended: ValueError\n")
    shown.on_train_start(moment("on_train_start"))  # and can be opened again
    shown.on_train_end(moment("on_train_end", reason="again"))


@pytest.mark.parametrize(
    ("budgets", "share"),
    [
        ({"episodes": 10}, " 50%"),
        ({"env_steps": 8000}, " 25%"),
        ({"updates": 2}, " 50%"),
        ({"episodes": 100, "env_steps": 8000, "updates": 1}, "100%"),
        ({"env_steps": 100}, "100%"),
        ({}, "5 episodes"),
    ],
)
@pytest.mark.usefixtures("at_once")
def test_progress_follows_the_budget_closest_to_its_end(budgets, share):
    file = io.StringIO()
    run(showing(**budgets, file=file))
    assert file.getvalue().splitlines()[-2].startswith(share)


class Gone(Terminal):
    """A terminal or a pipe whose reader disappears after a few writes."""

    def __init__(self, terminal, writes, error):
        super().__init__()
        self.terminal, self.left, self.error = terminal, writes, error

    def isatty(self):
        return self.terminal

    def write(self, text):
        self.left -= 1
        if self.left < 0:
            raise self.error
        return super().write(text)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("writes", [0, 1, 2])
def test_display_stops_when_its_reader_is_gone(terminal, writes):
    file = Gone(terminal, writes, BrokenPipeError(32, "Broken pipe"))
    shown = showing(env_steps=4000, file=file)
    run(shown)
    run(shown)  # nor in a second run
    assert file.left == -1


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("writes", [0, 1, 2, 20])
def test_closed_output_file_is_not_an_error(terminal, writes):
    run(showing(env_steps=4000, file=Gone(terminal, writes, ValueError("I/O operation on closed file."))))


@pytest.mark.usefixtures("at_once")
def test_no_display_without_stderr(monkeypatch):
    closed = io.StringIO()
    closed.close()
    run(showing(env_steps=4000, file=closed))
    monkeypatch.setattr("sys.stderr", None)
    run(showing(env_steps=4000))


def test_run_continues_when_the_reader_of_stderr_is_gone(tmp_path):
    code = (
        "from marltrain.trainer.reporting import progress\nfrom tests.trainer.running import ppo, trainer\n"
        "progress.LINE_INTERVAL = 0.0\n"
        "result = trainer(steps_per_train=30, progress=True).train(ppo(), [1, 1], plot=False)\n"
        "print(result['stop_reason'], result['num_collected_steps'])"
    )
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as nobody:
        done = subprocess.run(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=nobody, text=True, check=False, timeout=100
        )
    assert done.stdout == "steps_per_train 30\n"


@pytest.mark.parametrize("wanted", [True, False])
def test_long_compilations_are_announced_if_progress_is_enabled(capsys, monkeypatch, wanted):
    """In `train` and in `test`; the environment starts a compilation."""

    class Compiling(Identity):
        def reset(self, seed=None, options=None):
            notices.tell("compiling the game ...")
            return super().reset(seed, options)

    trainer = mt.DecentralizedTrainer(
        Compiling, steps_per_train=3, num_train_envs=3, seed=0, progress=wanted, episodes_per_test=2, run_dir="run"
    )
    agents = [mt.RandomAgent(), *mt.make_agents("ppo", Identity, seed=0)[1:]]
    trainer.train(agents, [0, 1], plot=False)
    assert ("compiling the game ..." in capsys.readouterr().err) == wanted
    trainer.test(agents, episodes=2)
    assert ("compiling the game ..." in capsys.readouterr().err) == wanted


def test_no_announcement_after_the_reader_is_gone(monkeypatch):
    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Closed())
    with announced(True):
        notices.tell("compiling ...")
        notices.tell("compiled in 2.0 s")


def test_rates_in_the_bar_count_short_and_long_intervals_by_their_length(monkeypatch):
    """1,000 steps in 0.25 s, then an update of 2.25 s: 400 a second; a test begins 5 ms after 20 more steps."""
    monkeypatch.setenv("COLUMNS", "200")
    shown = showing(file=(file := Terminal()))
    shown.on_train_start(moment("on_train_start"))
    steps, seconds = 0, 0.0
    for updates in range(8):
        for _ in range(10):
            steps, seconds = steps + 100, seconds + 0.025
            shown.on_collect(moment("on_collect", env_steps=steps, updates=updates, seconds=seconds))
        seconds += 2.25
        ended = {"env_steps": steps, "updates": updates + 1, "seconds": seconds}
        shown.on_update_end(moment("on_update_end", **ended, metrics={}))
        late = {"updates": updates + 1, "env_steps": steps + 20, "seconds": seconds + 0.005}
        shown.on_collect(moment("on_collect", **late))
        shown.on_test_start(dataclasses.replace(moment("on_test_start", **late), data={"episodes": 5}))
        shown.on_test_end(moment("on_test_end", **late, metric=1.0, best=True))
    rates = [
        int(text.split("/s")[0].split()[-1].replace(",", "")) for text in file.getvalue().split("\r") if "/s" in text
    ]
    assert len(rates) > 20 and all(250 < rate < 600 for rate in rates[len(rates) // 2 :])


def test_the_bar_of_a_resumed_run_shows_its_duration_and_the_time_left(monkeypatch):
    """Half of 8,000 steps took an hour; then 400 in 40 s: 3,600 more take 360 s."""
    monkeypatch.setenv("COLUMNS", "200")
    shown = showing(file=(file := Terminal()), env_steps=8000)
    shown.on_train_start(moment("on_train_start", env_steps=4000, seconds=3600.0))
    shown.on_collect(moment("on_collect", env_steps=4400, seconds=3640.0))
    assert "4,400 env steps, 10/s [1:00:40<6:00]" in file.getvalue()
