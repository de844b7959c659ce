"""Twin delayed deep deterministic policy gradient: Fujimoto et al. 2018 (arXiv:1802.09477)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from marltrain.core.layout import Array
from marltrain.core.settings import Range, setting
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.agents.arguments import AgentArguments, accepts
from marltrain.policies.algorithms.off_policy import (
    DeterministicActorCritic,
    DeterministicSettings,
    mean_error,
    policy,
    squared_errors,
)
from marltrain.policies.distributions.draws import normals
from marltrain.policies.hyperparameters.schedules import Schedule
from marltrain.policies.interface.algorithm import MOST_PASSES, Networks, Phase, weighted_mean
from marltrain.policies.ops import Ops


@dataclass(frozen=True, kw_only=True)
class SmoothingSettings:
    """Settings of delayed actors and of smoothed target actions."""

    policy_delay: int = setting(2, doc="updates of the critics per update of the actor and the targets", low=1,
                                high=MOST_PASSES)  # fmt: skip
    target_noise: float | Schedule = setting(
        0.2,
        search=Range(0.05, 0.5, "log"),
        doc="standard deviation of the target policy's noise, in half widths of the bounds",
        low=0,
        per_row=True,
    )
    target_noise_clip: float | Schedule = setting(
        0.5, doc="largest noise of the target policy, in half widths of the bounds", low=0, per_row=True
    )


@dataclass(frozen=True, kw_only=True)
class TD3Settings(SmoothingSettings, DeterministicSettings):
    """Settings of TD3; the defaults suit small problems of continuous control."""


class TD3Algorithm(DeterministicActorCritic):
    """TD3: two critics Q1 and Q2, an actor pi that is updated less often, and target networks of all three."""

    name = "td3"
    Settings: ClassVar[type[TD3Settings]] = TD3Settings
    critics = 2

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The critics, then, on every `policy_delay`-th pass, the actor (algorithm 1)."""
        return (
            Phase("critic", ("critic",), self._critic_loss, self._targets, draw=self._smoothing, row_error=mean_error),
            Phase("actor", ("actor",), self._actor_loss, every=self.settings.policy_delay),
        )

    def target_share(self, updates: Array, hyper: Mapping[str, Array]) -> Array:
        """Return tau after the updates that train the actor, the first of every `policy_delay`, else 0."""
        return hyper["tau"] * ((updates - 1) % self.settings.policy_delay == 0)

    def _smoothing(self, rngs: Sequence[np.random.Generator], rows: int) -> dict[str, Array]:
        """Draw the noise of target policy smoothing, [K, rows, A]."""
        return {"smoothing": normals(rngs, rows, self.box.dims)}

    def _targets(self, ops: Ops, nets: Networks, batch: Any, hyper: Mapping[str, Any]) -> None:
        """Add `target`: y = r + discount * min_i Q'_i(s', pi'(s') + clip(noise, -c, c)) (eq. 14)."""
        noise = clipped_noise(ops, batch.smoothing, hyper)
        following = ops.clip(policy(ops, nets["target_actor"], batch.next_obs) + noise, -1.0, 1.0)
        q = nets["target_critic"](batch.next_obs, following)[0][..., 0]
        batch.target = batch.reward + batch.discount * ops.minimum(q[:, 0], q[:, 1])

    def _critic_loss(
        self, ops: Ops, nets: Networks, batch: Any, hyper: Mapping[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """Return the mean of (y - Q_i(s, a))^2, summed over both critics."""
        q = nets["critic"](batch.obs, self.box.from_units(ops, batch.action))[0][..., 0]
        loss = squared_errors(ops, q, batch)
        return loss, {"loss/critic": loss, "q_mean": weighted_mean(ops, ops.mean(q, 1), batch.weight)}

    def _actor_loss(self, ops: Ops, nets: Networks, batch: Any, hyper: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return the mean of -Q1(s, pi(s))."""
        (q,) = nets["critic"](batch.obs, policy(ops, nets["actor"], batch.obs))
        loss = -weighted_mean(ops, q[:, 0, :, 0], batch.weight)
        return loss, {"loss/actor": loss}


def clipped_noise(ops: Ops, normal: Any, hyper: Mapping[str, Any]) -> Any:
    """Return the noise of target actions, for standard normal numbers [K, B, A]."""
    limit = hyper["target_noise_clip"][..., None]
    return ops.minimum(ops.maximum(hyper["target_noise"][..., None] * normal, -limit), limit)


@dataclass(frozen=True, kw_only=True)
class TD3Arguments(AgentArguments, TD3Settings):
    """Arguments of `TD3`."""


class TD3(LearningAgent):
    """Agent that learns with TD3."""

    algorithm_class = TD3Algorithm

    @accepts(TD3Arguments)
    def __init__(self, *args: Any, **arguments: Any) -> None:
        """Build the agent; see `LearningAgent`."""
        super().__init__(*args, **arguments)
