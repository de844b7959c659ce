"""Proximal policy optimisation: Schulman et al. 2017 (arXiv:1707.06347), with GAE (arXiv:1506.02438)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from marltrain.config import setting
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.agents.arguments import AgentArguments, accepts
from marltrain.policies.algorithms.actor_critic import ActorCritic, ActorCriticSettings
from marltrain.policies.algorithms.base import MOST_PASSES, CompiledForm, Networks, Phase, weighted_mean
from marltrain.policies.schedules import Schedule


@dataclass(frozen=True, kw_only=True)
class PPOSettings(ActorCriticSettings):
    """Settings of PPO; the defaults suit small games."""

    clip: float | Schedule = setting(0.2, doc="clipping range of the ratio around 1", above=0, per_row=True)
    value_clip: float | None = setting(None, doc="clipping range of value updates; None: no clipping", above=0,
                                       per_row=True)  # fmt: skip
    entropy_coef: float | Schedule = setting(0.01, doc="weight of the entropy bonus", low=0, per_row=True)
    value_coef: float | Schedule = setting(0.5, doc="weight of the critic's loss", low=0, per_row=True)
    epochs: int = setting(4, doc="passes over each rollout", low=1, high=MOST_PASSES)
    minibatches: int | None = setting(None, doc="minibatches per epoch; None: rollout / batch_size", low=1)


class PPOAlgorithm(ActorCritic):
    """PPO with separate actor and critic networks, trained with one clipped loss."""

    name = "ppo"
    Settings: ClassVar[type[PPOSettings]] = PPOSettings

    def compiled_form(self) -> CompiledForm | None:
        """Return the categorical form with the loss "clipped" for Discrete actions, otherwise None."""
        return self.acting_form("clipped")

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The single phase, which trains both networks."""
        return (Phase("policy", ("actor", "critic"), self._loss),)

    def _loss(self, ops: Any, nets: Networks, batch: Any, hyper: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return L = -L_clip + c_v L_value - c_e entropy (Schulman et al. 2017, eq. 9, signs for descent)."""

        def mean(x: Any) -> Any:
            return weighted_mean(ops, x, batch.weight)

        out = self.policy(nets, batch.obs)
        log_prob, entropy = self.distribution.evaluate(ops, out, batch.legal, batch.action)
        log_ratio = log_prob - batch.log_prob
        ratio = ops.exp(log_ratio)
        actor_loss = -mean(clipped_surrogate(ops, ratio, batch.advantage, hyper["clip"]))
        value = self.value(nets, batch.obs)
        if self.settings.value_clip is None:
            errors = ops.square(value - batch.target)
        else:
            errors = clipped_value_loss(ops, value, batch.value, batch.target, hyper["value_clip"])
        critic_loss = 0.5 * mean(errors)
        bonus = mean(entropy)
        total = actor_loss + hyper["value_coef"][:, 0] * critic_loss - hyper["entropy_coef"][:, 0] * bonus
        return total, {
            "loss/actor": actor_loss,
            "loss/critic": critic_loss,
            "loss/total": total,
            "entropy": bonus,
            "approx_kl": mean(approx_kl(ops, ops.stop_gradient(log_ratio))),
            "clip_share": mean(ops.flag(ops.absolute(ratio - 1.0) > hyper["clip"])),
        }


def clipped_surrogate(ops: Any, ratio: Any, advantage: Any, clip: Any) -> Any:
    """Return PPO's clipped objective, which is maximised: Schulman et al. 2017 (arXiv:1707.06347), eq. 7."""
    bounded = ops.minimum(ops.maximum(ratio, 1.0 - clip), 1.0 + clip)
    return ops.minimum(ratio * advantage, bounded * advantage)


def clipped_value_loss(ops: Any, value: Any, old_value: Any, target: Any, clip: Any) -> Any:
    """Return the larger squared error of the value and of the value clipped to old_value +- clip.

    This is the value clipping of Schulman et al.'s published code; an infinite clip gives the plain squared error.
    """
    step = ops.minimum(ops.maximum(value - old_value, -clip), clip)
    return ops.maximum(ops.square(value - target), ops.square(old_value + step - target))


def approx_kl(ops: Any, log_ratio: Any) -> Any:
    """Return (ratio - 1) - log ratio, an unbiased, non-negative estimate of KL(old, new) (Schulman 2020)."""
    return ops.exp(log_ratio) - 1.0 - log_ratio


@dataclass(frozen=True, kw_only=True)
class PPOArguments(AgentArguments, PPOSettings):
    """Arguments of `PPO`."""


class PPO(LearningAgent):
    """Agent that learns with PPO."""

    algorithm_class = PPOAlgorithm

    @accepts(PPOArguments)
    def __init__(self, *args: Any, **arguments: Any) -> None:
        """Build the agent; see `LearningAgent`."""
        super().__init__(*args, **arguments)
