"""Matches: line-ups that train side by side in one run, each in environments of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from marltrain.core.spec import EnvSpec
from marltrain.policies.agents.agent import Agent


class Matches(ABC):
    """M line-ups of one game, given to `train` in place of agents; the environments are divided among them.

    names: of the matches, after their learners.
    """

    names: tuple[str, ...]

    @property
    @abstractmethod
    def agents(self) -> list[Agent]:
        """All agents that take seats, each once."""

    @abstractmethod
    def seated(self, spec: EnvSpec) -> list[Agent]:
        """Return the agents by seat: seat p * M + m is that of player p in match m. spec: of the game.

        Raises AgentError or ConfigError if the game has no seats for them.
        """

    @abstractmethod
    def tested(self, spec: EnvSpec) -> Sequence[Agent]:
        """Return the line-up of one game that plays the tests, if the user gives no other."""
