"""Rainbow (Hessel et al. 2018, arXiv:1710.02298): C51 that is double, dueling, n-step, noisy and prioritized."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from marltrain.core.settings import setting
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.agents.arguments import AgentArguments, accepts
from marltrain.policies.algorithms.c51 import C51Algorithm, C51Settings
from marltrain.policies.hyperparameters.schedules import linear
from marltrain.policies.memory.config import LONGEST, Prioritized, Replay


@dataclass(frozen=True, kw_only=True)
class RainbowSettings(C51Settings):
    """Settings of Rainbow; n-step returns, the noise and alpha are the paper's (table 1).

    The paper's beta grows to 1 over the whole run; here over 100,000 env steps.
    """

    n_step: int = setting(3, doc="rewards summed before bootstrapping", low=1, high=LONGEST)
    double: bool = setting(True, doc="double DQN: the online network chooses the next action")
    dueling: bool = setting(True, doc="dueling network: separate heads for value and advantages")
    noisy: float = setting(0.5, doc="noisy networks: initial noise sigma_0 of the weights; 0: no noise", low=0, high=10)
    memory: Replay | None = setting(
        Replay(prioritized=Prioritized(0.5, linear(0.4, 1.0, 100_000))),
        doc="Replay(...) with priorities and others; None: uniform draws",
    )


class RainbowAlgorithm(C51Algorithm):
    """C51 with the settings of Rainbow; exploration is by the noise of the weights."""

    name = "rainbow"
    Settings: ClassVar[type[RainbowSettings]] = RainbowSettings


@dataclass(frozen=True, kw_only=True)
class RainbowArguments(AgentArguments, RainbowSettings):
    """Arguments of `Rainbow`."""


class Rainbow(LearningAgent):
    """Agent that learns with Rainbow."""

    algorithm_class = RainbowAlgorithm

    @accepts(RainbowArguments)
    def __init__(self, *args: Any, **arguments: Any) -> None:
        """Build the agent; see `LearningAgent`."""
        super().__init__(*args, **arguments)
