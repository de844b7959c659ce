from typing import Any

import numpy as np
import pytest

from marltrain.core.errors import ConfigError
from marltrain.trainer.events.hooks import FunctionHooks, Periodic


def test_periodic_function_is_called_at_the_start_and_at_multiples():
    calls: list[Any] = []
    paced = Periodic("train_fn", lambda episodes, steps: calls.append((episodes, steps)), 3)
    for _ in range(2):  # a second start resets the count
        paced.start()
        for episodes, steps in [(1, 10), (2, 20), (3, 30), (3, 40), (5, 50), (10, 60), (11, 70), (12, 80)]:
            paced.call_if_due(episodes, steps)
        assert calls == [(0, 0), (3, 30), (10, 60), (12, 80)]  # 6 and 9 were passed together
        calls.clear()


def hooks(**functions):
    return FunctionHooks(Periodic("train_fn", None, 1), Periodic("test_fn", None, 1), **functions)


def test_missing_hooks_do_nothing():
    none = hooks()
    none.train.start()
    none.train.call_if_due(5, 5)
    none.save_best(1)
    none.save_last()
    assert none.stops(1.0, 1) is False


def test_hooks_receive_their_arguments():
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
def test_results_of_stop_fn(answer, stops):
    assert hooks(stop_fn=lambda metric, episode: answer).stops(1.0, 2) is stops


@pytest.mark.parametrize("answer", [np.zeros(3), np.array(True), "yes", 0.5, 1, []])
def test_invalid_result_of_stop_fn_is_an_error(answer):
    with pytest.raises(ConfigError, match="stop_fn must return True or False, it returned"):
        hooks(stop_fn=lambda metric, episode: answer).stops(1.0, 2)


@pytest.mark.parametrize(
    ("name", "function"),
    [("save_best_fn", lambda: 0), ("save_last_fn", lambda episode: 0), ("stop_fn", lambda metric: 0)],
)
def test_hooks_with_wrong_signatures_are_refused(name, function):
    with pytest.raises(ConfigError, match=rf"{name} is called as {name}\("):
        hooks(**{name: function})
    with pytest.raises(
        ConfigError, match=r"train_fn is called as train_fn\(episodes, steps\), but what was given takes"
    ):
        Periodic("train_fn", lambda episodes: 0, 1)  # type: ignore[misc, arg-type]


@pytest.mark.parametrize("name", ["save_best_fn", "save_last_fn", "stop_fn"])
def test_hook_must_be_a_function(name):
    with pytest.raises(ConfigError, match=f"{name} must be a function or None, got 3"):
        hooks(**{name: 3})
    with pytest.raises(ConfigError, match="train_fn must be"):
        Periodic("train_fn", 3, 1)  # type: ignore[arg-type]
