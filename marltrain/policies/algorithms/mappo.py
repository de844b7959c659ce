"""Multi-agent PPO: PPO with a central critic, Yu et al. 2022 (arXiv:2103.01955)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from marltrain.core.settings import setting
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.agents.arguments import AgentArguments, accepts
from marltrain.policies.algorithms.central_critic import CentralCritic, CentralCriticSettings
from marltrain.policies.algorithms.ppo import PPOAlgorithm, PPOSettings
from marltrain.policies.interface.algorithm import CompiledForm


@dataclass(frozen=True, kw_only=True)
class MAPPOSettings(CentralCriticSettings, PPOSettings):
    """Settings of MAPPO: those of PPO, and the critic's input; values are normalized by default, as in the paper."""

    normalize_values: str | None = setting(
        "valuenorm", doc="the critic learns targets less their running mean, over their deviation: valuenorm; popart "
        "also keeps its outputs when these change", choices=("popart", "valuenorm"),
    )  # fmt: skip


class MAPPOAlgorithm(CentralCritic, PPOAlgorithm):
    """MAPPO: PPO's loss; the critic learns V(state) instead of V(observation). `critic_input="own"` is IPPO."""

    name = "mappo"
    Settings: ClassVar[type[MAPPOSettings]] = MAPPOSettings

    def compiled_form(self) -> CompiledForm | None:
        """Return the form of PPO, whose acting and loss it has."""
        return super().compiled_form()


@dataclass(frozen=True, kw_only=True)
class MAPPOArguments(AgentArguments, MAPPOSettings):
    """Arguments of `MAPPO`."""


class MAPPO(LearningAgent):
    """Agent that learns with MAPPO."""

    algorithm_class = MAPPOAlgorithm

    @accepts(MAPPOArguments)
    def __init__(self, *args: Any, **arguments: Any) -> None:
        """Build the agent; see `LearningAgent`."""
        super().__init__(*args, **arguments)
