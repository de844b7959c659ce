"""The function arguments of the trainer: train_fn, test_fn, save_best_fn, save_last_fn and stop_fn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from marltrain.core.errors import ConfigError, shown
from marltrain.core.settings import check_function, python_number
from marltrain.storage.state import State


@dataclass
class Periodic:
    """Calls `function(episodes, steps)` at the start and when the episodes reach or pass a multiple of `every`.

    Passing several multiples at once causes one call.
    name: the trainer's argument, for messages.  passed: number of multiples passed so far.
    """

    name: str
    function: Callable[[int, int], Any] | None
    every: int

    def __post_init__(self) -> None:
        """Raise ConfigError unless the function is None or accepts (episodes, steps)."""
        self.passed = 0
        if self.function is not None:
            check_function(self.name, self.function, "episodes", "steps")

    def start(self) -> None:
        """Call the function with (0, 0) and start counting."""
        self.passed = 0
        _call(self.name, self.function, 0, 0)

    def continue_from(self, episodes: int) -> None:
        """Continue counting from a number of episodes, without a call."""
        self.passed = episodes // self.every

    def call_if_due(self, episodes: int, steps: int) -> None:
        """Call the function if `episodes` has reached a new multiple of `every`."""
        if episodes // self.every > self.passed:
            self.passed = episodes // self.every
            _call(self.name, self.function, episodes, steps)


@dataclass(frozen=True)
class FunctionHooks:
    """Function arguments of the trainer: train_fn, test_fn, save_best_fn, save_last_fn and stop_fn."""

    train: Periodic
    test: Periodic
    save_best_fn: Callable[[int], Any] | None = None
    save_last_fn: Callable[[], Any] | None = None
    stop_fn: Callable[[float, int], bool] | None = None

    def state(self) -> State:
        """Return the counts of the periodic functions."""
        return State({"train": self.train.passed, "test": self.test.passed})

    def restore(self, state: State) -> None:
        """Restore the counts that `state` returned."""
        self.train.passed, self.test.passed = state.count("train"), state.count("test")

    def __post_init__(self) -> None:
        """Raise ConfigError unless each is None or a function that accepts its arguments."""
        for name, *arguments in (("save_best_fn", "episode"), ("save_last_fn",), ("stop_fn", "metric", "episode")):
            if (function := getattr(self, name)) is not None:
                check_function(name, function, *arguments)

    def save_best(self, episode: int) -> None:
        """Call `save_best_fn(episode)`."""
        _call("save_best_fn", self.save_best_fn, episode)

    def save_last(self) -> None:
        """Call `save_last_fn()`."""
        _call("save_last_fn", self.save_last_fn)

    def stops(self, metric: float, episode: int) -> bool:
        """Return the result of `stop_fn(metric, episode)`: whether training ends; None counts as False.

        Raises ConfigError for other results.
        """
        answer = python_number(_call("stop_fn", self.stop_fn, metric, episode))
        if answer is not None and not isinstance(answer, bool):
            raise ConfigError(f"stop_fn must return True or False, it returned {shown(answer)}")
        return bool(answer)


def _call(name: str, function: Callable[..., Any] | None, *arguments: Any) -> Any:
    """Call a function if it is given; an exception gains a note that names the call."""
    if function is None:
        return None
    try:
        return function(*arguments)
    except BaseException as error:
        error.add_note(f"in {name}({', '.join(map(repr, arguments))})")
        raise
