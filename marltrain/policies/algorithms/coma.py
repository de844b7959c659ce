"""COMA, counterfactual multi-agent policy gradients: Foerster et al. 2018 (arXiv:1705.08926)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from marltrain.core.errors import ConfigError, SpecError
from marltrain.core.layout import Array, Layout, Space
from marltrain.core.settings import Range, setting
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.agents.arguments import AgentArguments, accepts
from marltrain.policies.algorithms.central_critic import MOST_VALUES, CentralCriticSettings, CentralInput
from marltrain.policies.batches.batch import Acted, ActInputs, Batch, Rollout
from marltrain.policies.batches.tensor_batch import WholeBatch
from marltrain.policies.distributions import Categorical
from marltrain.policies.distributions.categorical import masked
from marltrain.policies.hyperparameters.schedules import Schedule, linear
from marltrain.policies.interface.algorithm import FASTEST, Algorithm, Networks, Phase, Settings, weighted_mean
from marltrain.policies.memory.needs import Needs
from marltrain.policies.networks.specs import MLP, Head, NetworkDefinition
from marltrain.policies.ops import Ops
from marltrain.policies.optimizers import OPTIMIZERS

SMALL = 1e-20
"""Smallest probability of an action, against the logarithm of 0."""


@dataclass(frozen=True, kw_only=True)
class COMASettings(CentralCriticSettings, Settings):
    """Settings of COMA; the defaults are those of the paper, with fully connected networks."""

    reads_joint_actions: ClassVar[bool] = True

    learning_rate: float | Schedule = setting(
        5e-4, search=Range(1e-5, 1e-2, "log"), doc="step size of all networks", low=0, high=FASTEST, per_row=True
    )
    critic_learning_rate: float | Schedule | None = setting(None, doc="the critic's step size; None: learning_rate",
                                                           low=0, high=FASTEST, per_row=True)  # fmt: skip
    max_grad_norm: float | None = setting(10.0, doc="largest gradient norm of an agent; None: not clipped", above=0,
                                          per_row=True)  # fmt: skip
    optimizer: str = setting("rmsprop", doc="adam, adamw, adamax, rmsprop or sgd", choices=tuple(OPTIMIZERS))
    critic_input: str = setting(
        "agent_specific", doc="beside the other players' actions, the critic reads: the global state and the player's "
        "own observation (agent_specific), the state, the observations of all players (joint), or its own (own)",
        choices=("state", "joint", "agent_specific", "own"),
    )  # fmt: skip
    joint_action_size: int | None = setting(
        None, doc="values of the actions of all players; `make_agents` sets it", low=1, high=MOST_VALUES
    )
    critic_network: Any = setting(
        None, doc="the critic's network; None: two layers of 128 ReLU units, for images the actor's"
    )
    td_lambda: float | Schedule = setting(
        0.8,
        search=Range(0.5, 0.99, "complement"),
        doc="lambda of the critic's targets TD(lambda)",
        low=0,
        high=1,
        per_row=True,
    )
    target_sync: int = setting(150, doc="updates between copies of the critic to its target network", low=1)
    epsilon: float | Schedule = setting(
        linear(0.5, 0.02, 100_000), doc="share of the uniform distribution in the policy", low=0, high=1, per_row=True
    )
    entropy_coef: float | Schedule = setting(
        0.0, search=Range(1e-5, 0.1, "log"), doc="weight of the entropy bonus", low=0, per_row=True
    )
    minibatches: int | None = setting(
        1, doc="gradient steps of an update, each over a part of the rollout; None: rollout / batch_size", low=1
    )


class COMAAlgorithm(Algorithm):
    """COMA: the critic Q(s, u_others, .) has a value for each own action, given the other players' actions.

    The advantage of the action is its value less the mean of all own actions' values under the policy. The policy is
    (1 - epsilon) softmax(logits) + epsilon / legal actions, in acting and in the advantage.

    The critic's targets are TD(lambda) returns from the target network's values of the actions that were taken, as in
    SARSA(lambda). After a truncation, and after the last row of a rollout, no joint action is known: such a row trains
    the policy but not the critic, and the row before it bootstraps from the row's value.
    """

    name = "coma"
    Settings: ClassVar[type[COMASettings]] = COMASettings
    on_policy = True
    acts_in_numpy = noise_by_rows = True
    reads_arrays = False
    optimizer_epsilon = 1e-5
    update_freq = 400

    def __init__(self, settings: COMASettings, layout: Layout, action_space: Space) -> None:
        """Raise SpecError unless actions are Discrete, ConfigError without the sizes of states and joint actions."""
        super().__init__(settings, layout, action_space)
        if not isinstance(action_space, spaces.Discrete):
            raise SpecError(
                f"COMA needs a Discrete action space, whose values its critic compares, got {action_space}; MAPPO "
                "takes all kinds"
            )
        self.input = CentralInput(self.name, settings, layout)
        if settings.joint_action_size is None:
            raise ConfigError(
                f"{self.name}: the critic reads the actions of all players, whose number of values the agent must "
                f"know: make_agents({self.name!r}, env) gives it, or joint_action_size= does"
            )
        self.joint_action_size = settings.joint_action_size
        self.distribution = Categorical(action_space)
        self.policy_numbers, self.sampling = self._policy_numbers, self.distribution.sampling

    def networks(self) -> dict[str, NetworkDefinition]:
        """Return the actor, and the critic with one output for each own action."""
        actor, head = self.settings.network, Head(self.distribution.choices)
        critic = self.settings.critic_network or (actor if self.layout.images else MLP((128, 128), "relu"))
        return {
            "actor": NetworkDefinition(actor, [self.distribution.head(0.01)], self.layout),
            "critic": self.input.network(critic, [head], (self.joint_action_size,)),
        }

    def targets(self) -> tuple[str, ...]:
        """Return the name of the critic, which has a target network."""
        return ("critic",)

    def target_share(self, updates: Array, hyper: Mapping[str, Array]) -> Array:
        """Return 1 on every `target_sync`-th update and 0 otherwise."""
        return (updates % self.settings.target_sync == 0).astype(np.float64)

    def statistics(self) -> dict[str, int]:
        """Return those of the base, and of the state with `normalize_observations`."""
        return super().statistics() | self.input.statistics(self.settings)

    def needs(self) -> Needs:
        """Return `Needs` for on-policy learning with the global state and the actions of all players."""
        return Needs(on_policy=True, state=self.input.need, joint_actions=self.joint_action_size)

    def rate_name(self, network: str) -> str:
        """Return "critic_learning_rate" for the critic if it is set, otherwise "learning_rate"."""
        own = network == "critic" and self.settings.critic_learning_rate is not None
        return "critic_learning_rate" if own else "learning_rate"

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The critic, then the actor, whose advantages are those of the critic after its step."""
        return (
            Phase("critic", ("critic",), self._critic_loss),
            Phase("actor", ("actor",), self._actor_loss, targets=self._advantages),
        )

    def noise(self, rngs: Sequence[np.random.Generator], rows: int) -> dict[str, Array]:
        """Draw the sampling noise of the policy."""
        return {"sample": self.distribution.noise(rngs, rows)}

    def act(self, ops: Ops, nets: Networks, inputs: ActInputs) -> Acted:
        """Return actions, sampled where `explore` and the most likely ones elsewhere."""
        logits = ops.log(self.probabilities(ops, nets, inputs.obs, inputs.legal, inputs.hyper))
        return Acted(self.distribution.sample(ops, logits, inputs.legal, inputs.noise["sample"], inputs.explore)[0])

    def _policy_numbers(self, ops: Ops, nets: Networks, inputs: ActInputs) -> dict[str, Any]:
        """Return the probabilities of the actions."""
        return {"probabilities": self.probabilities(ops, nets, inputs.obs, inputs.legal, inputs.hyper)}

    def probabilities(self, ops: Ops, nets: Networks, obs: Any, legal: Any, hyper: Mapping[str, Any]) -> Any:
        """Return the policy's probabilities [K, B, A], at least `SMALL`."""
        logits, epsilon = nets["actor"](obs)[0], hyper["epsilon"][..., None]
        policy, uniform = (ops.softmax(masked(ops, x, legal), -1) for x in (logits, ops.zeros_like(logits)))
        return ops.maximum((1.0 - epsilon) * policy + epsilon * uniform, ops.zeros_like(logits) + SMALL)

    def values(self, nets: Networks, batch: Any, critic: str = "critic") -> Any:
        """Return the values of all own actions, given the other players' actions, [K, B, A]."""
        return nets[critic](*self.input.of(batch.obs, batch.state), batch.others)[0]

    def prepare(
        self, ops: Ops, nets: Networks, batch: Batch, tensors: WholeBatch, hyper: Mapping[str, Any]
    ) -> WholeBatch:
        """Add `target` (TD(lambda)), `critic_weight`, by which rows train the critic, and metrics of the rollout."""
        from marltrain.policies.algorithms.returns import gae, rollout_metrics

        if not isinstance(batch, Rollout):
            raise TypeError(f"{self.name} learns from a Rollout, got {type(batch).__name__}")
        value = tensors.to_numpy(ops.take(self.values(nets, tensors, "target_critic"), tensors.action))
        known = (batch.weight > 0) & (~batch.cut | (batch.discount == 0))
        following, cut = np.roll(value, -1, 1), batch.cut | ~np.roll(known, -1, 1)
        lam = tensors.to_numpy(hyper["td_lambda"])[:, 0]
        target = gae(batch.reward, batch.discount, value, following, cut, lam) + value
        weight = batch.weight * known
        # the mean over all rows becomes one over the known rows
        scale = batch.weight.sum(1) / np.maximum(weight.sum(1), 1e-8)
        tensors.metrics |= rollout_metrics(batch, value, np.where(known, target, value))
        tensors.target = tensors.to_tensor(np.where(known, target, np.float32(0)))
        tensors.critic_weight = tensors.to_tensor((known * scale[:, None]).astype(np.float32))
        return tensors

    def _critic_loss(
        self, ops: Ops, nets: Networks, batch: Any, hyper: Mapping[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """Return the mean of (Q(s, u) - y)^2 / 2 over the rows with a target y (Foerster et al. 2018, eq. 3)."""
        q = ops.take(self.values(nets, batch), batch.action)
        loss = 0.5 * weighted_mean(ops, batch.critic_weight * ops.square(q - batch.target), batch.weight)
        return loss, {"loss/critic": loss}

    def _advantages(self, ops: Ops, nets: Networks, batch: Any, hyper: Mapping[str, Any]) -> None:
        """Add the advantage Q(s, u) - sum_a pi(a|o) Q(s, (u_others, a)) (Foerster et al. 2018, eq. 4)."""
        q, policy = self.values(nets, batch), self.probabilities(ops, nets, batch.obs, batch.legal, hyper)
        batch.advantage = ops.take(q, batch.action) - ops.sum(policy * q, -1)

    def _actor_loss(self, ops: Ops, nets: Networks, batch: Any, hyper: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return L = -log pi(u|o) A - c_e entropy (Foerster et al. 2018, eq. 7, sign for descent)."""
        log_policy = ops.log(self.probabilities(ops, nets, batch.obs, batch.legal, hyper))
        loss = -weighted_mean(ops, ops.take(log_policy, batch.action) * batch.advantage, batch.weight)
        bonus = weighted_mean(ops, -ops.sum(ops.exp(log_policy) * log_policy, -1), batch.weight)
        return loss - hyper["entropy_coef"][:, 0] * bonus, {"loss/actor": loss, "entropy": bonus}


@dataclass(frozen=True, kw_only=True)
class COMAArguments(AgentArguments, COMASettings):
    """Arguments of `COMA`."""


class COMA(LearningAgent):
    """Agent that learns with COMA."""

    algorithm_class = COMAAlgorithm

    @accepts(COMAArguments)
    def __init__(self, *args: Any, **arguments: Any) -> None:
        """Build the agent; see `LearningAgent`."""
        super().__init__(*args, **arguments)
