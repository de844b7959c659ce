from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from marltrain.errors import ConfigError, SaveError
from marltrain.trainer.callbacks import EVENTS, Callback, CallbackList, FunctionHooks, Moment, Periodic


def moment(event, trainer: Any = None, **data):
    return Moment(trainer, event, 1, 2, 3, 4, 5.0, data)


class Steps(Callback):
    def __init__(self, name, log):
        self.name, self.log = name, log

    def on_step(self, moment):
        self.log.append((self.name, moment.env_steps))


class Failing(Steps):
    def on_step(self, moment):
        raise ValueError("no")

    def on_train_end(self, moment):
        self.log.append((self.name, "end"))
        raise ValueError(self.name)


def test_events_are_the_methods_of_a_callback():
    assert set(EVENTS) == {name for name in vars(Callback) if name.startswith("on_")}


def test_only_what_is_overridden_is_listened_to():
    callbacks = CallbackList([Callback(), Steps("a", [])])
    assert {event for event in EVENTS if callbacks.listens(event)} == {"on_step"}
    assert not any(CallbackList([]).listens(event) for event in EVENTS)


def test_who_may_change_something_at_an_event_is_named():
    class Watching(Steps):
        only_watches = True

    watching, meddling = Watching("w", []), Steps("s", [])
    assert CallbackList([watching]).interfering(EVENTS) == ""
    assert CallbackList([watching, meddling]).interfering(["on_collect", "on_step"]) == "Steps.on_step"
    assert CallbackList([watching, meddling]).interfering(["on_collect"]) == ""


def test_callbacks_are_called_in_the_given_order():
    log: list[Any] = []
    CallbackList([Steps("b", log), Steps("a", log)]).call(moment("on_step"))
    assert log == [("b", 2), ("a", 2)]


def test_an_exception_names_callback_and_event_and_stops_the_others():
    log: list[Any] = []
    with pytest.raises(ValueError, match="no") as raised:
        CallbackList([Failing("f", log), Steps("a", log)]).call(moment("on_step"))
    assert raised.value.__notes__ == ["in Failing.on_step, at env step 2"]
    assert log == []


def test_the_end_reaches_everyone():
    log: list[Any] = []
    with pytest.raises(ValueError, match="first"):
        CallbackList([Failing("first", log), Failing("second", log)]).call(moment("on_train_end"))
    assert log == [("first", "end"), ("second", "end")]


def test_a_moment_stops_training_and_cannot_be_changed():
    said: list[str] = []
    now = moment("on_step", SimpleNamespace(stop=said.append))
    now.stop("enough")
    assert said == ["enough"]
    with pytest.raises(AttributeError):
        now.env_steps = 3


def test_a_function_is_no_callback():
    with pytest.raises(ConfigError, match=r"subclasses of marltrain\.Callback"):
        CallbackList([print])  # type: ignore[list-item]


def test_a_misspelt_event_is_told_with_the_nearest_one():
    class Misspelt(Callback):
        def on_updat_end(self, moment):
            raise AssertionError

    with pytest.raises(ConfigError, match=r"Misspelt.on_updat_end is never called: .* Did you mean 'on_update_end'\?"):
        CallbackList([Misspelt()])


def test_an_event_must_take_a_moment():
    class Bare(Callback):
        def on_step(self):  # type: ignore[override]
            raise AssertionError

    with pytest.raises(ConfigError, match=r"Bare.on_step is called as callbacks: Bare.on_step\(moment\), but"):
        CallbackList([Bare()])


@pytest.mark.parametrize("callbacks", ["progress", Callback(), 3, None, np.array(0.0)])
def test_callbacks_are_a_list(callbacks):
    with pytest.raises(ConfigError, match="callbacks must be a list of callbacks, got"):
        CallbackList(callbacks)


def test_a_paced_function_is_called_at_the_start_and_by_multiples():
    calls: list[Any] = []
    paced = Periodic("train_fn", lambda episodes, steps: calls.append((episodes, steps)), 3)
    for _ in range(2):  # starting again counts anew
        paced.start()
        for episodes, steps in [(1, 10), (2, 20), (3, 30), (3, 40), (5, 50), (10, 60), (11, 70), (12, 80)]:
            paced.at(episodes, steps)
        assert calls == [(0, 0), (3, 30), (10, 60), (12, 80)]  # 6 and 9 were passed together
        calls.clear()


def hooks(**functions):
    return FunctionHooks(Periodic("train_fn", None, 1), Periodic("test_fn", None, 1), **functions)


def test_functions_that_are_not_given_do_nothing():
    none = hooks()
    none.train.start()
    none.train.at(5, 5)
    none.save_best(1)
    none.save_last()
    assert none.stops(1.0, 1) is False


def test_functions_are_given_their_arguments():
    calls: list[Any] = []
    given = hooks(
        save_best_fn=lambda episode: calls.append(episode),
        save_last_fn=lambda: calls.append("last"),
        stop_fn=lambda metric, episode: metric > episode,
    )
    given.save_best(7)
    given.save_last()
    assert calls == [7, "last"]
    assert given.stops(3.0, 2) is True
    assert given.stops(1.0, 2) is False


def test_an_exception_names_the_function():
    def failing(metric, episode):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no") as raised:
        hooks(stop_fn=failing).stops(1.5, 2)
    assert raised.value.__notes__ == ["in stop_fn(1.5, 2)"]


@pytest.mark.parametrize(
    ("answer", "stops"), [(True, True), (np.True_, True), (False, False), (np.False_, False), (None, False)]
)
def test_what_says_that_training_is_over(answer, stops):
    assert hooks(stop_fn=lambda metric, episode: answer).stops(1.0, 2) is stops


@pytest.mark.parametrize("answer", [np.zeros(3), np.array(True), "yes", 0.5, 1, []])
def test_what_says_neither_is_an_error(answer):
    with pytest.raises(ConfigError, match="stop_fn must return True or False, it returned"):
        hooks(stop_fn=lambda metric, episode: answer).stops(1.0, 2)


@pytest.mark.parametrize(
    ("name", "function"),
    [("save_best_fn", lambda: 0), ("save_last_fn", lambda episode: 0), ("stop_fn", lambda metric: 0)],
)
def test_functions_of_other_arguments_are_refused_when_given(name, function):
    with pytest.raises(ConfigError, match=rf"{name} is called as {name}\("):
        hooks(**{name: function})
    with pytest.raises(
        ConfigError, match=r"train_fn is called as train_fn\(episodes, steps\), but what was given takes"
    ):
        Periodic("train_fn", lambda episodes: 0, 1)  # type: ignore[misc, arg-type]


@pytest.mark.parametrize("name", ["save_best_fn", "save_last_fn", "stop_fn"])
def test_what_is_no_function_is_refused(name):
    with pytest.raises(ConfigError, match=f"{name} must be a function or None, got 3"):
        hooks(**{name: 3})
    with pytest.raises(ConfigError, match="train_fn must be"):
        Periodic("train_fn", 3, 1)  # type: ignore[arg-type]


class Keeping(Callback):
    def __init__(self, kept: Any = None):
        self.kept = kept

    def state_dict(self):
        return self.kept

    def load_state_dict(self, state):
        self.kept = state


@pytest.mark.parametrize(
    ("kept", "found"),
    [
        ({"a": [1, 2.5, None, True, "ü"], "b": {}}, {"a": [1, 2.5, None, True, "ü"], "b": {}}),
        ({"a": (1, (2,))}, {"a": [1, [2]]}),
        ({"a": float("-inf"), "b": [float("inf")]}, {"a": float("-inf"), "b": [float("inf")]}),
        ({"a": np.int64(3), "b": np.float32(0.5), "c": np.bool_(True)}, {"a": 3, "b": 0.5, "c": True}),
        ({"float": "nan"}, {"float": "nan"}),
        ({"mapping": {"float": "nan"}}, {"mapping": {"float": "nan"}}),
        ({"mapping": 1}, {"mapping": 1}),
    ],
)
def test_what_a_callback_keeps_comes_back(kept, found):
    """Through JSON; what looks like a mark of ours stays what it is."""
    again = Keeping()
    CallbackList([again]).restore(CallbackList([Keeping(kept)]).state())
    assert again.kept == found
    assert repr(again.kept) == repr(found)  # types too


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        ({"a": [{3: 1}]}, r"its value\['a'\]\[0\] has the key 3, and keys must be text"),
        ({"a": np.zeros(1)}, r"its value\['a'\] is a ndarray"),
        ({"a": {"b": {1, 2}}}, r"its value\['a'\]\['b'\] is a set"),
        ({"a": np.longdouble(1)}, r"its value\['a'\] is a longdouble"),
        ({"a": b"x"}, r"its value\['a'\] is a bytes"),
        (object(), r"its value is a object"),
    ],
)
def test_what_would_not_come_back_is_refused(kept, said):
    with pytest.raises(SaveError, match=rf"^Keeping\.state_dict\(\) must return JSON values: {said}"):
        CallbackList([Callback(), Keeping(kept)]).state()
