"""Generative adversarial imitation learning: Ho and Ermon 2016 (arXiv:1606.03476), with PPO."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from marltrain.core.layout import Array
from marltrain.core.settings import setting
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.agents.arguments import AgentArguments, accepts
from marltrain.policies.algorithms.imitation import Expert, action_vector, width_of
from marltrain.policies.algorithms.ppo import PPOAlgorithm, PPOSettings
from marltrain.policies.batches.tensor_batch import WholeBatch
from marltrain.policies.hyperparameters.schedules import Schedule
from marltrain.policies.interface.algorithm import FASTEST, Algorithm, CompiledForm, Networks, Phase, weighted_mean
from marltrain.policies.interface.reward_model import Rewarded, RewardModel
from marltrain.policies.networks.specs import Head, NetworkDefinition
from marltrain.policies.ops import Ops


@dataclass(frozen=True, kw_only=True)
class GAILSettings(PPOSettings):
    """Settings of GAIL; the rewards of the environment have no effect on learning."""

    demonstrations: Any = setting(None, saved=False, doc="marltrain.Demonstrations of the player, or their folder")
    discriminator_network: Any = setting(None, doc="the discriminator's network; None: like the actor's")
    discriminator_learning_rate: float | Schedule = setting(3e-4, doc="the discriminator's step size", low=0,
                                                            high=FASTEST, per_row=True)  # fmt: skip
    discriminator_reward: str = setting(
        "softplus", doc="reward of a logit d: softplus(d) = -log(1 - D), or logit: d", choices=("softplus", "logit")
    )


class Discriminator(RewardModel):
    """D(s, a): the probability that a decision is demonstrated; the policy is rewarded for decisions like these."""

    def __init__(self, expert: Expert, settings: GAILSettings) -> None:
        """Store the demonstrations and the settings."""
        self.expert, self.settings = expert, settings

    def networks(self, algorithm: Algorithm) -> dict[str, NetworkDefinition]:
        """Return the discriminator, whose output is the logit of D."""
        spec = self.settings.discriminator_network or self.settings.network
        vectors = (width_of(algorithm.action_space),)
        return {"discriminator": NetworkDefinition(spec, [Head(1)], algorithm.layout, vectors)}

    def phases(self, algorithm: Algorithm) -> tuple[Phase, ...]:
        """Return the phase that trains the discriminator to tell the policy's decisions from demonstrated ones."""

        def loss(ops: Ops, nets: Networks, batch: Any, hyper: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
            """Return -E_policy[log(1 - D)] - E_expert[log D] (eq. 15, with the labels exchanged)."""
            own = self._logits(nets, batch.obs, batch.action_vector)
            shown = self._logits(nets, batch.expert_obs, batch.expert_action)
            errors = ops.softplus(own) + ops.softplus(-shown)
            right = 0.5 * (ops.flag(own < 0.0) + ops.flag(shown > 0.0))
            total = weighted_mean(ops, errors, batch.weight)
            return total, {
                "loss/discriminator": total,
                "discriminator_accuracy": weighted_mean(ops, right, batch.weight),
            }

        return (Phase("discriminator", ("discriminator",), loss, draw=self.expert.draw),)

    def rewards(self, algorithm: Algorithm, ops: Ops, nets: Networks, tensors: WholeBatch) -> Array:
        """See `RewardModel`; the rows get their actions as vectors, for the phase as well."""
        tensors.action_vector = action_vector(ops, algorithm.action_space, tensors.action)
        logits = self._logits(nets, tensors.obs, tensors.action_vector)
        result = ops.softplus(logits) if self.settings.discriminator_reward == "softplus" else logits
        return np.asarray(tensors.to_numpy(result))

    def _logits(self, nets: Networks, obs: Any, action: Any) -> Any:
        return nets["discriminator"](obs, action)[0][..., 0]


class GAILAlgorithm(Rewarded, PPOAlgorithm):
    """PPO on the rewards of a discriminator, which is trained on the same minibatches."""

    name = "gail"
    replays = False
    Settings: ClassVar[type[GAILSettings]] = GAILSettings

    def __init__(self, *arguments: Any) -> None:
        """Raise ConfigError without demonstrations, AgentError for demonstrations of other spaces."""
        self.discriminator = Discriminator(Expert(self.name, *arguments, as_vectors=True), arguments[0])
        super().__init__(*arguments)

    @property
    def reward_model(self) -> RewardModel:
        """The discriminator."""
        return self.discriminator

    def compiled_form(self) -> CompiledForm | None:
        """Return the form of PPO for acting only."""
        return self.form_for_acting()

    def rate_name(self, network: str) -> str:
        """Return "discriminator_learning_rate" for the discriminator, otherwise the name for PPO."""
        return "discriminator_learning_rate" if network == "discriminator" else super().rate_name(network)


@dataclass(frozen=True, kw_only=True)
class GAILArguments(AgentArguments, GAILSettings):
    """Arguments of `GAIL`."""


class GAIL(LearningAgent):
    """Agent that imitates demonstrations by reinforcement learning."""

    algorithm_class = GAILAlgorithm

    @accepts(GAILArguments)
    def __init__(self, *args: Any, **arguments: Any) -> None:
        """Build the agent; see `LearningAgent`."""
        super().__init__(*args, **arguments)
