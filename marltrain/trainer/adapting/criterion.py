"""Criterion: the mean of the last tests or training episodes, the best mean so far, and the time since then."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, ClassVar

import numpy as np

from marltrain.core.errors import ConfigError, SaveError
from marltrain.core.settings import setting, validate
from marltrain.policies.learner.learner import Learner
from marltrain.storage.checks import counted, of_type
from marltrain.trainer.events.callbacks import Callback, Moment
from marltrain.trainer.settings import TrainerSettings

MOST_KEPT = 1_000_000


@dataclass(frozen=True, kw_only=True)
class CriterionSettings:
    """Settings of a `Criterion`; without `tests` and `episodes`, it is the metric of the last test."""

    tests: int | None = setting(None, doc="newest tests in the mean", low=1, high=MOST_KEPT)
    episodes: int | None = setting(None, doc="newest training episodes in the mean", low=1, high=MOST_KEPT)
    min_delta: float = setting(0.0, doc="increase above which a mean counts as an improvement", low=0)
    patience: int | None = setting(None, doc="tests or episodes without improvement that are tolerated", low=1)


class Criterion:
    """The mean of the last N values, and how many values ago it improved.

    size: N.  min_delta: a mean improves if it exceeds the best one by more than this.
    mean: the mean of the last N values; None before there are N.  best: the largest mean; None without one.
    waited: number of values since the last improvement, or since `restart`.
    """

    def __init__(self, size: int, min_delta: float) -> None:
        """Start without values."""
        self.size, self.min_delta = size, min_delta
        self.clear()

    def clear(self) -> None:
        """Forget all values."""
        self._values: deque[float] = deque(maxlen=self.size)
        self.mean: float | None = None
        self.best: float | None = None
        self.waited = 0

    def add(self, value: float) -> None:
        """Add a value; a mean that is the first one counts as an improvement."""
        self._values.append(float(value))
        if len(self._values) < self.size:
            return
        self.mean = float(np.mean(self._values))
        if self.best is None or self.mean > self.best + self.min_delta:
            self.best, self.waited = self.mean, 0
        else:
            self.waited += 1

    def restart(self) -> None:
        """Count the values without improvement from now on."""
        self.waited = 0

    def state_dict(self) -> dict[str, Any]:
        """Return the values and the best mean, as JSON values."""
        return {"values": list(self._values), "best": self.best, "waited": self.waited}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned; of more than N values, the newest are kept.

        Raises SaveError for invalid values.
        """
        values = [of_type("values", value, float) for value in of_type("values", state["values"], list)]
        if len(values) > MOST_KEPT:
            raise SaveError(f"values holds {len(values)} numbers, expected at most {MOST_KEPT}")
        self.clear()
        self._values.extend(values)
        if len(self._values) == self.size:
            self.mean = float(np.mean(self._values))
        self.best = of_type("best", state["best"], float, NoneType)
        self.waited = counted("waited", state["waited"])


class CriterionCallback(Callback):
    """Base of callbacks with a criterion over tests or training episodes; it calls `judge` after each value.

    A test counts with its metric, a training episode with its mean return over the players that learn.
    """

    Settings: ClassVar[type[CriterionSettings]] = CriterionSettings

    def __init__(self, **settings: Any) -> None:
        """Check the settings; raises ConfigError for a wrong one."""
        name = type(self).__name__
        self.settings = self.Settings(**settings)
        validate(self.settings, name)
        if self.settings.tests is not None and self.settings.episodes is not None:
            raise ConfigError(f"{name}: the criterion is a mean over tests or over training episodes: give one of both")
        self.criterion = Criterion(self.settings.episodes or self.settings.tests or 1, self.settings.min_delta)
        self.over_tests = self.settings.episodes is None
        # only the event of the criterion is overridden; see `CallbackList`
        vars(self).update({"on_test_end": self._test_ended} if self.over_tests else {"on_episode_end": self._played})

    @property
    def unit(self) -> str:
        """What the criterion counts: "tests" or "training episodes"."""
        return "tests" if self.over_tests else "training episodes"

    def prepare(self, settings: TrainerSettings, players: Mapping[str, Any]) -> None:
        """Raise ConfigError for a criterion over tests if the trainer plays none."""
        if self.over_tests and not settings.tests:
            raise ConfigError(
                f"{type(self).__name__}: the criterion is the metric of tests, and test_freq=None switches tests off. "
                "Give test_freq or test_freq_steps to the trainer, or a criterion over training episodes (episodes=100)"
            )

    def on_train_start(self, moment: Moment) -> None:
        """Forget the values of an earlier run; those of a continued run are restored afterwards."""
        self.criterion.clear()

    def judge(self, moment: Moment) -> None:
        """React to a new value of the criterion."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the criterion."""
        return {"unit": self.unit, **self.criterion.state_dict()}

    def accepts_state(self, state: Mapping[str, Any]) -> bool:
        """Return whether the state counts in the same unit."""
        return of_type("unit", state["unit"], str) == self.unit

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.criterion.load_state_dict(state)

    def largest_batches(self) -> Iterable[tuple[Learner, int]]:
        """Return the learners whose batch size this callback may raise, and the largest size; call it after `prepare`.

        Nothing by default.
        """
        return ()

    def _test_ended(self, moment: Moment) -> None:
        self.criterion.add(moment.data["metric"])
        self.judge(moment)

    def _played(self, moment: Moment) -> None:
        self.criterion.add(np.mean(moment.data["returns"][np.asarray(moment.trainer.learning_mask)]))
        self.judge(moment)
