"""Actor-critic with experience replay: Wang et al. 2017 (arXiv:1611.01224), with Retrace (arXiv:1606.02647)."""

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
from marltrain.policies.batches.batch import Acted, ActInputs, Batch, Rollout
from marltrain.policies.batches.tensor_batch import TensorBatch, WholeBatch
from marltrain.policies.distributions import Categorical, masked, policy_numbers_of
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
from marltrain.policies.memory.config import LONGEST, MOST_STEPS
from marltrain.policies.memory.needs import Column, Needs
from marltrain.policies.networks.specs import Head, NetworkDefinition, NetworkSpec
from marltrain.policies.ops import Ops

SMALL = 1e-6
"""Added to probabilities in denominators."""


@dataclass(frozen=True, kw_only=True)
class ACERSettings(Settings):
    """Settings of ACER; `update_freq` is the length of a rollout, `batch_size` the rows of a replayed batch."""

    learning_rate: float | Schedule = setting(
        7e-4, search=Range(1e-5, 1e-2, "log"), doc="step size of all networks", low=0, high=FASTEST, per_row=True
    )
    max_grad_norm: float | None = setting(10.0, doc="largest gradient norm of an agent; None: not clipped", above=0,
                                          per_row=True)  # fmt: skip
    replay_ratio: int = setting(4, doc="replayed batches after each rollout", low=0, high=MOST_PASSES)
    capacity: int = setting(50_000, doc="size of the replay memory in env steps", low=1, high=MOST_STEPS)
    sequence_length: int = setting(20, doc="decisions of a replayed sequence", low=1, high=LONGEST)
    truncation: float | Schedule = setting(10.0, doc="largest importance weight c; the rest is corrected for its bias",
                                           above=0, per_row=True)  # fmt: skip
    trust_region: float | None = setting(
        1.0, doc="delta: largest rate at which a step leaves the average policy; None: no limit", above=0, per_row=True
    )
    average_decay: float | Schedule = setting(0.99, doc="decay of the average policy per update", low=0, high=1,
                                              per_row=True)  # fmt: skip
    entropy_coef: float | Schedule = setting(
        0.01, search=Range(1e-5, 0.1, "log"), doc="weight of the entropy bonus", low=0, per_row=True
    )
    value_coef: float | Schedule = setting(
        0.5, search=Range(0.25, 1.0), doc="weight of the critic's loss", low=0, per_row=True
    )
    minibatches: int = setting(1, doc="gradient steps of an update, each over a part of its rows", low=1)
    critic_network: Any = setting(None, doc="the critic's network; None: like the actor's")


class ACERAlgorithm(Algorithm):
    """ACER for Discrete actions: an actor, its average, and a critic Q; learns from rollouts and from replay."""

    name = "acer"
    Settings: ClassVar[type[ACERSettings]] = ACERSettings
    on_policy = corrects_lag = True
    acts_in_numpy = noise_by_rows = True
    reads_arrays = False
    optimizer_epsilon = 1e-5

    def __init__(self, settings: ACERSettings, layout: Layout, action_space: Space) -> None:
        """Raise SpecError for actions that are not Discrete, ConfigError for a custom actor without a critic."""
        super().__init__(settings, layout, action_space)
        if not isinstance(action_space, spaces.Discrete):
            raise SpecError(
                f"ACER needs a Discrete action space, got {action_space}; PPO and TRPO take all three kinds"
            )
        if settings.critic_network is None and not isinstance(settings.network, NetworkSpec):
            raise ConfigError(
                f"{self.name}: network={type(settings.network).__name__} is a model of your own and only the actor; "
                "give the critic's too with critic_network= (a model with one output per action, or MLP() or CNN())"
            )
        self.distribution = Categorical(action_space)
        self.policy_numbers, self.sampling = policy_numbers_of(self.distribution, "actor"), self.distribution.sampling

    def networks(self) -> dict[str, NetworkDefinition]:
        """Return the actor (logits) and the critic (action values)."""
        critic = self.settings.critic_network or self.settings.network
        return {
            "actor": NetworkDefinition(self.settings.network, [self.distribution.head(0.01)], self.layout),
            "critic": NetworkDefinition(critic, [Head(self.distribution.choices)], self.layout),
        }

    def targets(self) -> tuple[str, ...]:
        """Return the name of the actor, whose target network is the average policy."""
        return ("actor",)

    def target_share(self, updates: Array, hyper: Mapping[str, Array]) -> Array:
        """Return 1 - average_decay."""
        return np.broadcast_to(1.0 - np.asarray(hyper["average_decay"]), updates.shape)

    def needs(self) -> Needs:
        """Return `Needs` for rollouts and replayed sequences, with the probabilities of all actions."""
        return Needs(
            on_policy=True, columns={"probs": Column((self.distribution.choices,))}, capacity=self.settings.capacity,
            sequence=self.settings.sequence_length,
        )  # fmt: skip

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The single phase, which trains both networks."""
        return (Phase("policy", ("actor", "critic"), self._loss, self._average),)

    def noise(self, rngs: Sequence[np.random.Generator], rows: int) -> dict[str, Array]:
        """Draw the sampling noise of the distribution."""
        return {"sample": self.distribution.noise(rngs, rows)}

    def act(self, ops: Ops, nets: Networks, inputs: ActInputs) -> Acted:
        """Return actions, sampled where `explore` and the mode elsewhere, and the policy's probabilities as extras."""
        (logits,) = nets["actor"](inputs.obs)
        action, _, _ = self.distribution.sample(ops, logits, inputs.legal, inputs.noise["sample"], inputs.explore)
        return Acted(action, extras={"probs": ops.softmax(masked(ops, logits, inputs.legal), -1)})

    def prepare(
        self, ops: Ops, nets: Networks, batch: Batch, tensors: WholeBatch, hyper: Mapping[str, Any]
    ) -> WholeBatch:
        """Add `target`, the Retrace values of the actions taken, and `behavior`, the probabilities that acted."""
        from marltrain.policies.algorithms.returns import next_values, retrace

        if not isinstance(batch, Rollout):
            raise TypeError(f"{self.name} learns from a Rollout, got {type(batch).__name__}")
        policy, q = self._policy_and_values(ops, nets, tensors.obs, tensors.legal)
        boot_policy, boot_q = self._policy_and_values(ops, nets, tensors.boot_obs, tensors.boot_legal)
        value, boot = (tensors.to_numpy(ops.sum(p * v, -1)) for p, v in ((policy, q), (boot_policy, boot_q)))
        tensors.behavior = tensors.extras["probs"]
        ratio = ops.take(policy, tensors.action) / (ops.take(tensors.behavior, tensors.action) + SMALL)
        target = retrace(
            batch.reward, batch.discount, tensors.to_numpy(ops.take(q, tensors.action)),
            next_values(value, boot, batch.boot), np.minimum(tensors.to_numpy(ratio), 1.0), batch.cut,
        )  # fmt: skip
        tensors.target = tensors.to_tensor(target)
        return tensors

    def _policy_and_values(self, ops: Ops, nets: Networks, obs: Any, legal: Any) -> tuple[Any, Any]:
        """Return the probabilities of the actor and the values of the critic, each [K, B, A]."""
        return ops.softmax(masked(ops, nets["actor"](obs)[0], legal), -1), nets["critic"](obs)[0]

    def _average(self, ops: Ops, nets: Networks, batch: TensorBatch, hyper: Mapping[str, Any]) -> None:
        """Add `average`, the probabilities of the average policy."""
        batch.average = ops.softmax(masked(ops, nets["target_actor"](batch.obs)[0], batch.legal), -1)

    def _loss(self, ops: Ops, nets: Networks, batch: Any, hyper: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return -z f + c_v (Q - Q_ret)^2 / 2 - c_e entropy, with the gradient z of `policy_gradient` as a constant."""

        def mean(x: Any) -> Any:
            return weighted_mean(ops, x, batch.weight)

        logits, q = nets["actor"](batch.obs)[0], nets["critic"](batch.obs)[0]
        _, entropy = self.distribution.evaluate(ops, logits, batch.legal, batch.action)
        policy, taken_q = ops.softmax(masked(ops, logits, batch.legal), -1), ops.take(q, batch.action)
        taken, others = policy_gradient(
            ops, ops.stop_gradient(policy), batch.behavior, ops.stop_gradient(q), batch.target, batch.action,
            hyper["truncation"],
        )  # fmt: skip
        if self.settings.trust_region is not None:
            held = ops.stop_gradient(policy)
            others = within_trust_region(ops, taken, others, held, batch.average, batch.action, hyper["trust_region"])
        actor_loss = -mean(taken * ops.take(policy, batch.action) + ops.sum(others * policy, -1))
        critic_loss = 0.5 * mean(ops.square(taken_q - batch.target))
        bonus = mean(entropy)
        total = actor_loss + hyper["value_coef"][:, 0] * critic_loss - hyper["entropy_coef"][:, 0] * bonus
        return total, {
            "loss/actor": actor_loss, "loss/critic": critic_loss, "loss/total": total, "entropy": bonus,
            "q_mean": mean(taken_q),
        }  # fmt: skip


def policy_gradient(
    ops: Ops, policy: Any, behavior: Any, q: Any, target: Any, action: Any, truncation: Any
) -> tuple[Any, Any]:
    """Return the gradient with respect to the probabilities: of the action taken [K, B], of all actions [K, B, A].

    The truncated part is min(c, ratio) (Q_ret - V) / f(a) for the action taken. The correction of its bias is
    max(0, 1 - c / ratio) (Q - V) for every action: Wang et al. 2017, eq. 7 and 9.

    policy, behavior, q: [K, B, A].  target, action: [K, B].  truncation: c, [K, 1].
    """
    value = ops.sum(policy * q, -1)
    ratio = policy / (behavior + SMALL)
    taken_ratio = ops.take(ratio, action)
    weight = ops.where(taken_ratio > truncation, truncation + 0.0 * taken_ratio, taken_ratio)
    taken = weight * (target - value) / (ops.take(policy, action) + SMALL)
    excess = ops.relu(ratio - truncation[..., None]) / (ratio + SMALL)
    return taken, excess * (q - value[..., None])


def within_trust_region(ops: Ops, taken: Any, others: Any, policy: Any, average: Any, action: Any, limit: Any) -> Any:
    """Return `others` changed so that the gradient g solves: min |g - z|^2 subject to k g <= limit.

    z = g - max(0, (k g - limit) / |k|^2) k, with k the gradient of KL(average, policy) with respect to the
    probabilities of the policy: Wang et al. 2017, eq. 11 and 12.  limit: [K, 1].
    """
    k = -average / (policy + SMALL)
    along = ops.take(k, action) * taken + ops.sum(k * others, -1)
    share = ops.relu(along - limit) / (ops.sum(ops.square(k), -1) + SMALL)
    return others - share[..., None] * k


@dataclass(frozen=True, kw_only=True)
class ACERArguments(AgentArguments, ACERSettings):
    """Arguments of `ACER`."""


class ACER(LearningAgent):
    """Agent that learns with ACER."""

    algorithm_class = ACERAlgorithm

    @accepts(ACERArguments)
    def __init__(self, *args: Any, **arguments: Any) -> None:
        """Build the agent; see `LearningAgent`."""
        super().__init__(*args, **arguments)
