"""Trust region policy optimization: Schulman et al. 2015 (arXiv:1502.05477), with GAE (arXiv:1506.02438)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from marltrain.core.settings import Range, setting
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.agents.arguments import AgentArguments, accepts
from marltrain.policies.algorithms.actor_critic import ActorCritic, ActorCriticSettings
from marltrain.policies.batches.tensor_batch import TensorBatch
from marltrain.policies.hyperparameters.schedules import Schedule
from marltrain.policies.interface.algorithm import FASTEST, MOST_PASSES, CompiledForm, Networks, Phase, weighted_mean
from marltrain.policies.interface.natural_gradient import NaturalGradient
from marltrain.policies.ops import Ops


@dataclass(frozen=True, kw_only=True)
class TRPOSettings(ActorCriticSettings):
    """Settings of TRPO; `epochs` and `minibatches` are those of the critic."""

    learning_rate: float | Schedule = setting(
        1e-3, search=Range(1e-5, 1e-2, "log"), doc="the critic's step size", low=0, high=FASTEST, per_row=True
    )
    max_kl: float | Schedule = setting(
        0.01,
        search=Range(0.001, 0.1, "log"),
        doc="trust region: largest mean KL divergence of a step",
        above=0,
        per_row=True,
    )
    damping: float | Schedule = setting(0.1, doc="multiple of the identity added to the Fisher matrix", low=0,
                                        per_row=True)  # fmt: skip
    cg_iterations: int = setting(10, doc="iterations of the conjugate gradient method", low=1, high=MOST_PASSES)
    line_search_steps: int = setting(10, doc="step sizes that the line search tries", low=1, high=MOST_PASSES)
    line_search_shrink: float = setting(0.8, doc="ratio of a step size to the one before", low=0.01, high=0.99)
    epochs: int = setting(10, doc="passes of the critic over each rollout", low=1, high=MOST_PASSES)
    minibatches: int | None = setting(None, doc="minibatches per epoch; None: rollout / batch_size", low=1)


class TRPOAlgorithm(ActorCritic):
    """TRPO: one natural gradient step of the actor on the whole rollout, then several epochs of the critic."""

    name = "trpo"
    Settings: ClassVar[type[TRPOSettings]] = TRPOSettings
    recurrent = ()

    def compiled_form(self) -> CompiledForm | None:
        """Return the form of acting; the framework makes the steps."""
        return self.acting_form()

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The step of the actor within the trust region, and the gradient steps of the critic."""
        settings = self.settings
        natural = NaturalGradient(
            self._kl, iterations=settings.cg_iterations, tries=settings.line_search_steps,
            shrink=settings.line_search_shrink,
        )  # fmt: skip
        return (
            Phase("actor", ("actor",), self._surrogate, self._old_policy, natural=natural),
            Phase("critic", ("critic",), self._critic_loss),
        )

    def _old_policy(self, ops: Ops, nets: Networks, batch: TensorBatch, hyper: Mapping[str, Any]) -> None:
        """Add `old`, the outputs of the policy before the step."""
        batch.old = self.policy(nets, batch)

    def _surrogate(self, ops: Ops, nets: Networks, batch: Any, hyper: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return -mean(pi(a|s) / pi_old(a|s) A): Schulman et al. 2015, eq. 14, sign for descent."""
        out = self.policy(nets, batch)
        log_prob, entropy = self.distribution.evaluate(ops, out, batch.legal, batch.action)
        ratio = ops.exp(log_prob - batch.log_prob)
        loss = -weighted_mean(ops, ratio * batch.advantage, batch.weight)
        return loss, {"loss/actor": loss, "entropy": weighted_mean(ops, entropy, batch.weight)}

    def _kl(self, ops: Ops, nets: Networks, batch: Any, hyper: Mapping[str, Any]) -> Any:
        """Return the mean of KL(pi_old, pi) over the rows."""
        out = self.policy(nets, batch)
        return weighted_mean(ops, self.distribution.kl(ops, batch.old, out, batch.legal), batch.weight)

    def _critic_loss(
        self, ops: Ops, nets: Networks, batch: Any, hyper: Mapping[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """Return the mean squared error of the values."""
        errors = ops.square(self.value(nets, batch) - batch.target)
        loss = weighted_mean(ops, errors, batch.weight)
        return loss, {"loss/critic": loss}


@dataclass(frozen=True, kw_only=True)
class TRPOArguments(AgentArguments, TRPOSettings):
    """Arguments of `TRPO`."""


class TRPO(LearningAgent):
    """Agent that learns with TRPO."""

    algorithm_class = TRPOAlgorithm

    @accepts(TRPOArguments)
    def __init__(self, *args: Any, **arguments: Any) -> None:
        """Build the agent; see `LearningAgent`."""
        super().__init__(*args, **arguments)
