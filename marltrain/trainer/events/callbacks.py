"""Callbacks, the Moment that they receive, and the events of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from marltrain.core.errors import ConfigError, SaveError, did_you_mean, error_text, shown
from marltrain.core.layout import Array
from marltrain.core.settings import check_function
from marltrain.policies.agents.agent import Agent
from marltrain.storage.json_values import decoded, encoded
from marltrain.storage.state import State
from marltrain.trainer.evaluating.evaluation import TestResult
from marltrain.trainer.events.counters import Clock, Counters, Traffic
from marltrain.trainer.seats.by_player import Agents
from marltrain.trainer.seats.masks import Mask
from marltrain.trainer.settings import TrainerSettings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    "on_picture",
    "on_checkpoint",
    "on_train_end",
)


class Trainer(Protocol):
    """The attributes of a `DecentralizedTrainer` that a callback may use while training runs."""

    @property
    def settings(self) -> TrainerSettings:
        """Settings of the trainer."""

    @property
    def seed(self) -> int:
        """Seed of the run."""

    @property
    def folder(self) -> Path:
        """Folder of the run."""

    @property
    def learning_mask(self) -> tuple[bool, ...]:
        """Seats that learn; may be set."""

    @learning_mask.setter
    def learning_mask(self, values: Mask | None) -> None: ...

    @property
    def exploration_mask(self) -> tuple[bool, ...]:
        """Seats that explore; may be set."""

    @exploration_mask.setter
    def exploration_mask(self, values: Mask | None) -> None: ...

    def stop(self, reason: str) -> None:
        """End training after the current collector call and its updates."""

    def log(self, name: str, value: float) -> None:
        """Log a number."""

    def log_picture(self, name: str, figure: Figure) -> None:
        """Log a picture."""

    def test(self, agents: Agents, episodes: int | None = None, sampled: bool = False) -> TestResult:
        """Play a test."""


@dataclass(frozen=True)
class Moment:
    """Argument of every callback method: the counters of the run and the data of the event.

    episodes: finished training episodes.  env_steps, updates, gradient_steps: number so far.
    seconds: time since training started.  traffic: bytes sent to Ray actors and received from them.
    data, by event:
      on_train_start   "agents": list, "line_up": list, the agents that play the tests
      on_episode_start "env": int, number of the environment, "episode": int, number of its episode
      on_step          "step": Step, the batch step just received (views: copy arrays to keep them)
      on_episode_end   "env": int, "episode": int, "returns": [P] float64, "length": env steps, "names": players' names
      on_collect       "steps": int, batch steps made at once
      on_update_start  empty
      on_update_end    "metrics": {agent: {metric: float}}, means over the rounds, "rounds": int, number of rounds
      on_test_start    "episodes": int, episodes of the test, twice as many with `sampled_tests`
      on_test_step     "finished": int, episodes of the test so far, "episodes": int, "steps": int, its env steps so far
      on_test_end      "metric": float, "result": TestResult, "best": bool,
                       "sampled": TestResult and "sampled_metric": float, of agents that explore; None without
                       `sampled_tests`
      on_log           "tag": str, "value": float
      on_picture       "tag": str, "picture": bytes of a PNG file
      on_checkpoint    "path": Path
      on_train_end     "reason": str, "failed": bool, whether an exception ended the run
    """

    trainer: Trainer
    event: str
    episodes: int
    env_steps: int
    updates: int
    gradient_steps: int
    seconds: float
    data: Mapping[str, Any] = field(default_factory=dict)
    traffic: Traffic = field(default_factory=Traffic)

    @property
    def run_dir(self) -> Path:
        """The run's folder."""
        return self.trainer.folder

    def stop(self, reason: str) -> None:
        """End training after the current collector call and its updates.

        reason: `stop_reason` of the result.
        """
        self.trainer.stop(reason)

    def log(self, name: str, value: float) -> None:
        """Log a custom number, any number of times and under any number of names.

        name: text.  value: a finite number, or an array or tensor that holds one.
        The table of tests gets a column "user/<name>", or `name` itself if it contains a slash. It holds the mean of
        the values logged since the previous row; values logged in `on_test_end` count for that test. TensorBoard gets
        every value under the same name, at the current env step.
        Raises ConfigError for a wrong name or value and for a name that the run writes itself. It also does so in
        `on_log` and `on_picture`, and in `on_train_end`, when the tables are already written.
        """
        if self.event in ("on_log", "on_picture"):
            raise ConfigError(f"log: {self.event} is called for each logged value, and cannot log anything itself")
        self.trainer.log(name, value)

    def log_picture(self, name: str, figure: Figure) -> None:
        """Log a picture, at the current env step, to TensorBoard and to loggers of tracking services.

        name: as for `log`.  figure: of matplotlib; it is cleared.
        Raises ConfigError for a wrong name, for anything but a figure, in `on_log` and `on_picture`, and in
        `on_train_end`, when loggers may be closed.
        """
        if self.event in ("on_log", "on_picture"):
            raise ConfigError(
                f"log_picture: {self.event} is called for each logged value, and cannot log anything itself"
            )
        self.trainer.log_picture(name, figure)


class Callback:
    """Base class of callbacks. Override the methods of the events of interest; the others cost no time.

    Return values are ignored. After an error, `on_train_end` is still called if `on_train_start` was called.

    only_watches: True in a class that does not change how agents act or learn, and does not end training. Then compiled
    code may make several rounds of updates before one call of `on_update_end`, and further batch steps before the calls
    of `on_episode_end` and `on_episode_start`; captured updates on a GPU call `on_update_end` when the next one begins.
    described_by: attributes that hold arguments of the constructor, for `config.json` and files of runs. Those hold a
    dataclass `settings` and `players`, too.
    """

    only_watches: ClassVar[bool] = False
    described_by: ClassVar[tuple[str, ...]] = ()

    def prepare(self, settings: TrainerSettings, players: Mapping[str, Agent]) -> None:
        """Called by `train` before the run has a folder; raise ConfigError here if the callback does not fit the run.

        settings: those of the trainer.  players: the agents that train, by player.
        """

    def on_train_start(self, moment: Moment) -> None:
        """Called before the first test."""

    def on_episode_start(self, moment: Moment) -> None:
        """Called when a training episode begins: at the start of training, or after all `on_episode_end` of a step.

        If all callbacks of episodes set `only_watches`, further batch steps may have been made.
        """

    def on_step(self, moment: Moment) -> None:
        """Called after every batch step of training. A callback that overrides it disables fused batch steps."""

    def on_episode_end(self, moment: Moment) -> None:
        """Called after every finished training episode.

        If all callbacks of episodes set `only_watches`, further batch steps may have been made. The moment has the env
        steps and episodes at the end of the episode, and the updates before these batch steps.
        """

    def on_collect(self, moment: Moment) -> None:
        """Called after one batch step of training, or after several that were made at once."""

    def on_update_start(self, moment: Moment) -> None:
        """Called before every round of updates.

        If all callbacks of updates set `only_watches`, it may be called once for several rounds, after them.
        """

    def on_update_end(self, moment: Moment) -> None:
        """Called after every round of updates.

        If all callbacks of updates set `only_watches`, it may be called once for several rounds.
        """

    def on_test_start(self, moment: Moment) -> None:
        """Called before every test."""

    def on_test_step(self, moment: Moment) -> None:
        """Called after every batch step of a test."""

    def on_test_end(self, moment: Moment) -> None:
        """Called after every test, before the best agents are saved."""

    def on_log(self, moment: Moment) -> None:
        """Called after every `Moment.log`."""

    def on_picture(self, moment: Moment) -> None:
        """Called after every `Moment.log_picture`."""

    def on_checkpoint(self, moment: Moment) -> None:
        """Called after a checkpoint, or the best or last agents, were written."""

    def on_train_end(self, moment: Moment) -> None:
        """Called at the end of training, also after an error or an interrupt."""

    def sync(self) -> None:
        """Bring what was written so far to the disk; called before every checkpoint is written.

        A run that is resumed from the checkpoint does not write it again. Nothing by default.
        """

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the callback for checkpoints: JSON values, and arrays of numbers.

        Keys must be text. Tuples are restored as lists, NumPy numbers as Python numbers.
        """
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned; called after `on_train_start` of a resumed run."""

    def accepts_state(self, state: Mapping[str, Any]) -> bool:
        """Return whether this is a state of this callback; True by default.

        Of the saved states of a class, each of its callbacks gets the first one that it accepts, and no other gets it.
        """
        return True


class CallbackList:
    """Callbacks of a run; each is called, in the given order, for the events that it overrides."""

    def __init__(self, callbacks: Iterable[Callback]) -> None:
        """Check the callbacks and collect those that override each event.

        Raises ConfigError for an object that is not a Callback, and for an "on_..." method that is not an event.
        """
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
        """Return whether any callback overrides `event`; if none does, no Moment is built."""
        return bool(self._listeners[event])

    def interfering(self, events: Iterable[str]) -> str:
        """Return "<callback>.<event>" of the first callback of these events without `only_watches`; "" for none."""
        for event in events:
            for callback in self._listeners[event]:
                if not callback.only_watches:
                    return f"{type(callback).__name__}.{event}"
        return ""

    def call(self, moment: Moment) -> None:
        """Call every callback that overrides the event. An exception gains a note that names the callback.

        `on_train_end` is called for every callback even if one raises, so that each can close its files.
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

    def sync(self) -> None:
        """Let every callback bring its output to the disk; an exception gains a note that names the callback."""
        for callback in self.callbacks:
            try:
                callback.sync()
            except Exception as error:
                error.add_note(f"in {type(callback).__name__}.sync, before a checkpoint")
                raise

    def state(self) -> State:
        """Return the states of all callbacks; raises SaveError, naming callback and key, for another value."""
        kept = []
        arrays: dict[str, Array] = {}
        for callback in self.callbacks:
            name = type(callback).__name__
            what = f"{name}.state_dict() must return JSON values and arrays: its value"
            kept.append({"type": name, "state": encoded(callback.state_dict(), what, arrays)})
        return State({"all": kept}, arrays)

    def restore(self, state: State) -> None:
        """Restore the states of the callbacks; see `Callback.accepts_state` for several of one class.

        Raises SaveError, naming the callback, if its `load_state_dict` fails.
        """
        kept: dict[str, list[Any]] = {}
        for entry in state.values("all", dict):
            kind = State(entry, name=state.place("all")).value("type", str)
            kept.setdefault(kind, []).append(decoded(entry.get("state"), state))
        for callback in self.callbacks:
            name = type(callback).__name__
            held = kept.get(name, [])
            try:
                mine = next((i for i, saved in enumerate(held) if callback.accepts_state(saved)), None)
                if mine is not None:
                    callback.load_state_dict(held.pop(mine))
            except Exception as error:
                raise SaveError(f"{name}.load_state_dict: {error_text(error)}") from error


class Events:
    """Calls the callbacks of a run with a Moment of its counters."""

    def __init__(
        self, trainer: Trainer, callbacks: CallbackList, counters: Counters, clock: Clock, traffic: Traffic
    ) -> None:
        """Take the trainer and the callbacks; the counters, the clock and the traffic are read at every event."""
        self._traffic = traffic
        self.callbacks, self._trainer, self._counters, self._clock = callbacks, trainer, counters, clock

    def tell(self, event: str, **data: Any) -> None:
        """Call the callbacks that override `event`; `data` is that of the Moment."""
        if not self.callbacks.listens(event):
            return
        now = self._counters
        self.callbacks.call(
            Moment(
                self._trainer, event, now.episodes, now.env_steps, now.updates, now.gradient_steps,
                self._clock.seconds, data, self._traffic,
            )
        )  # fmt: skip


def _overrides(callback: Callback, event: str) -> bool:
    """Return whether a callback overrides an event, in its class or as an attribute of the object."""
    return getattr(getattr(callback, event), "__func__", None) is not getattr(Callback, event)


def _check_callback(callback: Any) -> None:
    """Raise ConfigError unless `callback` is a Callback whose "on_..." methods are events and take a Moment."""
    if not isinstance(callback, Callback):
        raise ConfigError(f"callbacks must hold objects of subclasses of marltrain.Callback, got {shown(callback)}")
    name = type(callback).__name__
    for method in dir(type(callback)):
        if method.startswith("on_") and method not in EVENTS:
            raise ConfigError(
                f"callbacks: {name}.{method} is never called: no event has this name.{did_you_mean(method, EVENTS)} "
                f"There are {', '.join(EVENTS)}; give your own methods another prefix"
            )
    for event in EVENTS:
        check_function(f"callbacks: {name}.{event}", getattr(callback, event), "moment")
    check_function(f"callbacks: {name}.sync", callback.sync)
