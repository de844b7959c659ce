"""Magnetic mirror descent: Sokota et al. 2023 (arXiv:2206.05825), with the advantages of GAE (arXiv:1506.02438)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from marltrain.core.errors import SpecError
from marltrain.core.layout import Layout, Space
from marltrain.core.settings import Range, setting
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.agents.arguments import AgentArguments, accepts
from marltrain.policies.algorithms.actor_critic import ActorCriticSettings
from marltrain.policies.algorithms.central_critic import INPUTS, CentralCritic, CentralCriticSettings
from marltrain.policies.batches.batch import Batch
from marltrain.policies.batches.tensor_batch import WholeBatch
from marltrain.policies.distributions import Continuous
from marltrain.policies.hyperparameters.schedules import Schedule
from marltrain.policies.interface.algorithm import MOST_PASSES, CompiledForm, Networks, Phase, weighted_mean
from marltrain.policies.ops import Ops


@dataclass(frozen=True, kw_only=True)
class MMDSettings(CentralCriticSettings, ActorCriticSettings):
    """Settings of MMD. A smaller temperature, towards the end of a run, brings the policy closer to an equilibrium."""

    critic_input: str = setting(
        "own", doc="own: the player's observation; joint: the observations of all players; state: the environment's "
        "global state (without one: joint); agent_specific: the state and the player's own observation",
        choices=tuple(INPUTS),
    )  # fmt: skip
    normalize_advantage: bool = setting(False, doc="normalize the advantages of each minibatch")
    temperature: float | Schedule = setting(
        0.05, search=Range(1e-3, 1.0, "log"), doc="weight of KL(policy, uniform policy), in units of the reward", low=0,
        per_row=True,
    )  # fmt: skip
    step_size: float | Schedule = setting(
        0.5, search=Range(0.01, 10.0, "log"), doc="1 / weight of KL(policy, policy before the update), over the reward",
        above=0, per_row=True,
    )  # fmt: skip
    value_coef: float | Schedule = setting(
        0.5, search=Range(0.25, 1.0), doc="weight of the critic's loss", low=0, per_row=True
    )
    shared_trunk: bool = setting(False, doc="one network with a head for the policy and one for the value")
    epochs: int = setting(4, doc="passes over each rollout", low=1, high=MOST_PASSES)
    minibatches: int | None = setting(None, doc="minibatches per epoch; None: rollout / batch_size", low=1)


class MMDAlgorithm(CentralCritic):
    """MMD: a step of mirror descent towards higher advantages and towards the magnet, the uniform policy.

    In zero-sum games of two players, the policies converge to the equilibrium of the regularized game. No average over
    earlier policies is taken: the last policy is the result.
    """

    name = "mmd"
    Settings: ClassVar[type[MMDSettings]] = MMDSettings
    reads_arrays = False

    def __init__(self, settings: MMDSettings, layout: Layout, action_space: Space) -> None:
        """Raise SpecError for continuous actions: a normal distribution over them has no uniform magnet."""
        super().__init__(settings, layout, action_space)
        if isinstance(self.distribution, Continuous):
            raise SpecError(
                f"MMD needs a Discrete or MultiDiscrete action space, got {action_space}: its magnet is the uniform "
                "policy over the actions. PPO and SAC take Box actions"
            )

    def compiled_form(self) -> CompiledForm | None:
        """Return the form of acting."""
        return self.acting_form()

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The single phase, which trains all networks."""
        return (Phase("policy", tuple(self.networks()), self._loss),)

    def prepare(
        self, ops: Ops, nets: Networks, batch: Batch, tensors: WholeBatch, hyper: Mapping[str, Any]
    ) -> WholeBatch:
        """Add the columns of the base, and the outputs `old` of the policy before the update."""
        tensors = super().prepare(ops, nets, batch, tensors, hyper)
        tensors.old = self.policy(nets, tensors)
        return tensors

    def _loss(self, ops: Ops, nets: Networks, batch: Any, hyper: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return -ratio A + temperature KL(pi, uniform) + KL(pi, old) / step_size + c_v (V - R)^2 / 2 (eq. 5).

        KL(pi, uniform) over the legal actions is their number's logarithm, a constant, less the entropy.
        """

        def mean(x: Any) -> Any:
            return weighted_mean(ops, x, batch.weight)

        out, value = self.policy_and_value(nets, batch)
        log_prob, entropy = self.distribution.evaluate(ops, out, batch.legal, batch.action)
        actor_loss = -mean(ops.exp(log_prob - batch.log_prob) * batch.advantage)
        critic_loss = 0.5 * mean(ops.square(value - batch.target))
        kl, bonus = mean(self.distribution.kl(ops, out, batch.old, batch.legal)), mean(entropy)
        total = actor_loss - hyper["temperature"][:, 0] * bonus + kl / hyper["step_size"][:, 0]
        total = total + hyper["value_coef"][:, 0] * critic_loss
        return total, {
            "loss/actor": actor_loss, "loss/critic": critic_loss, "loss/total": total, "entropy": bonus, "kl": kl,
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class MMDArguments(AgentArguments, MMDSettings):
    """Arguments of `MMD`."""


class MMD(LearningAgent):
    """Agent that learns with magnetic mirror descent."""

    algorithm_class = MMDAlgorithm

    @accepts(MMDArguments)
    def __init__(self, *args: Any, **arguments: Any) -> None:
        """Build the agent; see `LearningAgent`."""
        super().__init__(*args, **arguments)
