"""ActorCritic: base of on-policy algorithms with an actor and a critic, with GAE (arXiv:1506.02438)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from marltrain.config import setting
from marltrain.errors import ConfigError
from marltrain.layout import Array, Layout, Space
from marltrain.policies.algorithms.base import (
    FASTEST,
    Algorithm,
    CompiledForm,
    Networks,
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
class ActorCriticSettings(Settings):
    """Settings of on-policy algorithms with an actor and a critic."""

    critic_learning_rate: float | Schedule | None = setting(None, doc="the critic's step size", low=0, high=FASTEST,
                                                           per_row=True)  # fmt: skip
    gae_lambda: float | Schedule = setting(
        0.95, doc="lambda of generalised advantage estimation", low=0, high=1, per_row=True
    )
    normalize_advantage: bool = setting(True, doc="normalize the advantages of each minibatch")
    critic_network: Any = setting(None, doc="the critic's network; None: like the actor's")
    log_std: float = setting(0.0, doc="initial log standard deviations of continuous actions", low=-20, high=20)


class ActorCritic(Algorithm):
    """An actor and a critic, acting, and advantages; a subclass defines `phases` and, for compiled code, its form.

    Losses of subclasses get the columns `obs`, `legal`, `action` (the raw one of `distribution`), `log_prob` of the
    policy that acted, `value` of the old critic, `advantage` and `target`.
    """

    Settings: ClassVar[type[Any]] = ActorCriticSettings
    on_policy = True
    acts_in_numpy = noise_by_rows = True
    optimizer_epsilon = 1e-5

    def __init__(self, settings: Any, layout: Layout, action_space: Space) -> None:
        """Choose the distribution for the action space; raises ConfigError for a custom actor without a critic."""
        super().__init__(settings, layout, action_space)
        if settings.critic_network is None and not isinstance(settings.network, NetworkSpec):
            raise ConfigError(
                f"{self.name}: network={type(settings.network).__name__} is a model of your own and only the actor; "
                "give the critic's too with critic_network= (a model with one output, or MLP() or CNN())"
            )
        self.distribution = distribution_of(action_space, settings.log_std)

    def networks(self) -> dict[str, NetworkDefinition]:
        """Return the actor and the critic."""
        critic = self.settings.critic_network or self.settings.network
        return {
            "actor": NetworkDefinition(self.settings.network, [self.distribution.head(0.01)], self.layout),
            "critic": NetworkDefinition(critic, [Head(1)], self.layout),
        }

    def acting_form(self, loss: str | None = None) -> CompiledForm | None:
        """Return the categorical form with a loss for Discrete actions, otherwise None."""
        return CompiledForm("actor", "categorical", loss) if isinstance(self.distribution, Categorical) else None

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

    def policy(self, nets: Networks, obs: Any) -> Any:
        """Return the outputs of the actor, which `distribution` reads, [K, B, outputs]."""
        return nets["actor"](obs)[0]

    def value(self, nets: Networks, obs: Any) -> Any:
        """Return the values of the critic, [K, B]."""
        return nets["critic"](obs)[0][..., 0]

    def noise(self, rngs: Sequence[np.random.Generator], rows: int) -> dict[str, Array]:
        """Draw the sampling noise of the distribution."""
        return {"sample": self.distribution.noise(rngs, rows)}

    def act(
        self, ops: Any, nets: Networks, obs: Any, legal: Any, noise: Any, explore: Any, hyper: Mapping[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """Return actions, sampled where `explore` and the mode elsewhere, and their log-probabilities as extras.

        For Discrete actions and fully connected networks on a CPU, `compiled/acting.py` computes the same.
        """
        action, raw, log_prob = self.distribution.sample(ops, self.policy(nets, obs), legal, noise["sample"], explore)
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
            raise TypeError(f"{self.name} learns from a Rollout, got {type(batch).__name__}")
        value, follows = self._values(nets, batch, tensors)
        lam = tensors.to_numpy(hyper["gae_lambda"])[:, 0]
        advantage = gae(batch.reward, batch.discount, value, follows, batch.cut, lam)
        target = advantage + value
        tensors.value, tensors.advantage, tensors.target = map(tensors.to_tensor, (value, advantage, target))
        tensors.action = tensors.extras.get("raw", tensors.action)
        tensors.log_prob = tensors.extras["log_prob"]
        tensors.metrics["explained_variance"] = explained_variance(value, target, batch.weight)
        return tensors

    def _values(self, nets: Networks, batch: Rollout, tensors: WholeBatch) -> tuple[Array, Array]:
        """Return the old critic's values of the rows and of what follows each row, [K, B]."""
        value = tensors.to_numpy(self.value(nets, tensors.obs))
        boot = tensors.to_numpy(self.value(nets, tensors.boot_obs))
        following = np.concatenate([value[:, 1:], value[:, :1]], 1)
        return value, np.where(batch.boot < 0, following, np.take_along_axis(boot, np.maximum(batch.boot, 0), 1))

    def over_rows(self, ops: Any, batch: TensorBatch) -> None:
        """Normalise the advantages of the minibatch if `normalize_advantage` is set."""
        if self.settings.normalize_advantage:
            centred = batch.advantage - weighted_mean(ops, batch.advantage, batch.weight)[:, None]
            deviation = ops.sqrt(weighted_mean(ops, ops.square(centred), batch.weight))
            batch.advantage = centred / (deviation + 1e-8)[:, None]
