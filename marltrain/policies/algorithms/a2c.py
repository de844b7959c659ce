"""Advantage actor-critic: Mnih et al. 2016 (arXiv:1602.01783), synchronous, with GAE (arXiv:1506.02438)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from marltrain.core.layout import Array
from marltrain.core.settings import Range, setting
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.agents.arguments import AgentArguments, accepts
from marltrain.policies.algorithms.actor_critic import ActorCritic, ActorCriticSettings
from marltrain.policies.algorithms.lagging import LaggingRollouts, ratio_metrics, traces
from marltrain.policies.batches.tensor_batch import WholeBatch
from marltrain.policies.hyperparameters.schedules import Schedule
from marltrain.policies.interface.algorithm import FASTEST, CompiledForm, Networks, Phase, weighted_mean
from marltrain.policies.ops import Ops
from marltrain.policies.optimizers import OPTIMIZERS


@dataclass(frozen=True, kw_only=True)
class A2CSettings(LaggingRollouts, ActorCriticSettings):
    """Settings of A2C; with `gae_lambda=1`, advantages are those of the paper: rewards up to the rollout's end."""

    learning_rate: float | Schedule = setting(
        7e-4, search=Range(1e-5, 1e-2, "log"), doc="step size of all networks", low=0, high=FASTEST, per_row=True
    )
    optimizer: str = setting("rmsprop", doc="adam, adamw, adamax, rmsprop or sgd", choices=tuple(OPTIMIZERS))
    gae_lambda: float | Schedule = setting(
        1.0,
        search=Range(0.8, 0.99, "complement"),
        doc="lambda of generalized advantage estimation",
        low=0,
        high=1,
        per_row=True,
    )
    normalize_advantage: bool = setting(False, doc="normalize the advantages of each minibatch")
    shared_trunk: bool = setting(False, doc="one network with a head for the policy and one for the value")
    entropy_coef: float | Schedule = setting(
        0.01, search=Range(1e-5, 0.1, "log"), doc="weight of the entropy bonus", low=0, per_row=True
    )
    value_coef: float | Schedule = setting(
        0.5, search=Range(0.25, 1.0), doc="weight of the critic's loss", low=0, per_row=True
    )
    minibatches: int | None = setting(
        1, doc="gradient steps of an update, each over a part of the rollout; None: rollout / batch_size", low=1
    )


class A2CAlgorithm(ActorCritic):
    """A2C: one pass over each rollout, without clipping, because the policy that acted is the one that learns.

    In a rollout that lags, advantages and targets are those of V-trace, and so is the policy gradient, rho A grad log
    pi with rho = min(1, ratio) (Espeholt et al. 2018, arXiv:1802.01561, section 4.2).
    """

    name = "a2c"
    Settings: ClassVar[type[A2CSettings]] = A2CSettings
    update_freq = 80
    corrects_lag = True

    def compiled_form(self) -> CompiledForm | None:
        """Return the form of acting; the framework makes the gradient steps."""
        return self.acting_form()

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The single phase, which trains all networks."""
        return (Phase("policy", tuple(self.networks()), self._loss),)

    def _traces(self, ops: Ops, nets: Networks, tensors: WholeBatch, hyper: Mapping[str, Any]) -> Array | None:
        """See `ActorCritic`."""
        batch: Any = tensors.batch
        if batch.lag is None:
            return None
        log_ratio = tensors.to_numpy(self._log_ratio(ops, nets, tensors))
        tensors.metrics |= ratio_metrics(log_ratio, batch.fresh_weight)
        if not self.settings.lag_correction:
            return None
        trace = traces(log_ratio)
        tensors.trace = tensors.to_tensor(trace)
        return trace

    def _loss(self, ops: Ops, nets: Networks, batch: Any, hyper: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return L = -log pi(a|s) A + c_v (V(s) - R)^2 / 2 - c_e entropy (Mnih et al. 2016, section 4)."""

        def mean(x: Any) -> Any:
            return weighted_mean(ops, x, batch.weight)

        out, value = self.policy_and_value(nets, batch)
        log_prob, entropy = self.distribution.evaluate(ops, out, batch.legal, batch.action)
        actor_loss = -mean(log_prob * batch.advantage)
        critic_loss = 0.5 * mean(ops.square(value - batch.target))
        bonus = mean(entropy)
        total = actor_loss + hyper["value_coef"][:, 0] * critic_loss - hyper["entropy_coef"][:, 0] * bonus
        return total, {"loss/actor": actor_loss, "loss/critic": critic_loss, "loss/total": total, "entropy": bonus}


@dataclass(frozen=True, kw_only=True)
class A2CArguments(AgentArguments, A2CSettings):
    """Arguments of `A2C`."""


class A2C(LearningAgent):
    """Agent that learns with A2C."""

    algorithm_class = A2CAlgorithm

    @accepts(A2CArguments)
    def __init__(self, *args: Any, **arguments: Any) -> None:
        """Build the agent; see `LearningAgent`."""
        super().__init__(*args, **arguments)
