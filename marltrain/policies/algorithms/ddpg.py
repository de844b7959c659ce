"""Deep deterministic policy gradient: Lillicrap et al. 2016 (arXiv:1509.02971)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.agents.arguments import AgentArguments, accepts
from marltrain.policies.algorithms.off_policy import DeterministicActorCritic, DeterministicSettings, policy
from marltrain.policies.interface.algorithm import Networks, Phase, absolute_error, weighted_mean
from marltrain.policies.ops import Ops


@dataclass(frozen=True, kw_only=True)
class DDPGSettings(DeterministicSettings):
    """Settings of DDPG; the defaults suit small problems of continuous control."""


class DDPGAlgorithm(DeterministicActorCritic):
    """DDPG: a critic Q(s, a), an actor mu(s), and target networks Q' and mu' of both."""

    name = "ddpg"
    Settings: ClassVar[type[DDPGSettings]] = DDPGSettings

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The critic, then the actor through the new critic (algorithm 1)."""
        return (
            Phase("critic", ("critic",), self._critic_loss, self._targets, row_error=absolute_error),
            Phase("actor", ("actor",), self._actor_loss),
        )

    def _targets(self, ops: Ops, nets: Networks, batch: Any, hyper: Mapping[str, Any]) -> None:
        """Add `target`: y = r + discount * Q'(s', mu'(s'))."""
        following = policy(ops, nets["target_actor"], batch.next_obs)
        (q,) = nets["target_critic"](batch.next_obs, following)
        batch.target = batch.reward + batch.discount * q[..., 0]

    def _critic_loss(
        self, ops: Ops, nets: Networks, batch: Any, hyper: Mapping[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """Return the mean of (y - Q(s, a))^2."""
        q = nets["critic"](batch.obs, self.box.from_units(ops, batch.action))[0][..., 0]
        batch.error = q - batch.target
        loss = weighted_mean(ops, ops.square(batch.error), batch.weight)
        return loss, {"loss/critic": loss, "q_mean": weighted_mean(ops, q, batch.weight)}

    def _actor_loss(self, ops: Ops, nets: Networks, batch: Any, hyper: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return the mean of -Q(s, mu(s)), whose gradient is the deterministic policy gradient (eq. 6)."""
        (q,) = nets["critic"](batch.obs, policy(ops, nets["actor"], batch.obs))
        loss = -weighted_mean(ops, q[..., 0], batch.weight)
        return loss, {"loss/actor": loss}


@dataclass(frozen=True, kw_only=True)
class DDPGArguments(AgentArguments, DDPGSettings):
    """Arguments of `DDPG`."""


class DDPG(LearningAgent):
    """Agent that learns with DDPG."""

    algorithm_class = DDPGAlgorithm

    @accepts(DDPGArguments)
    def __init__(self, *args: Any, **arguments: Any) -> None:
        """Build the agent; see `LearningAgent`."""
        super().__init__(*args, **arguments)
