"""Behavior cloning: supervised learning of demonstrated actions (Pomerleau 1989; Bain and Sammut 1995)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from marltrain.core.layout import Array, Layout, Space
from marltrain.core.settings import Range, setting
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.agents.arguments import AgentArguments, accepts
from marltrain.policies.algorithms.imitation import Expert
from marltrain.policies.batches.batch import Acted, ActInputs
from marltrain.policies.distributions import Continuous, distribution_of, policy_numbers_of
from marltrain.policies.hyperparameters.schedules import Schedule
from marltrain.policies.interface.algorithm import (
    FASTEST,
    MOST_PASSES,
    Algorithm,
    Networks,
    Phase,
    Settings,
    weighted_mean,
)
from marltrain.policies.memory.needs import Needs
from marltrain.policies.networks.specs import NetworkDefinition
from marltrain.policies.ops import Ops


@dataclass(frozen=True, kw_only=True)
class BCSettings(Settings):
    """Settings of behavior cloning; the rewards of the environment have no effect."""

    demonstrations: Any = setting(None, saved=False, doc="marltrain.Demonstrations of the player, or their folder")
    learning_rate: float | Schedule = setting(
        1e-3, search=Range(1e-5, 1e-2, "log"), doc="step size", low=0, high=FASTEST, per_row=True
    )
    entropy_coef: float | Schedule = setting(
        1e-3, search=Range(1e-5, 0.1, "log"), doc="weight of the entropy bonus", low=0, per_row=True
    )
    update_per_step: float = setting(0.5, doc="gradient steps per env step; fractions are carried over", above=0,
                                     high=MOST_PASSES)  # fmt: skip
    log_std: float = setting(-1.0, doc="initial log standard deviations of continuous actions", low=-20, high=20)


class BCAlgorithm(Algorithm):
    """A policy that maximizes the log-probability of the demonstrated actions.

    Env steps only set the pace: every update is a batch of random demonstrated decisions.
    """

    name = "bc"
    Settings: ClassVar[type[BCSettings]] = BCSettings
    on_policy = False
    acts_in_numpy = noise_by_rows = True

    def __init__(self, settings: BCSettings, layout: Layout, action_space: Space) -> None:
        """Raise ConfigError without demonstrations, AgentError for demonstrations of other spaces."""
        super().__init__(settings, layout, action_space)
        self.distribution = distribution_of(action_space, settings.log_std)
        self.policy_numbers, self.sampling = policy_numbers_of(self.distribution, "actor"), self.distribution.sampling
        self.units = self.distribution if isinstance(self.distribution, Continuous) else None
        self.expert = Expert(self.name, settings, layout, action_space)

    def networks(self) -> dict[str, NetworkDefinition]:
        """Return the actor."""
        return {"actor": NetworkDefinition(self.settings.network, [self.distribution.head(0.01)], self.layout)}

    def needs(self) -> Needs:
        """Return the smallest memory: updates do not read it."""
        return Needs(on_policy=False, capacity=1)

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The single phase, which trains the actor on demonstrations."""
        return (Phase("policy", ("actor",), self._loss, draw=self.expert.draw),)

    def noise(self, rngs: Sequence[np.random.Generator], rows: int) -> dict[str, Array]:
        """Draw the sampling noise of the distribution."""
        return {"sample": self.distribution.noise(rngs, rows)}

    def act(self, ops: Ops, nets: Networks, inputs: ActInputs) -> Acted:
        """Return actions, sampled where `explore` and the mode elsewhere."""
        (out,) = nets["actor"](inputs.obs)
        action, _, _ = self.distribution.sample(ops, out, inputs.legal, inputs.noise["sample"], inputs.explore)
        return Acted(action)

    def _loss(self, ops: Ops, nets: Networks, batch: Any, hyper: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return the negative mean log-probability of the demonstrated actions, less the entropy bonus."""
        (out,) = nets["actor"](batch.expert_obs)
        action, legal = batch.expert_action, getattr(batch, "expert_legal", None)
        if isinstance(self.distribution, Continuous):
            action = self.distribution.scaled(ops, action)
        log_prob, entropy = self.distribution.evaluate(ops, out, legal, action)
        likelihood, bonus = (weighted_mean(ops, x, batch.weight) for x in (log_prob, entropy))
        loss = -likelihood - hyper["entropy_coef"][:, 0] * bonus
        return loss, {"loss/total": loss, "log_prob": likelihood, "entropy": bonus}


@dataclass(frozen=True, kw_only=True)
class BCArguments(AgentArguments, BCSettings):
    """Arguments of `BC`."""


class BC(LearningAgent):
    """Agent that imitates demonstrations."""

    algorithm_class = BCAlgorithm

    @accepts(BCArguments)
    def __init__(self, *args: Any, **arguments: Any) -> None:
        """Build the agent; see `LearningAgent`."""
        super().__init__(*args, **arguments)
