"""Shared-experience actor-critic: Christianos et al. 2020 (arXiv:2006.07169)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from marltrain.core.layout import Layout, Space
from marltrain.core.settings import setting
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.agents.arguments import AgentArguments, accepts
from marltrain.policies.algorithms.a2c import A2CAlgorithm, A2CSettings
from marltrain.policies.algorithms.lagging import check_correction
from marltrain.policies.batches.batch import Batch, Rollout
from marltrain.policies.batches.tensor_batch import WholeBatch
from marltrain.policies.hyperparameters.schedules import Schedule
from marltrain.policies.interface.algorithm import CompiledForm, Networks, weighted_mean
from marltrain.policies.memory.needs import Needs
from marltrain.policies.ops import Ops


@dataclass(frozen=True, kw_only=True)
class SEACSettings(A2CSettings):
    """Settings of SEAC: those of A2C, and the weight of the other agents' rows."""

    shared_coef: float | Schedule = setting(
        1.0, doc="weight of the losses on the rows of each other agent (lambda)", low=0, per_row=True
    )


class SEACAlgorithm(A2CAlgorithm):
    """SEAC: A2C on the agent's own rows, and on those of the agents that are computed together with it.

    The rows of another agent are weighted by pi(a|o) / mu(a|o), for the policy mu of the agent that acted.
    """

    name = "seac"
    reads_arrays = False
    corrects_lag = False  # its loss corrects for the rows of other agents only
    Settings: ClassVar[type[SEACSettings]] = SEACSettings
    recurrent = ()  # the carries of another agent's rows are those of its networks

    def __init__(self, settings: SEACSettings, layout: Layout, action_space: Space) -> None:
        """See `A2CAlgorithm`; raises ConfigError for `lag_correction`, as rollouts that lag are refused."""
        super().__init__(settings, layout, action_space)
        check_correction(settings, self.name, "on an algorithm that does not learn from rollouts that lag")

    def compiled_form(self) -> CompiledForm | None:
        """Return the form of acting; the framework makes the gradient steps."""
        return self.acting_form()

    def needs(self) -> Needs:
        """Return those of A2C, and the rows of the other agents."""
        return replace(super().needs(), shared=True)

    def prepare(
        self, ops: Ops, nets: Networks, batch: Batch, tensors: WholeBatch, hyper: Mapping[str, Any]
    ) -> WholeBatch:
        """Add `own_weight` and `other_weight`: with them, the mean over all rows is one over the own rows.

        To this mean, the rows of each other agent are added as a mean of the same size times `shared_coef`.
        """
        tensors = super().prepare(ops, nets, batch, tensors, hyper)
        own = np.ones(batch.weight.shape, bool) if not isinstance(batch, Rollout) or batch.own is None else batch.own
        total, held = batch.weight.sum(1), (batch.weight * own).sum(1)
        scale = np.where(held > 0, total / np.maximum(held, 1e-8), 1.0)[:, None].astype(np.float32)
        coef = tensors.to_numpy(hyper["shared_coef"])
        tensors.own_weight = tensors.to_tensor(np.where(own, scale, np.float32(0)))
        tensors.other_weight = tensors.to_tensor(np.where(own, np.float32(0), coef * scale))
        return tensors

    def _loss(self, ops: Ops, nets: Networks, batch: Any, hyper: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return A2C's loss with importance weights on the rows of others (Christianos et al. 2020, eqs. 4 and 5).

        The entropy is that of the own rows.
        """

        def mean(x: Any) -> Any:
            return weighted_mean(ops, x, batch.weight)

        out, value = self.policy_and_value(nets, batch)
        log_prob, entropy = self.distribution.evaluate(ops, out, batch.legal, batch.action)
        ratio = ops.stop_gradient(ops.exp(log_prob - batch.log_prob))
        weight = batch.own_weight + batch.other_weight * ratio
        actor_loss = -mean(weight * log_prob * batch.advantage)
        critic_loss = 0.5 * mean(weight * ops.square(value - batch.target))
        bonus = mean(batch.own_weight * entropy)
        total = actor_loss + hyper["value_coef"][:, 0] * critic_loss - hyper["entropy_coef"][:, 0] * bonus
        return total, {"loss/actor": actor_loss, "loss/critic": critic_loss, "loss/total": total, "entropy": bonus}


@dataclass(frozen=True, kw_only=True)
class SEACArguments(AgentArguments, SEACSettings):
    """Arguments of `SEAC`."""


class SEAC(LearningAgent):
    """Agent that learns with SEAC."""

    algorithm_class = SEACAlgorithm

    @accepts(SEACArguments)
    def __init__(self, *args: Any, **arguments: Any) -> None:
        """Build the agent; see `LearningAgent`."""
        super().__init__(*args, **arguments)
