"""MADDPG with two critics, smoothed target actions and delayed actors: Ackermann et al. 2019 (arXiv:1910.01465).

The changes to MADDPG are those of TD3 (Fujimoto et al. 2018, arXiv:1802.09477) to DDPG.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from marltrain.core.layout import Array
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.agents.arguments import AgentArguments, accepts
from marltrain.policies.algorithms.maddpg import MADDPGAlgorithm, MADDPGSettings
from marltrain.policies.algorithms.td3 import SmoothingSettings, clipped_noise
from marltrain.policies.distributions.draws import normals
from marltrain.policies.interface.algorithm import Phase
from marltrain.policies.interface.joint import Member
from marltrain.policies.ops import Ops


@dataclass(frozen=True, kw_only=True)
class MATD3Settings(SmoothingSettings, MADDPGSettings):
    """Settings of MATD3; the defaults suit small games."""


class MATD3Algorithm(MADDPGAlgorithm):
    """MATD3: two critics for each agent, and actors that are updated less often.

    The target is the least value of the two, at target actions with clipped noise. The target actions of Discrete
    policies are samples, and get no other noise.
    """

    name = "matd3"
    Settings: ClassVar[type[MATD3Settings]] = MATD3Settings
    critics = 2

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The critics, then, on every `policy_delay`-th pass, the actors."""
        critic, actor = super().phases
        return critic, replace(actor, every=self.settings.policy_delay)

    def target_share(self, updates: Array, hyper: Mapping[str, Array]) -> Array:
        """Return tau after the updates that train the actors, the first of every `policy_delay`, else 0."""
        return np.where((updates - 1) % self.settings.policy_delay == 0, hyper["tau"], 0.0)

    def settling_share(self, updates: Array, hyper: Mapping[str, Array]) -> Array:
        """Return tau after every update: an agent that does not learn has no actor to wait for."""
        return np.asarray(hyper["tau"])

    def next_vectors(self, ops: Ops, member: Member) -> Any:
        """Return the actions of the target actors, those of a Box with clipped noise (eq. 5)."""
        action = super().next_vectors(ops, member)
        if not isinstance(self.action_space, spaces.Box):
            return action
        return ops.clip(action + clipped_noise(ops, member.rows.next_noise, member.hyper), -1.0, 1.0)

    def _next_noise(self, rngs: Sequence[np.random.Generator], rows: int) -> dict[str, Array | None]:
        if not isinstance(self.action_space, spaces.Box):
            return super()._next_noise(rngs, rows)
        return {"next_noise": normals(rngs, rows, self.policy.width)}


@dataclass(frozen=True, kw_only=True)
class MATD3Arguments(AgentArguments, MATD3Settings):
    """Arguments of `MATD3`."""


class MATD3(LearningAgent):
    """Agent that learns with MATD3, together with its team."""

    algorithm_class = MATD3Algorithm

    @accepts(MATD3Arguments)
    def __init__(self, *args: Any, **arguments: Any) -> None:
        """Build the agent; see `LearningAgent`."""
        super().__init__(*args, **arguments)
