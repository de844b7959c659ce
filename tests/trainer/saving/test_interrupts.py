"""Ctrl-C and SIGTERM: the step is finished and the run is saved; a second signal exits at once."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from marltrain.trainer.saving.checkpoint import Checkpoint
from marltrain.trainer.saving.interrupts import Interrupts
from tests.trainer.running import At, Recorder, ppo, tables, trainer, weights

BOTH = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


def sent(number):
    """Return a function that sends a signal to this process."""
    return lambda *_: os.kill(os.getpid(), number)


def whole(steps, agents, folder, **settings):
    return trainer(steps_per_train=steps, run_dir=folder, **settings).train(agents, [1, 1], plot=False)


def same_end(expected, agents, result, again):
    assert tables(result) == tables(expected)
    assert all((a[n] == b[n]).all() for a, b in zip(weights(agents), weights(again), strict=True) for n in a)


@BOTH
def test_interrupted_run_is_saved_and_resumes_exactly(number):
    calls: list = []
    callbacks = [At(13, sent(number)), Recorder(calls), Checkpoint(every_steps=1000)]
    result = trainer(steps_per_train=90, callbacks=callbacks).train(ppo(), [1, 1], plot=False)
    assert (result["stop_reason"], result["num_collected_steps"]) == ("interrupted", 39)
    assert result["history"].env_steps.tolist() == [0]  # no last test
    assert [call[0] for call in calls][-3:] == ["on_checkpoint", "on_checkpoint", "on_train_end"]
    assert Path("run/checkpoints/39").is_dir()
    assert Path("run/last").is_dir()
    agents, again = ppo(), ppo()
    expected = whole(90, agents, "whole")
    result = trainer(steps_per_train=90, run_dir=None).train(again, [1, 1], plot=False, resume="run")
    same_end(expected, agents, result, again)


def test_sigterm_saves_the_run_in_a_process_that_called_ray_init(ray_cluster):
    """Ray's handler of SIGTERM exits at once."""
    before = signal.getsignal(signal.SIGTERM)
    assert before.__module__ == "ray._private.worker"
    callbacks = [At(13, sent(signal.SIGTERM))]
    result = trainer(steps_per_train=90, callbacks=callbacks).train(ppo(), [1, 1], plot=False)
    assert (result["stop_reason"], result["num_collected_steps"]) == ("interrupted", 39)
    assert signal.getsignal(signal.SIGTERM) is before


def test_interrupted_test_is_played_after_resume():
    """The interrupt arrives during the test at 27 env steps, after its first env steps."""
    asked: list = []

    def interrupt(episodes, steps):
        asked.append(steps)
        if len(asked) == 5:
            os.kill(os.getpid(), signal.SIGINT)

    settings: Any = {"test_freq": 9, "episodes_per_test": 5}
    result = trainer(
        steps_per_train=60, test_fn=interrupt, callbacks=[Checkpoint(every_steps=1000)], **settings
    ).train(ppo(), [1, 1], plot=False)  # fmt: skip
    assert (result["stop_reason"], len(result["history"]), asked) == ("interrupted", 1, [0, 6, 12, 0, 6])
    agents, again = ppo(), ppo()
    expected = whole(60, agents, "whole", **settings)
    result = trainer(steps_per_train=60, run_dir=None, **settings).train(again, [1, 1], plot=False, resume="run")
    same_end(expected, agents, result, again)


def test_interrupt_before_the_first_step():
    result = trainer(
        steps_per_train=60, test_fn=sent(signal.SIGINT), callbacks=[Checkpoint(every_steps=1000)]
    ).train(ppo(), [1, 1], plot=False)  # fmt: skip
    assert (result["stop_reason"], result["num_collected_steps"]) == ("interrupted", 0)
    assert result["reward_metric_stats"] == []
    assert not any(Path("run/checkpoints").iterdir())
    with pytest.warns(UserWarning, match=r"a new run starts, in /.*/run$"):  # in the same folder
        again = trainer(steps_per_train=60, callbacks=[Checkpoint(every_steps=1000)]).train(ppo(), [1, 1], plot=False,
                                                                                            resume="run")  # fmt: skip
    assert again["run_dir"] == str(Path("run").absolute())


@BOTH
def test_second_interrupt_exits_at_once(number):
    """Both signals in one step; and the second while the last agents are saved."""
    calls: list = []
    both = [At(5, sent(number)), At(5, sent(number)), Recorder(calls), Checkpoint(every_steps=1000)]
    run = trainer(callbacks=both)
    with pytest.raises(KeyboardInterrupt):
        run.train(ppo(), [1, 1], plot=False)
    assert calls[-1] == ("on_train_end", 3, 15)  # callbacks can close their files
    assert not Path("run/last").exists()
    assert not any(Path("run/checkpoints").iterdir())
    assert not Path("run/history.parquet").exists() or run.run is not None
    late = trainer(run_dir="late", callbacks=[At(5, sent(number))], save_last_fn=sent(number))
    with pytest.raises(KeyboardInterrupt):
        late.train(ppo(), [1, 1])
    assert not Path("late/metrics.png").exists()


def test_signal_handlers_are_restored_and_custom_ones_kept():
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    came: list = []
    with Interrupts() as outer:
        with Interrupts() as inner:  # the outer one's handlers are not Python's own
            os.kill(os.getpid(), signal.SIGTERM)
        assert (outer.asked, inner.asked) == (True, False)
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))
    try:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGTERM)
        assert (came, interrupts.asked) == ([signal.SIGTERM], False)
    finally:
        signal.signal(signal.SIGTERM, before[0])


def test_no_signal_handlers_in_other_threads():
    seen: list = []

    def work():
        with Interrupts():
            seen.append(signal.getsignal(signal.SIGINT))

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]
