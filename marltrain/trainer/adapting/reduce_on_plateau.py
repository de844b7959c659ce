"""ReduceOnPlateau: multiplies a number of agents by a factor when the results no longer improve."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from marltrain.core.errors import ConfigError
from marltrain.core.settings import checked_arguments, setting
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.trainer.adapting.criterion import CriterionCallback, CriterionSettings
from marltrain.trainer.adapting.numbers import (
    Players,
    check_value,
    checked_players,
    chosen_agents,
    common_number,
    read,
    write,
)
from marltrain.trainer.events.callbacks import Moment
from marltrain.trainer.settings import TrainerSettings

LOGGER = logging.getLogger("marltrain")
NUMBER = "learning_rate"


@dataclass(frozen=True, kw_only=True)
class _Settings(CriterionSettings):
    name: str = setting(NUMBER, doc="number to reduce")
    patience: int = setting(3, doc="tests or episodes without improvement before a reduction", low=1)
    factor: float = setting(0.5, doc="factor of a reduction", above=0, high=1)
    low: float = setting(0.0, doc="lower bound of the number", low=0)


class ReduceOnPlateau(CriterionCallback):
    """Multiplies a number of agents by `factor` when a mean over tests or training episodes no longer improves.

    name: the number, such as "learning_rate", "epsilon" or "entropy_coef".
    patience: number of tests (episodes) without an improvement before a reduction; then the count restarts.
    factor: above 0 and below 1.  low: lower bound; no reduction goes below it.
    players: names or shell patterns of the players whose agents are changed; None: all agents that have the number.
    tests, episodes, min_delta: the criterion; see `EarlyStopping`.

    New values are logged as "<name>/<agent>". They are saved with the agents.
    Raises ConfigError for a wrong argument. Before training, `train` raises it for a number that an agent does not
    have, that is None or follows a schedule, for a bound that the number cannot have, and for tests that the trainer
    does not play.
    """

    Settings: ClassVar[type[_Settings]] = _Settings
    settings: _Settings

    @checked_arguments
    def __init__(
        self,
        name: str = NUMBER,
        *,
        patience: int = 3,
        factor: float = 0.5,
        low: float = 0.0,
        players: Players = None,
        tests: int | None = None,
        episodes: int | None = None,
        min_delta: float = 0.0,
    ) -> None:
        """Check the arguments."""
        super().__init__(
            name=name, patience=patience, factor=factor, low=low, tests=tests, episodes=episodes, min_delta=min_delta
        )
        if self.settings.factor == 1:
            raise ConfigError("ReduceOnPlateau: factor must be below 1, got 1")
        self.players = checked_players("ReduceOnPlateau", players)
        self._agents: dict[str, LearningAgent] = {}

    def prepare(self, settings: TrainerSettings, players: Mapping[str, Agent]) -> None:
        """Choose the agents; see `Callback`."""
        super().prepare(settings, players)
        name, low = self.settings.name, self.settings.low
        self._agents = chosen_agents("ReduceOnPlateau", name, self.players, players)
        for agent in self._agents.values():
            if low > 0 or common_number(agent, name):  # others never become 0
                check_value(agent, name, low)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the criterion, the number and the agents."""
        return {**super().state_dict(), "name": self.settings.name, "agents": list(self._agents)}

    def accepts_state(self, state: Mapping[str, Any]) -> bool:
        """Return whether the state is of the same number, and of one of the agents at least."""
        same = state["name"] == self.settings.name and not self._agents.keys().isdisjoint(state["agents"])
        return same and super().accepts_state(state)

    def judge(self, moment: Moment) -> None:
        """Reduce the numbers after `patience` values without improvement."""
        name, low = self.settings.name, self.settings.low
        if self.criterion.waited < self.settings.patience:
            return
        self.criterion.restart()
        values = {label: read(agent, name, moment.trainer.settings) for label, agent in self._agents.items()}
        for label, agent in self._agents.items():  # agents of a learner may share the number: all are read before
            now = values[label]
            reduced = max(now * self.settings.factor, min(low, now))
            write(agent, name, reduced)
            LOGGER.info("ReduceOnPlateau at env step %d: %s of %s is %g", moment.env_steps, name, label, reduced)
            moment.log(f"{name}/{label}", reduced)
