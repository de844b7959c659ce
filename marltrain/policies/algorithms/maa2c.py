"""Multi-agent A2C: A2C with a central critic, as in Papoudakis et al. 2021 (arXiv:2006.07869, section 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.agents.arguments import AgentArguments, accepts
from marltrain.policies.algorithms.a2c import A2CAlgorithm, A2CSettings
from marltrain.policies.algorithms.central_critic import CentralCritic, CentralCriticSettings
from marltrain.policies.interface.algorithm import CompiledForm


@dataclass(frozen=True, kw_only=True)
class MAA2CSettings(CentralCriticSettings, A2CSettings):
    """Settings of MAA2C: those of A2C, and the critic's input."""


class MAA2CAlgorithm(CentralCritic, A2CAlgorithm):
    """MAA2C: A2C's loss; the critic learns V(state) instead of V(observation)."""

    name = "maa2c"
    Settings: ClassVar[type[MAA2CSettings]] = MAA2CSettings

    def compiled_form(self) -> CompiledForm | None:
        """Return the form of acting; the framework makes the gradient steps."""
        return self.acting_form()


@dataclass(frozen=True, kw_only=True)
class MAA2CArguments(AgentArguments, MAA2CSettings):
    """Arguments of `MAA2C`."""


class MAA2C(LearningAgent):
    """Agent that learns with MAA2C."""

    algorithm_class = MAA2CAlgorithm

    @accepts(MAA2CArguments)
    def __init__(self, *args: Any, **arguments: Any) -> None:
        """Build the agent; see `LearningAgent`."""
        super().__init__(*args, **arguments)
