"""Interrupted runs: what the caller of `train` gets, and the line that says how to resume."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import marltrain as mt
from marltrain.core.errors import ConfigError
from marltrain.core.remedies import on_command_line
from tests.house.repository import ROOT
from tests.tiers import LONG
from tests.trainer.running import At, ppo, tables, trainer

SAVING: Any = {"every_steps": 10**9}
LIMIT = 600
"""Seconds that a child may take to end: a bound for a hang."""


def sent(number: int = signal.SIGINT) -> Any:
    """Return a function that sends a signal to this process."""
    return lambda *_: os.kill(os.getpid(), number)


def interrupted(on_interrupt: str = "return", *, how: Any = None, at: int = 5, **settings: Any) -> dict[str, Any]:
    """Train and interrupt the run in a batch step."""
    settings["callbacks"] = [*settings.get("callbacks", []), At(at, sent() if how is None else how)]
    return trainer(**settings).train(ppo(), [1, 1], plot=False, on_interrupt=on_interrupt)


@contextmanager
def loop_over_seeds(on_interrupt: str) -> Iterator[subprocess.Popen[str]]:
    """Start a loop over two seeds as a program of its own; the children write into the working folder."""
    command = [sys.executable, "-m", "tests.trainer.training.loop_over_seeds", on_interrupt]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as child:
        try:
            yield child
        finally:
            child.kill()


def wait_for(child: subprocess.Popen[str], file: str) -> None:
    """Wait until a child has written a file; fails if it ends before."""
    while not Path(file).exists():
        if child.poll() is not None:
            raise AssertionError(f"the child ended: {child.communicate()}")
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGTERM, *LONG * [signal.SIGINT]])
def test_a_loop_over_seeds_ends_with_raise(number):
    """What is saved stays the same: a checkpoint, the last agents, the tables; save_last_fn is called once."""
    with loop_over_seeds("raise") as child:
        wait_for(child, "begun-0")
        child.send_signal(number)
        out, error = child.communicate(timeout=LIMIT)
    assert child.returncode == -signal.SIGINT  # Python's own end by KeyboardInterrupt, a shell's 130
    assert out == "" and not Path("seed-1").exists()
    assert "marltrain: interrupted; resume with: trainer.train(agents, ..., resume='seed-0')\n" in error
    assert error.endswith("KeyboardInterrupt: training was interrupted\n")
    assert Path("saved").read_text() == "0\n"
    assert {"last", "checkpoints", "history.parquet", "episodes.parquet"} <= set(os.listdir("seed-0"))
    (checkpoint,) = os.listdir("seed-0/checkpoints")
    steps = int(checkpoint) + 3
    again = trainer(steps_per_train=steps, run_dir=None).train(ppo(), [1, 1], plot=False, resume="seed-0")
    assert again["num_collected_steps"] == steps


def test_a_loop_over_seeds_goes_on_by_default():
    with loop_over_seeds("return") as child:
        for seed in (0, 1):
            wait_for(child, f"begun-{seed}")
            child.send_signal(signal.SIGINT)
        out, error = child.communicate(timeout=LIMIT)
    assert (child.returncode, out) == (0, "0 interrupted\n1 interrupted\n")
    assert [f"resume='seed-{seed}')" in error for seed in (0, 1)] == [True, True]
    assert Path("saved").read_text() == "0\n1\n"


@pytest.mark.parametrize("on_interrupt", ["return", "raise"])
def test_both_save_the_same(on_interrupt, capfd):
    calls: list[str] = []
    settings: Any = {"callbacks": [mt.Checkpoint(**SAVING)], "save_last_fn": lambda: calls.append("last")}
    if on_interrupt == "raise":
        with pytest.raises(KeyboardInterrupt, match=r"^training was interrupted$"):
            interrupted("raise", **settings)
    else:
        assert interrupted(**settings)["stop_reason"] == "interrupted"
    assert calls == ["last"] and os.listdir("run/checkpoints") == ["15"]
    assert {"last", "best", "history.parquet", "episodes.parquet", "config.json"} <= set(os.listdir("run"))
    assert capfd.readouterr().err.endswith(
        "marltrain: interrupted; resume with: trainer.train(agents, ..., resume='run')\n"
    )
    expected = trainer(steps_per_train=60, run_dir="whole").train(ppo(), [1, 1], plot=False)
    result = trainer(steps_per_train=60, run_dir=None).train(ppo(), [1, 1], plot=False, resume="run")
    assert tables(result) == tables(expected)


def test_a_folder_elsewhere_is_named_by_its_whole_path(tmp_path_factory, capfd):
    folder = tmp_path_factory.mktemp("else") / "it's a run"
    interrupted(run_dir=folder, callbacks=[mt.Checkpoint(**SAVING)])
    assert capfd.readouterr().err.endswith(f'resume with: trainer.train(agents, ..., resume="{folder}")\n')


def test_without_a_checkpoint_the_line_names_the_remedy(capfd):
    interrupted()
    assert capfd.readouterr().err.endswith(
        "marltrain: interrupted: there is no checkpoint to resume from; callbacks=[mt.Checkpoint(every_steps=10_000)] "
        "writes some\n"
    )


@pytest.mark.parametrize("checkpoint", [False, True])
def test_an_interrupt_before_the_first_step(checkpoint, capfd):
    """In the first test: there is no checkpoint yet."""
    callbacks = [mt.Checkpoint(**SAVING)] if checkpoint else []
    with pytest.raises(KeyboardInterrupt):
        trainer(test_fn=sent(), callbacks=callbacks).train(ppo(), [1, 1], plot=False, on_interrupt="raise")
    assert "there is no checkpoint to resume from" in capfd.readouterr().err
    assert Path("run/config.json").exists() and Path("run/last").exists()


def test_nothing_is_said_without_a_folder_on_the_command_line_and_without_an_interrupt(capfd):
    interrupted(run_dir=False)
    with on_command_line():
        interrupted()
    trainer(steps_per_train=12).train(ppo(), [1, 1], plot=False, on_interrupt="raise")
    stopped = trainer(callbacks=[At(3, lambda moment: moment.stop("interrupted"))])
    assert stopped.train(ppo(), [1, 1], plot=False, on_interrupt="raise")["stop_reason"] == "interrupted"
    assert "resume" not in capfd.readouterr().err


def test_raise_without_a_folder():
    with pytest.raises(KeyboardInterrupt):
        interrupted("raise", run_dir=False)


@pytest.mark.parametrize("when", ["save_last_fn", "test_fn"])
def test_an_interrupt_at_the_end_of_a_run_is_raised_too(when, capfd):
    """In the last test, which the run then lacks; and when the complete run is saved."""
    tests: list[int] = []

    def late(*_: int) -> None:
        tests.append(len(tests))
        if when == "save_last_fn" or len(tests) == 3:  # at the start of each test, and after its two episodes
            sent()()

    settings: Any = {when: late, "steps_per_train": 12, "callbacks": [mt.Checkpoint(**SAVING)]}
    with pytest.raises(KeyboardInterrupt):
        trainer(**settings).train(ppo(), [1, 1], plot=False, on_interrupt="raise")
    assert Path("run/last").exists()
    assert ("resume with" in capfd.readouterr().err) == (when == "test_fn")
    tests.clear()
    result = trainer(run_dir="again", **settings).train(ppo(), [1, 1], plot=False)
    assert result["stop_reason"] == ("interrupted" if when == "test_fn" else "steps_per_train")


def test_an_interrupt_of_another_origin_is_raised_too():
    """A handler of the user raises KeyboardInterrupt itself, or a callback does."""

    def leave(*_: Any) -> None:
        raise KeyboardInterrupt

    assert interrupted(how=leave)["stop_reason"] == "interrupted"
    with pytest.raises(KeyboardInterrupt, match=r"^training was interrupted$"):
        interrupted("raise", how=leave, run_dir="again")
    assert Path("again/last").exists()


@pytest.mark.parametrize("on_interrupt", ["return", "raise"])
def test_a_second_interrupt_leaves_at_once(on_interrupt):
    with pytest.raises(KeyboardInterrupt):
        interrupted(on_interrupt, callbacks=[At(5, sent())])
    assert not Path("run/last").exists()


def test_an_interrupted_run_can_be_continued():
    run = trainer(callbacks=[At(5, sent())])
    agents = ppo()
    with pytest.raises(KeyboardInterrupt):
        run.train(agents, [1, 1], plot=False, on_interrupt="raise")
    run.setup = trainer(run_dir="run", steps_per_train=12).setup
    assert run.train(agents, [1, 1], plot=False, go_on=True)["num_collected_steps"] == 27


@pytest.mark.parametrize("wrong", ["stop", True, None])
def test_another_value_is_refused(wrong):
    with pytest.raises(ConfigError, match=r"on_interrupt must be (one of return, raise|a string), got"):
        trainer().train(ppo(), [1, 1], on_interrupt=wrong)
    assert not Path("run").exists()
