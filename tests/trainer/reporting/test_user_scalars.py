"""Logged numbers: their destinations, refused values, and resumed runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import marltrain as mt
from marltrain.core.errors import ConfigError
from marltrain.trainer.reporting.history import History
from marltrain.trainer.reporting.user_scalars import Scalars
from tests.trainer.reporting.test_tensorboard import scalars
from tests.trainer.running import ppo, tables, trainer


def logged(name, value, event="on_step", **settings):
    """A short run that logs a value at an event."""
    functions: dict[str, Any] = {event: lambda moment: moment.log(name, value(moment))}
    callbacks = [mt.LambdaCallback(**functions)]
    return trainer(**{"steps_per_train": 12, "test_freq": 3, "callbacks": callbacks, **settings}).train(
        ppo(), [1, 1], plot=False
    )


def direct(name, value):
    """Log without a run; return the events."""
    told: list = []
    Scalars(History(["player_0"], "."), ["player_0"], lambda event, **data: told.append((event, data))).log(name, value)
    return told


def test_table_has_means_between_tests_and_tensorboard_all_values():
    """Tests at env steps 0, 9 and 12."""
    history = logged("half", lambda moment: moment.env_steps / 2)["history"]
    assert history.env_steps.tolist() == [0, 9, 12]
    np.testing.assert_array_equal(history["user/half"], [np.nan, 3.0, 6.0])
    assert scalars("run")["user/half"] == [(3, 1.5), (6, 3.0), (9, 4.5), (12, 6.0)]


def test_values_logged_in_on_test_end_belong_to_the_row_of_the_test():
    history = logged("mine/steps", lambda moment: moment.env_steps, "on_test_end")["history"]
    assert history["mine/steps"].tolist() == [0, 9, 12]


def test_row_is_kept_if_its_callback_raises():
    def fail(moment):
        moment.log("x", 1)
        raise ZeroDivisionError

    run = trainer(callbacks=[mt.LambdaCallback(on_test_end=fail)])
    with pytest.raises(ZeroDivisionError):
        run.train(ppo(), [1, 1], plot=False)
    assert run.run is not None
    assert run.run.history.tests["user/x"].tolist() == [1.0]


def test_hook_logs_by_trainer_log():
    def train_fn(episodes: int, steps: int) -> None:
        run.log("episodes", episodes)

    run = trainer(steps_per_train=9, train_fn=train_fn)
    history = run.train(ppo(), [1, 1], plot=False)["history"]
    np.testing.assert_array_equal(history["user/episodes"], [np.nan, 1.5])


@pytest.mark.parametrize("value", [2, True, np.float32(2), np.array(2), torch.tensor(2.0)])
def test_values_that_hold_one_number_are_accepted(value):
    assert direct("x", value) == [("on_log", {"tag": "user/x", "value": float(value)})]


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), 10**400, "1", None, np.zeros(1), [1.0], np.array("a"), 1j]
)
def test_values_other_than_one_finite_number_are_refused(value):
    with pytest.raises(ConfigError, match=r"log: the value of 'x' must be (one|a finite) number, got "):
        direct("x", value)


@pytest.mark.parametrize("name", ["", " x", "x ", "a//b", "/a", "a/", "a\nb", "\ud800", "x" * 201, 3, None])
def test_invalid_names_are_refused(name):
    with pytest.raises(ConfigError, match="log: name must be text"):
        direct(name, 1.0)


@pytest.mark.parametrize("name", ["player_0/loss/total", "return/player_0", "test/metric", "train/return/x"])
def test_names_that_the_run_writes_itself_are_refused(name):
    with pytest.raises(ConfigError, match=f"log: '{name}' is a name that the run writes itself"):
        direct(name, 1.0)


@pytest.mark.parametrize(
    ("event", "message"), [("on_train_end", "only while training runs"), ("on_log", "cannot log anything itself")]
)
def test_events_that_refuse_log(event, message):
    functions: dict[str, Any] = {name: lambda moment: moment.log("x", 1) for name in ("on_train_start", event)}
    with pytest.raises(ConfigError, match=message):
        trainer(steps_per_train=3, callbacks=[mt.LambdaCallback(**functions)]).train(ppo(), [1, 1], plot=False)


def test_pictures_are_in_tensorboard_at_their_env_steps():
    """A figure of 3 by 2 inches at 100 dots an inch."""

    def draw(moment):
        moment.log_picture("mine/curve", Figure(figsize=(3, 2), dpi=100))

    run = trainer(steps_per_train=6, test_freq=3, callbacks=[mt.LambdaCallback(on_collect=draw)])
    run.train(ppo(), [1, 1], plot=False)
    found = EventAccumulator("run").Reload().Images("mine/curve")
    assert [(image.step, image.width, image.height) for image in found] == [(3, 300, 200), (6, 300, 200)]
    assert found[0].encoded_image_string.startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("event", "message"),
    [("on_train_end", "log_picture: .*only while training runs"), ("on_picture", "log_picture: on_picture"),
     ("on_log", "log_picture: on_log")],
)  # fmt: skip
def test_events_that_refuse_pictures(event, message):
    functions: dict[str, Any] = {event: lambda moment: moment.log_picture("x", Figure())}
    functions["on_train_start"] = lambda moment: (moment.log_picture("x", Figure()), moment.log("x", 1))
    with pytest.raises(ConfigError, match=message):
        trainer(steps_per_train=3, callbacks=[mt.LambdaCallback(**functions)]).train(ppo(), [1, 1], plot=False)


@pytest.mark.parametrize(("name", "value"), [("x", "curve.png"), ("test/metric", Figure()), ("", Figure())])
def test_wrong_pictures_and_names_are_refused(name, value):
    events: list[Any] = []
    scalars = Scalars(History(["player_0"], "."), ["player_0"], lambda event, **data: events.append(event))
    with pytest.raises(ConfigError, match="log_picture: "):
        scalars.log_picture(name, value)
    assert not events


def test_resumed_run_keeps_logged_values():
    """Resumed from env step 3, between the tests at 0 and 9."""
    whole = logged("half", lambda moment: moment.env_steps / 2, run_dir="whole")
    logs = mt.LambdaCallback(on_step=lambda moment: moment.log("half", moment.env_steps / 2))
    trainer(steps_per_train=6, test_freq=3, callbacks=[logs, mt.Checkpoint(every_steps=3, keep=9)]).train(
        ppo(), [1, 1], plot=False
    )
    again = trainer(steps_per_train=12, test_freq=3, run_dir=None, callbacks=[logs]).train(
        ppo(), [1, 1], plot=False, resume="run/checkpoints/3"
    )
    assert tables(again) == tables(whole)
    assert scalars("run")["user/half"] == scalars("whole")["user/half"]
