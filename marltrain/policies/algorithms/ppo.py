"""Proximal policy optimisation: Schulman et al. 2017 (arXiv:1707.06347), with GAE (arXiv:1506.02438)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from marltrain.config import setting
from marltrain.errors import ConfigError
from marltrain.layout import Array, Layout, Space
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.algorithms.base import (
    FASTEST,
    MOST_PASSES,
    Algorithm,
    CompiledForm,
    Networks,
    Phase,
    Settings,
    TensorBatch,
    WholeBatch,
    weighted_mean,
)
from marltrain.policies.batch import Batch, Column, Needs, Rollout
from marltrain.policies.distributions import Categorical, Continuous, distribution_of
from marltrain.policies.networks import Head, NetworkDefinition, NetworkSpec
from marltrain.policies.schedules import Schedule


@dataclass(frozen=True, kw_only=True)
class PPOSettings(Settings):
    """Settings of PPO; the defaults suit small games."""

    critic_learning_rate: float | Schedule | None = setting(None, doc="the critic's step size", low=0, high=FASTEST,
                                                           per_row=True)  # fmt: skip
    gae_lambda: float | Schedule = setting(
        0.95, doc="lambda of generalised advantage estimation", low=0, high=1, per_row=True
    )
    clip: float | Schedule = setting(0.2, doc="clipping range of the ratio around 1", above=0, per_row=True)
    value_clip: float | None = setting(None, doc="clipping range of value updates; None: no clipping", above=0,
                                       per_row=True)  # fmt: skip
    entropy_coef: float | Schedule = setting(0.01, doc="weight of the entropy bonus", low=0, per_row=True)
    value_coef: float | Schedule = setting(0.5, doc="weight of the critic's loss", low=0, per_row=True)
    epochs: int = setting(4, doc="passes over each rollout", low=1, high=MOST_PASSES)
    minibatches: int | None = setting(None, doc="minibatches per epoch; None: rollout / batch_size", low=1)
    normalize_advantage: bool = setting(True, doc="normalize the advantages of each minibatch")
    critic_network: Any = setting(None, doc="the critic's network; None: like the actor's")
    log_std: float = setting(0.0, doc="initial log standard deviations of continuous actions", low=-20, high=20)


class PPOAlgorithm(Algorithm):
    """PPO with separate actor and critic networks, trained with one clipped loss."""

    name = "ppo"
    Settings: ClassVar[type[PPOSettings]] = PPOSettings
    on_policy = True
    acts_in_numpy = noise_by_rows = True
    optimizer_epsilon = 1e-5

    def __init__(self, settings: PPOSettings, layout: Layout, action_space: Space) -> None:
        """Choose the distribution for the action space; raises ConfigError for a custom actor without a critic."""
        super().__init__(settings, layout, action_space)
        if settings.critic_network is None and not isinstance(settings.network, NetworkSpec):
            raise ConfigError(
                f"PPO: network={type(settings.network).__name__} is a model of your own and only the actor; give the "
                "critic's too with critic_network= (a model with one output, or MLP() or CNN())"
            )
        self.distribution = distribution_of(action_space, settings.log_std)

    def networks(self) -> dict[str, NetworkDefinition]:
        """Return the actor and the critic."""
        critic = self.settings.critic_network or self.settings.network
        return {
            "actor": NetworkDefinition(self.settings.network, [self.distribution.head(0.01)], self.layout),
            "critic": NetworkDefinition(critic, [Head(1)], self.layout),
        }

    def compiled_form(self) -> CompiledForm | None:
        """Return the categorical form with the loss "ppo" for Discrete actions, otherwise None."""
        return CompiledForm("actor", "categorical", "ppo") if isinstance(self.distribution, Categorical) else None

    def needs(self) -> Needs:
        """Return `Needs` for on-policy learning with log-probabilities, and with raw actions for a Box."""
        columns = {"log_prob": Column()}
        if isinstance(self.distribution, Continuous):
            columns["raw"] = Column((self.distribution.dims,))
        return Needs(on_policy=True, columns=columns)

    def rate_name(self, network: str) -> str:
        """Return "critic_learning_rate" for the critic if it is set, otherwise "learning_rate"."""
        own = network == "critic" and self.settings.critic_learning_rate is not None
        return "critic_learning_rate" if own else "learning_rate"

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The single phase, which trains both networks."""
        return (Phase("policy", ("actor", "critic"), self._loss),)

    def noise(self, rngs: Sequence[np.random.Generator], rows: int) -> dict[str, Array]:
        """Draw the sampling noise of the distribution."""
        return {"sample": self.distribution.noise(rngs, rows)}

    def act(
        self, ops: Any, nets: Networks, obs: Any, legal: Any, noise: Any, explore: Any, hyper: Mapping[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """Return actions, sampled where `explore` and the mode elsewhere, and their log-probabilities as extras.

        For Discrete actions and fully connected networks on a CPU, `compiled/acting.py` computes the same.
        """
        (out,) = nets["actor"](obs)
        action, raw, log_prob = self.distribution.sample(ops, out, legal, noise["sample"], explore)
        extras = {"log_prob": log_prob}
        if isinstance(self.distribution, Continuous):
            extras["raw"] = raw
        return action, extras

    def to_units(self, action: Array) -> Array:
        """Scale and clip continuous actions; return other actions unchanged."""
        return self.distribution.to_units(action) if isinstance(self.distribution, Continuous) else action

    def prepare(
        self, ops: Any, nets: Networks, batch: Batch, tensors: WholeBatch, hyper: Mapping[str, Any]
    ) -> WholeBatch:
        """Add `value`, `advantage` (GAE) and the critic's `target`, and the explained variance of the old values."""
        from marltrain.policies.returns import explained_variance, gae

        if not isinstance(batch, Rollout):
            raise TypeError(f"PPO learns from a Rollout, got {type(batch).__name__}")
        value = tensors.to_numpy(nets["critic"](tensors.obs)[0][..., 0])
        boot = tensors.to_numpy(nets["critic"](tensors.boot_obs)[0][..., 0])
        following = np.concatenate([value[:, 1:], value[:, :1]], 1)
        follows = np.where(batch.boot < 0, following, np.take_along_axis(boot, np.maximum(batch.boot, 0), 1))
        lam = tensors.to_numpy(hyper["gae_lambda"])[:, 0]
        advantage = gae(batch.reward, batch.discount, value, follows, batch.cut, lam)
        target = advantage + value
        tensors.value, tensors.advantage, tensors.target = map(tensors.to_tensor, (value, advantage, target))
        tensors.action = tensors.extras.get("raw", tensors.action)
        tensors.log_prob = tensors.extras["log_prob"]
        tensors.metrics["explained_variance"] = explained_variance(value, target, batch.weight)
        return tensors

    def over_rows(self, ops: Any, batch: TensorBatch) -> None:
        """Normalise the advantages of the minibatch if `normalize_advantage` is set."""
        if self.settings.normalize_advantage:
            centred = batch.advantage - weighted_mean(ops, batch.advantage, batch.weight)[:, None]
            deviation = ops.sqrt(weighted_mean(ops, ops.square(centred), batch.weight))
            batch.advantage = centred / (deviation + 1e-8)[:, None]

    def _loss(self, ops: Any, nets: Networks, batch: Any, hyper: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return L = -L_clip + c_v L_value - c_e entropy (Schulman et al. 2017, eq. 9, signs for descent)."""

        def mean(x: Any) -> Any:
            return weighted_mean(ops, x, batch.weight)

        (out,) = nets["actor"](batch.obs)
        log_prob, entropy = self.distribution.evaluate(ops, out, batch.legal, batch.action)
        log_ratio = log_prob - batch.log_prob
        ratio = ops.exp(log_ratio)
        actor_loss = -mean(clipped_surrogate(ops, ratio, batch.advantage, hyper["clip"]))
        value = nets["critic"](batch.obs)[0][..., 0]
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


class PPO(LearningAgent):
    """Agent that learns with PPO; for the settings see `PPOSettings`."""

    algorithm_class = PPOAlgorithm
