from typing import Any

import pytest

import marltrain as mt
from marltrain.core.errors import ConfigError
from marltrain.trainer.events.callbacks import EVENTS, CallbackList, Moment


def moment(event):
    trainer: Any = None
    return Moment(trainer, event, 1, 2, 3, 4, 5.0)


def test_functions_are_called_only_at_their_events():
    heard: list[str] = []
    result = mt.LambdaCallback(on_step=lambda m: heard.append(m.event), on_test_end=lambda m: heard.append("test"))
    callbacks = CallbackList([result, mt.LambdaCallback(on_step=None)])
    assert {event for event in EVENTS if callbacks.listens(event)} == {"on_step", "on_test_end"}
    callbacks.call(moment("on_step"))
    callbacks.call(moment("on_test_end"))
    assert heard == ["on_step", "test"]


def test_only_watches_argument():
    calls: dict[str, Any] = {"on_update_end": lambda moment: None}
    assert CallbackList([mt.LambdaCallback(**calls)]).interfering(EVENTS) == "LambdaCallback.on_update_end"
    assert CallbackList([mt.LambdaCallback(only_watches=True, **calls)]).interfering(EVENTS) == ""


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"on_updat_end": print}, r"no event is called 'on_updat_end'\. Did you mean 'on_update_end'\? There are on_t"),
        ({"on_epoch_end": None}, "no event is called 'on_epoch_end'"),
        ({"on_step": 3}, "LambdaCallback: on_step must be a function or None, got 3"),
        ({"on_step": lambda: 0}, r"LambdaCallback: on_step is called as LambdaCallback: on_step\(moment\), but what"),
        ({"only_watches": "no"}, "only_watches must be True or False, got 'no'"),
    ],
)
def test_wrong_names_and_functions_are_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        mt.LambdaCallback(**given)
