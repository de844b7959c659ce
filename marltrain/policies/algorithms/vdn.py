"""Value decomposition networks: Sunehag et al. 2018 (arXiv:1706.05296)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.agents.arguments import AgentArguments, accepts
from marltrain.policies.algorithms.value_mixing import ValueMixing, ValueMixingSettings
from marltrain.policies.interface.algorithm import CompiledForm
from marltrain.policies.interface.joint import Team
from marltrain.policies.ops import Ops


@dataclass(frozen=True, kw_only=True)
class VDNSettings(ValueMixingSettings):
    """Settings of VDN."""


class VDNAlgorithm(ValueMixing):
    """VDN: the value of the team is the sum of the players' values."""

    name = "vdn"
    Settings: ClassVar[type[VDNSettings]] = VDNSettings

    def compiled_form(self) -> CompiledForm | None:
        """Return the form of acting."""
        return self.acting_form()

    def mixed(self, ops: Ops, team: Team, values: Any, *, target: bool) -> Any:
        """Return the sum of the values (eq. 1)."""
        return ops.sum(values, -1)


@dataclass(frozen=True, kw_only=True)
class VDNArguments(AgentArguments, VDNSettings):
    """Arguments of `VDN`."""


class VDN(LearningAgent):
    """Agent that learns with VDN, together with its team."""

    algorithm_class = VDNAlgorithm

    @accepts(VDNArguments)
    def __init__(self, *args: Any, **arguments: Any) -> None:
        """Build the agent; see `LearningAgent`."""
        super().__init__(*args, **arguments)
