"""What happens besides collecting and learning: callbacks, and the functions that a trainer is given."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marltrain.errors import ConfigError, SaveError
from marltrain.files import State

if TYPE_CHECKING:
    from marltrain.trainer.decentralized import DecentralizedTrainer

EVENTS = (
    "on_train_start",
    "on_step",
    "on_episode_end",
    "on_update_end",
    "on_test_end",
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
      on_step          "step": Step, the batch step just received (views: copy what you keep)
      on_episode_end   "env": int, "episode": int, "returns": [P] float64, "length": env steps, "names": players' names
      on_update_end    "metrics": {agent: {metric: float}}
      on_test_end      "metric": float, "result": TestResult, "best": bool
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


class Callback:
    """Base of everything that happens in time. Override the events you want; the others cost nothing.

    Return values are ignored. `on_train_end` is called even after an error, if `on_train_start` was.
    """

    def on_train_start(self, moment: Moment) -> None:
        """Before the first test."""

    def on_step(self, moment: Moment) -> None:
        """After every batch step of training."""

    def on_episode_end(self, moment: Moment) -> None:
        """After every finished training episode."""

    def on_update_end(self, moment: Moment) -> None:
        """After every round of updates."""

    def on_test_end(self, moment: Moment) -> None:
        """After every test, before the best agents are saved."""

    def on_checkpoint(self, moment: Moment) -> None:
        """After a checkpoint was written."""

    def on_train_end(self, moment: Moment) -> None:
        """At the end of training, for whatever reason."""

    def state_dict(self) -> dict[str, Any]:
        """Return what must be saved to go on where the run stopped, as JSON values."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned; called after `on_train_start` of a run that is resumed."""


class CallbackList:
    """The callbacks of a run, called in the given order, each for the events that it overrides."""

    def __init__(self, callbacks: Iterable[Callback]) -> None:
        """Find who listens to what. Raises ConfigError for what is no Callback."""
        if not isinstance(callbacks, Iterable):
            raise ConfigError(f"callbacks must be a list of callbacks, got {callbacks!r}")
        self.callbacks = tuple(callbacks)
        for callback in self.callbacks:
            if not isinstance(callback, Callback):
                raise ConfigError(f"callbacks must hold objects of subclasses of marltrain.Callback, got {callback!r}")
        self._listeners = {
            event: tuple(c for c in self.callbacks if getattr(type(c), event) is not getattr(Callback, event))
            for event in EVENTS
        }

    def listens(self, event: str) -> bool:
        """Return whether any callback overrides `event`: if none does, no Moment need be made."""
        return bool(self._listeners[event])

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
        """Return what each callback must keep; raises SaveError, naming it, where that is not JSON values."""
        kept = []
        for callback in self.callbacks:
            told = {"type": type(callback).__name__, "state": _tagged(callback.state_dict())}
            try:
                json.dumps(told)
            except (TypeError, ValueError) as error:
                raise SaveError(f"{told['type']}.state_dict() must return JSON values: {error}") from error
            kept.append(told)
        return State({"all": kept})

    def restore(self, state: State) -> None:
        """Give each callback what one of its class, in the same place among these, returned."""
        kept: dict[str, list[Any]] = {}
        for told in state.info["all"]:
            kept.setdefault(told["type"], []).append(told["state"])
        for callback in self.callbacks:
            held = kept.get(type(callback).__name__)
            if held:
                callback.load_state_dict(_untagged(held.pop(0)))


def _tagged(value: Any) -> Any:
    """Put what JSON has no number for, nan and infinities, into words."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if isinstance(value, Mapping):
        return {key: _tagged(inner) for key, inner in value.items()}
    return [_tagged(inner) for inner in value] if isinstance(value, list | tuple) else value


def _untagged(value: Any) -> Any:
    """Undo `_tagged`."""
    if isinstance(value, dict):
        return float(value["float"]) if set(value) == {"float"} else {k: _untagged(v) for k, v in value.items()}
    return [_untagged(inner) for inner in value] if isinstance(value, list) else value


@dataclass
class Paced:
    """Calls `function(episodes, steps)` at the start, and whenever the episodes reach or pass a multiple of `every`.

    Passing several multiples at once is one call. `name` is the trainer's argument, for messages; `passed` counts the
    multiples so far.
    """

    name: str
    function: Callable[[int, int], Any] | None
    every: int

    def __post_init__(self) -> None:
        """Raise ConfigError unless the function is a function or None."""
        self.passed = 0
        _check_callable(self.name, self.function)

    def start(self) -> None:
        """Call with (0, 0) and count from there."""
        self.passed = 0
        _call(self.name, self.function, 0, 0)

    def at(self, episodes: int, steps: int) -> None:
        """Call if `episodes` reached a multiple that the last call had not."""
        if episodes // self.every > self.passed:
            self.passed = episodes // self.every
            _call(self.name, self.function, episodes, steps)


@dataclass(frozen=True)
class FunctionHooks:
    """The functions given to the trainer by name; the loop calls these methods where the events fall."""

    train: Paced
    test: Paced
    save_best_fn: Callable[[int], Any] | None = None
    save_last_fn: Callable[[], Any] | None = None
    stop_fn: Callable[[float, int], bool] | None = None

    def state(self) -> State:
        """Return how far the paced ones have come."""
        return State({"train": self.train.passed, "test": self.test.passed})

    def restore(self, state: State) -> None:
        """Go on from there."""
        self.train.passed, self.test.passed = state.info["train"], state.info["test"]

    def __post_init__(self) -> None:
        """Raise ConfigError unless each is a function or None."""
        for name in ("save_best_fn", "save_last_fn", "stop_fn"):
            _check_callable(name, getattr(self, name))

    def save_best(self, episode: int) -> None:
        """Call `save_best_fn(episode)`."""
        _call("save_best_fn", self.save_best_fn, episode)

    def save_last(self) -> None:
        """Call `save_last_fn()`."""
        _call("save_last_fn", self.save_last_fn)

    def stops(self, metric: float, episode: int) -> bool:
        """Return whether `stop_fn(metric, episode)` says that training is over."""
        return bool(_call("stop_fn", self.stop_fn, metric, episode))


def _check_callable(name: str, function: Any) -> None:
    if function is not None and not callable(function):
        raise ConfigError(f"{name} must be a function or None, got {function!r}")


def _call(name: str, function: Callable[..., Any] | None, *arguments: Any) -> Any:
    if function is None:
        return None
    try:
        return function(*arguments)
    except BaseException as error:
        error.add_note(f"in {name}({', '.join(map(repr, arguments))})")
        raise
