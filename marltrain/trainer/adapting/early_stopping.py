"""EarlyStopping: ends training at a target, or without improvement."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import ClassVar

from marltrain.core.errors import ConfigError
from marltrain.core.settings import checked_arguments, setting
from marltrain.trainer.adapting.criterion import CriterionCallback, CriterionSettings
from marltrain.trainer.events.callbacks import Moment

LOGGER = logging.getLogger("marltrain")


@dataclass(frozen=True, kw_only=True)
class _Settings(CriterionSettings):
    target: float | None = setting(None, doc="mean at which training ends")


class EarlyStopping(CriterionCallback):
    """Ends training when a mean over tests or training episodes reaches a target, or no longer improves.

    target: training ends when the mean is at least this.
    patience: training ends after this number of tests (episodes) without an improvement. Give at least one of both.
    tests, episodes: number of the newest tests, or training episodes, in the mean; by default the last test. A test
    counts with its metric, a training episode with its mean return over the players that learn.
    min_delta: a mean counts as an improvement if it exceeds the best one by more than this.

    `stop_reason` of the result is the sentence that states why. If the run is continued (`resume`, `go_on`), it ends
    at the next test (episode) that meets the condition.
    Raises ConfigError for a wrong argument, and in `train`, before training, for tests that the trainer does not play.
    """

    Settings: ClassVar[type[_Settings]] = _Settings
    settings: _Settings

    @checked_arguments
    def __init__(
        self,
        *,
        target: float | None = None,
        patience: int | None = None,
        tests: int | None = None,
        episodes: int | None = None,
        min_delta: float = 0.0,
    ) -> None:
        """Check the arguments."""
        super().__init__(target=target, patience=patience, tests=tests, episodes=episodes, min_delta=min_delta)
        if target is None and patience is None:
            raise ConfigError("EarlyStopping: say when training ends: target= or patience=")

    def judge(self, moment: Moment) -> None:
        """Stop if the target is reached or the patience is used up."""
        now, settings = self.criterion, self.settings
        if now.mean is None or now.best is None:
            return
        reason = ""
        if settings.target is not None and now.mean >= settings.target:
            over = self.unit[:-1] if now.size == 1 else f"{now.size} {self.unit}"
            reason = f"target {settings.target:g} reached: mean {now.mean:.6g} over the last {over}"
        elif settings.patience is not None and now.waited >= settings.patience:
            reason = f"no improvement in {now.waited} {self.unit}: best mean {now.best:.6g}"
        if reason:
            LOGGER.info("EarlyStopping at env step %d: %s", moment.env_steps, reason)
            moment.stop(reason)
