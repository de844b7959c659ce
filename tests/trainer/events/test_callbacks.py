from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from marltrain.core.errors import ConfigError, SaveError
from marltrain.trainer.events.callbacks import EVENTS, Callback, CallbackList, Moment


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


def test_events_match_the_methods_of_callback():
    assert set(EVENTS) == {name for name in vars(Callback) if name.startswith("on_")}


def test_only_overridden_methods_are_called():
    callbacks = CallbackList([Callback(), Steps("a", [])])
    assert {event for event in EVENTS if callbacks.listens(event)} == {"on_step"}
    assert not any(CallbackList([]).listens(event) for event in EVENTS)


def test_callback_without_only_watches_is_named():
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


def test_exception_names_callback_and_event_and_skips_later_callbacks():
    log: list[Any] = []
    with pytest.raises(ValueError, match="no") as raised:
        CallbackList([Failing("f", log), Steps("a", log)]).call(moment("on_step"))
    assert raised.value.__notes__ == ["in Failing.on_step, at env step 2"]
    assert log == []


def test_on_train_end_is_called_for_all_callbacks():
    log: list[Any] = []
    with pytest.raises(ValueError, match="first"):
        CallbackList([Failing("first", log), Failing("second", log)]).call(moment("on_train_end"))
    assert log == [("first", "end"), ("second", "end")]


def test_moment_is_frozen_and_can_stop_training():
    said: list[str] = []
    now = moment("on_step", SimpleNamespace(stop=said.append))
    now.stop("enough")
    assert said == ["enough"]
    with pytest.raises(AttributeError):
        now.env_steps = 3


def test_function_is_not_a_callback():
    with pytest.raises(ConfigError, match=r"subclasses of marltrain\.Callback"):
        CallbackList([print])  # type: ignore[list-item]


def test_error_for_a_misspelt_event_suggests_the_nearest():
    class Misspelt(Callback):
        def on_updat_end(self, moment):
            raise AssertionError

    with pytest.raises(ConfigError, match=r"Misspelt.on_updat_end is never called: .* Did you mean 'on_update_end'\?"):
        CallbackList([Misspelt()])


def test_callback_method_must_accept_a_moment():
    class Bare(Callback):
        def on_step(self):  # type: ignore[override]
            raise AssertionError

    with pytest.raises(ConfigError, match=r"Bare.on_step is called as callbacks: Bare.on_step\(moment\), but"):
        CallbackList([Bare()])


@pytest.mark.parametrize("callbacks", ["progress", Callback(), 3, None, np.array(0.0)])
def test_callbacks_must_be_a_list(callbacks):
    with pytest.raises(ConfigError, match="callbacks must be a list of callbacks, got"):
        CallbackList(callbacks)


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
        ({"array": "0", "b": [{"array": 1}]}, {"array": "0", "b": [{"array": 1}]}),
        ({"a": np.ones(2), "b": [np.array([True])]}, {"a": np.ones(2), "b": [np.array([True])]}),
    ],
)
def test_state_of_a_callback_is_restored(kept, found):
    """The state is written as JSON; values that look like an encoded value are unchanged."""
    again = Keeping()
    CallbackList([again]).restore(CallbackList([Keeping(kept)]).state())
    assert repr(again.kept) == repr(found)  # types too


def test_arrays_of_a_state_are_copies_of_any_dtype_and_shape():
    callback, again = Keeping({"a": [np.zeros((2, 3), np.float32)], "b": np.array(7, np.uint8)}), Keeping()
    state = CallbackList([Keeping({"first": np.arange(3)}), callback]).state()
    callback.kept["a"][0] += 1
    CallbackList([Keeping(), again]).restore(state)
    assert again.kept["a"][0].dtype == np.float32 and again.kept["b"].dtype == np.uint8
    np.testing.assert_array_equal(again.kept["a"][0], np.zeros((2, 3)))


def test_a_state_without_its_array_is_refused():
    state = CallbackList([Keeping({"a": np.zeros(1)})]).state()
    state.arrays.clear()
    with pytest.raises(SaveError, match="0 is missing"):
        CallbackList([Keeping()]).restore(state)


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        ({"a": [{3: 1}]}, r"its value\['a'\]\[0\] has the key 3, and keys must be text"),
        ({"a": np.array(["text"])}, r"its value\['a'\] is a array of <U4"),
        ({"a": np.zeros(1, np.longdouble)}, r"its value\['a'\] is a array of float128"),
        ({"a": np.array([None])}, r"its value\['a'\] is a array of object"),
        ({"a": {"b": {1, 2}}}, r"its value\['a'\]\['b'\] is a set"),
        ({"a": np.longdouble(1)}, r"its value\['a'\] is a longdouble"),
        ({"a": b"x"}, r"its value\['a'\] is a bytes"),
        (object(), r"its value is a object"),
    ],
)
def test_state_that_cannot_be_restored_is_refused(kept, said):
    with pytest.raises(SaveError, match=rf"^Keeping\.state_dict\(\) must return JSON values and arrays: {said}"):
        CallbackList([Callback(), Keeping(kept)]).state()


def test_a_method_sync_that_takes_arguments_is_refused():
    class Own(Callback):
        def sync(self, where):  # type: ignore[override]
            pass

    with pytest.raises(ConfigError, match=r"callbacks: Own.sync is called as callbacks: Own.sync\(\)"):
        CallbackList([Own()])
