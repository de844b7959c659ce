"""Callbacks and the function arguments of the trainer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from marltrain.config import check_function, python_number
from marltrain.errors import ConfigError, SaveError, did_you_mean, shown, spoken
from marltrain.files import State

if TYPE_CHECKING:
    from marltrain.trainer.decentralized import DecentralizedTrainer

EVENTS = (
    "on_train_start",
    "on_episode_start",
    "on_step",
    "on_episode_end",
    "on_collect",
    "on_update_start",
    "on_update_end",
    "on_test_start",
    "on_test_step",
    "on_test_end",
    "on_log",
    "on_checkpoint",
    "on_train_end",
)


@dataclass(frozen=True)
class Moment:
    """What a callback is given: when in the run it is, and what happened.

    episodes: finished training episodes.  env_steps, updates, gradient_steps: taken so far.
    seconds: since training started.
    data, by event:
      on_train_start   "agents": list, "line_up": list: who plays the tests
      on_episode_start "env": int, "episode": int: the environment's number, and its episode's
      on_step          "step": Step, the batch step just received (views: copy what you keep)
      on_episode_end   "env": int, "episode": int, "returns": [P] float64, "length": env steps, "names": players' names
      on_collect       "steps": int, batch steps made at once
      on_update_start  nothing
      on_update_end    "metrics": {agent: {metric: float}}, "rounds": int, how many rounds these are the means of
      on_test_start    "episodes": int, episodes of the test
      on_test_step     "finished": int, episodes of the test so far, "episodes": int, "steps": int, its env steps so far
      on_test_end      "metric": float, "result": TestResult, "best": bool
      on_log           "tag": str, "value": float
      on_checkpoint    "path": Path
      on_train_end     "reason": str
    """

    trainer: DecentralizedTrainer
    event: str
    episodes: int
    env_steps: int
    updates: int
    gradient_steps: int
    seconds: float
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def run_dir(self) -> Path:
        """The run's folder."""
        return self.trainer.folder

    def stop(self, reason: str) -> None:
        """End training after the current batch step; the reason is kept with the result."""
        self.trainer.stop(reason)

    def log(self, name: str, value: float) -> None:
        """Write down a number of your own; any number of times, under any number of names.

        name: text.  value: a finite number, or an array or tensor that holds one.
        The table of tests gets a column "user/<name>", or `name` itself if it contains a slash: the mean of the values
        logged since the row before, `on_test_end` of that test included. TensorBoard gets every value, under the same
        name, at the env step of now.
        Raises ConfigError for a wrong name or value, for a name that the run writes itself, in `on_log` and in
        `on_train_end`, when the tables are written already.
        """
        if self.event == "on_log":
            raise ConfigError("log: on_log is called by log, and cannot log anything itself")
        self.trainer.log(name, value)


class Callback:
    """Base of everything that happens in time. Override the events you want; the others cost nothing.

    Return values are ignored. `on_train_end` is called even after an error, if `on_train_start` was.

    only_watches: true in a class that changes nothing that agents act or learn by. `double_buffer` need not wait for
    it, and of rounds of updates that compiled code makes at once it is told at once.
    """

    only_watches: ClassVar[bool] = False

    def on_train_start(self, moment: Moment) -> None:
        """Before the first test."""

    def on_episode_start(self, moment: Moment) -> None:
        """When a training episode begins: at the start of training, and in a batch step after all `on_episode_end`."""

    def on_step(self, moment: Moment) -> None:
        """After every batch step of training. Whoever listens has each made by itself."""

    def on_episode_end(self, moment: Moment) -> None:
        """After every finished training episode."""

    def on_collect(self, moment: Moment) -> None:
        """After batch steps of training: one, or several that were made at once."""

    def on_update_start(self, moment: Moment) -> None:
        """Before every round of updates; with `on_update_end` after several at once where all who listen only watch."""

    def on_update_end(self, moment: Moment) -> None:
        """After every round of updates, or after several at once where all who listen only watch."""

    def on_test_start(self, moment: Moment) -> None:
        """Before every test."""

    def on_test_step(self, moment: Moment) -> None:
        """After every batch step of a test."""

    def on_test_end(self, moment: Moment) -> None:
        """After every test, before the best agents are saved."""

    def on_log(self, moment: Moment) -> None:
        """After every `Moment.log`."""

    def on_checkpoint(self, moment: Moment) -> None:
        """After a checkpoint was written."""

    def on_train_end(self, moment: Moment) -> None:
        """At the end of training, for whatever reason."""

    def state_dict(self) -> dict[str, Any]:
        """Return what must be saved to go on where the run stopped, as JSON values.

        Tuples come back as lists and numpy's numbers as Python's; keys are text.
        """
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned; called after `on_train_start` of a run that is resumed."""


class CallbackList:
    """The callbacks of a run, called in the given order, each for the events that it overrides."""

    def __init__(self, callbacks: Iterable[Callback]) -> None:
        """Find who listens to what. Raises ConfigError for what is no Callback, or listens to what never comes."""
        if isinstance(callbacks, str):
            raise ConfigError(f"callbacks must be a list of callbacks, got {shown(callbacks)}")
        try:
            self.callbacks = tuple(callbacks)
        except TypeError as error:
            raise ConfigError(f"callbacks must be a list of callbacks, got {shown(callbacks)}") from error
        for callback in self.callbacks:
            _check_callback(callback)
        self._listeners = {event: tuple(c for c in self.callbacks if _overrides(c, event)) for event in EVENTS}

    def listens(self, event: str) -> bool:
        """Return whether any callback overrides `event`: if none does, no Moment need be made."""
        return bool(self._listeners[event])

    def interfering(self, events: Iterable[str]) -> str:
        """Return the name and event of a callback that may change what agents act by at one of these; "" for none."""
        heard = ((c, event) for event in events for c in self._listeners[event] if not c.only_watches)
        return next((f"{type(callback).__name__}.{event}" for callback, event in heard), "")

    def call(self, moment: Moment) -> None:
        """Give the moment to all who listen to its event. An exception gains a note naming the callback.

        The end of training reaches every callback even where one raises: each closes what it opened.
        """
        errors: list[BaseException] = []
        for callback in self._listeners[moment.event]:
            try:
                getattr(callback, moment.event)(moment)
            except BaseException as error:
                error.add_note(f"in {type(callback).__name__}.{moment.event}, at env step {moment.env_steps}")
                if moment.event != "on_train_end":
                    raise
                errors.append(error)
        if errors:
            raise errors[0]

    def state(self) -> State:
        """Return what each callback must keep; raises SaveError, naming it and the key, for what is not JSON values."""
        kept = []
        for callback in self.callbacks:
            name = type(callback).__name__
            what = f"{name}.state_dict() must return JSON values: its value"
            kept.append({"type": name, "state": _kept(callback.state_dict(), what)})
        return State({"all": kept})

    def restore(self, state: State) -> None:
        """Give each callback what one of its class, in the same place among these, returned.

        Raises SaveError, naming the callback, where it cannot take that.
        """
        kept: dict[str, list[Any]] = {}
        for told in state.values("all", dict):
            one = State(told, name=state.place("all"))
            kept.setdefault(one.value("type", str), []).append(told.get("state"))
        for callback in self.callbacks:
            name = type(callback).__name__
            if not (held := kept.get(name)):
                continue
            try:
                callback.load_state_dict(_given_back(held.pop(0)))
            except Exception as error:
                raise SaveError(f"{name}.load_state_dict: {spoken(error)}") from error


def _overrides(callback: Callback, event: str) -> bool:
    """Whether a callback's method is another than the one that does nothing; its own attributes count, too."""
    return getattr(getattr(callback, event), "__func__", None) is not getattr(Callback, event)


def _check_callback(callback: Any) -> None:
    """Raise ConfigError unless it is a Callback whose "on_..." methods are events and take a Moment."""
    if not isinstance(callback, Callback):
        raise ConfigError(f"callbacks must hold objects of subclasses of marltrain.Callback, got {shown(callback)}")
    name = type(callback).__name__
    for method in dir(type(callback)):
        if method.startswith("on_") and method not in EVENTS:
            raise ConfigError(
                f"callbacks: {name}.{method} is never called: no event has this name.{did_you_mean(method, EVENTS)} "
                f"There are {', '.join(EVENTS)}; a method of your own has another beginning"
            )
    for event in EVENTS:
        check_function(f"callbacks: {name}.{event}", getattr(callback, event), "moment")


_TAGS = ({"float"}, {"mapping"})


def _kept(value: Any, where: str) -> Any:
    """Return the JSON values that `_given_back` turns back; raises SaveError for what would not come back equal.

    What JSON has no number for, nan and infinities, is put into words.
    """
    if isinstance(value, np.bool_ | np.integer | np.floating):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, list | tuple):
        return [_kept(inner, f"{where}[{i}]") for i, inner in enumerate(value)]
    if not isinstance(value, Mapping):
        raise SaveError(f"{where} is a {type(value).__name__}. Give numbers, text, None, or lists and dicts of these")
    for key in value:
        if not isinstance(key, str):
            raise SaveError(f"{where} has the key {key!r}, and keys must be text")
    made = {key: _kept(inner, f"{where}[{key!r}]") for key, inner in value.items()}
    return {"mapping": made} if set(made) in _TAGS else made


def _given_back(value: Any) -> Any:
    """Undo `_kept`."""
    if isinstance(value, list):
        return [_given_back(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"float"}:
        return float(value["float"])
    inner = value["mapping"] if set(value) == {"mapping"} else value
    return {key: _given_back(held) for key, held in inner.items()}


@dataclass
class Periodic:
    """Calls `function(episodes, steps)` at the start, and whenever the episodes reach or pass a multiple of `every`.

    Passing several multiples at once is one call. `name` is the trainer's argument, for messages; `passed` counts the
    multiples so far.
    """

    name: str
    function: Callable[[int, int], Any] | None
    every: int

    def __post_init__(self) -> None:
        """Raise ConfigError unless the function is None, or takes (episodes, steps)."""
        self.passed = 0
        if self.function is not None:
            check_function(self.name, self.function, "episodes", "steps")

    def start(self) -> None:
        """Call with (0, 0) and count from there."""
        self.passed = 0
        _call(self.name, self.function, 0, 0)

    def go_on(self, episodes: int) -> None:
        """Count on from so many episodes."""
        self.passed = episodes // self.every

    def at(self, episodes: int, steps: int) -> None:
        """Call if `episodes` reached a multiple that the last call had not."""
        if episodes // self.every > self.passed:
            self.passed = episodes // self.every
            _call(self.name, self.function, episodes, steps)


@dataclass(frozen=True)
class FunctionHooks:
    """The functions given to the trainer by name; the loop calls these methods where the events fall."""

    train: Periodic
    test: Periodic
    save_best_fn: Callable[[int], Any] | None = None
    save_last_fn: Callable[[], Any] | None = None
    stop_fn: Callable[[float, int], bool] | None = None

    def state(self) -> State:
        """Return how far the paced ones have come."""
        return State({"train": self.train.passed, "test": self.test.passed})

    def restore(self, state: State) -> None:
        """Go on from there."""
        self.train.passed, self.test.passed = state.count("train"), state.count("test")

    def __post_init__(self) -> None:
        """Raise ConfigError unless each is None, or a function that takes what it is given."""
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
        """Return whether `stop_fn(metric, episode)` says that training is over; None says that it is not.

        Raises ConfigError for any other answer than these.
        """
        answer = python_number(_call("stop_fn", self.stop_fn, metric, episode))
        if answer is not None and not isinstance(answer, bool):
            raise ConfigError(f"stop_fn must return True or False, it returned {shown(answer)}")
        return bool(answer)


def _call(name: str, function: Callable[..., Any] | None, *arguments: Any) -> Any:
    if function is None:
        return None
    try:
        return function(*arguments)
    except BaseException as error:
        error.add_note(f"in {name}({', '.join(map(repr, arguments))})")
        raise
