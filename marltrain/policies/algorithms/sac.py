"""Soft actor-critic with a tuned temperature: Haarnoja et al. 2018 (arXiv:1812.05905); discrete: arXiv:1910.07207."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from marltrain.core.errors import ConfigError, SpecError
from marltrain.core.layout import Array, Layout, Space
from marltrain.core.settings import setting
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.agents.arguments import AgentArguments, accepts
from marltrain.policies.algorithms.off_policy import (
    OffPolicyActorCritic,
    OffPolicySettings,
    mean_error,
    squared_errors,
)
from marltrain.policies.batches.batch import Acted, ActInputs
from marltrain.policies.batches.tensor_batch import memory_of
from marltrain.policies.distributions import Categorical, SquashedGaussian, masked, policy_numbers_of
from marltrain.policies.distributions.draws import normal_of, uniform_of
from marltrain.policies.exploration import ActionChoice, ActionNoise, DiscreteExploration, SampleNoise
from marltrain.policies.hyperparameters.schedules import Schedule
from marltrain.policies.interface.algorithm import FASTEST, Networks, Phase, weighted_mean
from marltrain.policies.interface.recurrence import BurnIn, memory_after, memory_before
from marltrain.policies.memory.needs import Column
from marltrain.policies.networks.specs import Head, NetworkDefinition
from marltrain.policies.ops import Ops


@dataclass(frozen=True, kw_only=True)
class EntropySettings(SampleNoise):
    """Settings of the entropy and its weight, which is tuned or given, and of the exploration."""

    temperature: float | Schedule | None = setting(None, doc="weight of the entropy; None: tuned", low=0, per_row=True)
    initial_temperature: float = setting(1.0, doc="first value of the tuned temperature", above=0)
    temperature_learning_rate: float | Schedule | None = setting(
        None, doc="step size of the temperature's logarithm; None: learning_rate", low=0, high=FASTEST, per_row=True
    )
    target_entropy: float | None = setting(
        None, doc="entropy to which the temperature is tuned, Box actions; None: minus the number of dimensions"
    )
    target_entropy_ratio: float = setting(
        0.98, doc="the same for Discrete actions, as a share of log(number of legal actions)", low=0, high=1
    )


@dataclass(frozen=True, kw_only=True)
class SACSettings(BurnIn, EntropySettings, OffPolicySettings):
    """Settings of SAC; the defaults suit small problems of control."""


class SACAlgorithm(OffPolicyActorCritic):
    """SAC: a stochastic actor pi, two critics with target networks, and a temperature alpha.

    Box actions are sampled from a squashed Gaussian, and the critics are Q(s, a). Discrete actions have a critic with
    one output for each action, and expectations over pi are sums over the legal actions.

    Recurrent critics of a Box read the observations and the actions taken before; those of Discrete actions, as the
    actor, the observations.
    """

    name = "sac"
    Settings: ClassVar[type[Any]] = SACSettings
    acts_in_numpy = noise_by_rows = True
    recurrent: tuple[str, ...] = ("actor", "critic")
    critics = 2

    def __init__(self, settings: Any, layout: Layout, action_space: Space) -> None:
        """Choose the policy for the action space; raises SpecError for another one than Discrete or a bounded Box."""
        super().__init__(settings, layout, action_space)
        who = self.name.upper()
        self.tuned, self.discrete = settings.temperature is None, isinstance(action_space, spaces.Discrete)
        self.distribution: Any
        if isinstance(action_space, spaces.Box):
            self.distribution = self.units = SquashedGaussian(action_space)
            self.exploration = ActionNoise(settings, self.distribution.dims, who)
            self._widths = {"sample": 2 * math.ceil(self.distribution.dims / 2), **self.exploration.widths}
        elif not isinstance(action_space, spaces.Discrete):
            raise SpecError(f"{who} needs a Box or Discrete action space, got {action_space}; PPO takes MultiDiscrete")
        elif settings.target_entropy is not None:
            raise ConfigError(
                f"{who}: target_entropy={settings.target_entropy} is for a Box of actions, got "
                f"{action_space}; set target_entropy_ratio, the share of the largest entropy of the legal actions"
            )
        elif settings.exploration is not None:
            raise ConfigError(
                f"{who}: exploration={settings.exploration!r} adds noise to a Box of actions, got {action_space}. Set "
                "it to None: Discrete actions are samples of the policy, whose entropy temperature or "
                "target_entropy_ratio sets"
            )
        else:
            self.distribution = Categorical(action_space)
            sampling = DiscreteExploration(exploration="softmax", random_share=settings.random_share)
            self._choice = ActionChoice(sampling, self.distribution.choices)
        self.policy_numbers = policy_numbers_of(self.distribution, "actor")
        self.sampling = replace(self.distribution.sampling, name="gumbel" if self.discrete else "sample")

    def networks(self) -> dict[str, NetworkDefinition]:
        """Return the actor, the critics, and the logarithm of the temperature if it is tuned."""
        spec, distribution, burn_in = self.settings.network, self.distribution, self.settings.burn_in
        actor = NetworkDefinition(spec, [distribution.head(0.01)], self.layout, burn_in=burn_in)
        critic = self.critic(distribution.choices) if self.discrete else self.critic(1, (distribution.dims,))
        networks = {"actor": actor, "critic": replace(critic, burn_in=burn_in)}
        if self.tuned:
            start = Head(0, free=1, free_start=math.log(self.settings.initial_temperature))
            networks["temperature"] = NetworkDefinition(None, [start], None)
        return networks

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The critics, then the actor through the new critics, with the temperature (algorithm 1)."""
        trains = ("actor", "temperature") if self.tuned else ("actor",)
        draws = (None, None) if self.discrete else (self._next_noise, self._noise)
        return (
            Phase("critic", ("critic",), self._critic_loss, self._targets, draw=draws[0], row_error=mean_error),
            Phase("actor", trains, self._actor_loss, draw=draws[1]),
        )

    def noise(self, rngs: Sequence[np.random.Generator], rows: int) -> dict[str, Array]:
        """Draw the random numbers of the policy's samples, of the noise added to them and of random actions."""
        if self.discrete:
            return self._choice.noise(rngs, rows)
        drawn = uniform_of(rngs, rows, self._widths)
        sample = normal_of(drawn.pop("sample"))[..., : self.distribution.dims]
        return {"sample": sample, **self.exploration.noise_of(drawn)}

    def carry(self) -> Mapping[str, Column]:
        """Return the carries of recurrent networks and the state of Ornstein-Uhlenbeck noise."""
        return {**super().carry(), **({} if self.discrete else self.exploration.carry())}

    def act(self, ops: Ops, nets: Networks, inputs: ActInputs) -> Acted:
        """Return actions, sampled where `explore`; elsewhere tanh of the mean, or the most probable legal action.

        With noise of the setting `exploration` where `explore`. The carry is that of recurrent networks and of the
        noise.
        """
        (out,), carry = inputs.evaluate(nets, "actor")
        acted = self._chosen(ops, out, inputs)
        if "critic" in inputs.carry:
            taken = () if self.discrete else (acted.action,)
            carry |= inputs.evaluate(nets, "critic", *taken)[1]
        return Acted(acted.action, {**carry, **(acted.carry or {})})

    def _chosen(self, ops: Ops, out: Any, inputs: ActInputs) -> Acted:
        """Return the actions for the actor's outputs, see `act`, and the next carry of the noise."""
        if self.discrete:
            return Acted(self._choice.choose(ops, out, inputs))
        action = self.distribution.action(ops, out, inputs.noise["sample"], inputs.explore)
        return self.exploration.perturb(ops, action, inputs)

    def _noise(self, rngs: Sequence[np.random.Generator], rows: int) -> dict[str, Array]:
        return {"noise": self.distribution.noise(rngs, rows)}

    def _next_noise(self, rngs: Sequence[np.random.Generator], rows: int) -> dict[str, Array]:
        return {"next_noise": self.distribution.noise(rngs, rows)}

    def _targets(self, ops: Ops, nets: Networks, batch: Any, hyper: Mapping[str, Any]) -> None:
        """Add `target`: r + discount * V(s'), with the soft value V of the target critics (eq. 3 and 7)."""
        noise = None if self.discrete else batch.next_noise
        memory = {
            "actor": memory_after(nets["actor"], batch, "actor"),
            "critic": memory_after(nets["target_critic"], batch, "critic", *self._taken(ops, batch)),
        }
        value, _ = self._soft_value(ops, nets, "target_critic", batch.next_obs, batch.next_legal, noise, memory, hyper)
        batch.target = batch.reward + batch.discount * value

    def _taken(self, ops: Ops, batch: Any) -> tuple[Any, ...]:
        """Return the actions taken as inputs of the critics: () for Discrete actions."""
        return () if self.discrete else (self.distribution.from_units(ops, batch.action),)

    def _critic_loss(
        self, ops: Ops, nets: Networks, batch: Any, hyper: Mapping[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """Return the mean of (Q_i(s, a) - target)^2 / 2, summed over both critics (eq. 5)."""
        q = nets["critic"](batch.obs, *self._taken(ops, batch), *memory_of(batch, "critic"))[0]
        q = ops.stack([ops.take(q[:, i], batch.action) for i in range(self.critics)], 1) if self.discrete else q[..., 0]
        loss = 0.5 * squared_errors(ops, q, batch)
        return loss, {"loss/critic": loss, "q_mean": weighted_mean(ops, ops.mean(q, 1), batch.weight)}

    def _actor_loss(self, ops: Ops, nets: Networks, batch: Any, hyper: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return the mean of -V(s) for the actor (eq. 9), plus the loss of the temperature (eq. 18).

        The latter is log(alpha) * (entropy - target), as in the paper's published code; its gradient with respect to
        log(alpha) has the sign of the paper's.
        """
        noise = None if self.discrete else batch.noise
        memory = {"actor": memory_of(batch, "actor"), "critic": memory_of(batch, "critic")}
        if not self.discrete:
            memory["critic"] = memory_before(ops, nets["critic"], batch, "critic", *self._taken(ops, batch))
        value, entropy = self._soft_value(ops, nets, "critic", batch.obs, batch.legal, noise, memory, hyper)
        loss = -weighted_mean(ops, value, batch.weight)
        metrics = {"loss/actor": loss, "entropy": weighted_mean(ops, entropy, batch.weight)}
        if self.tuned:
            tuned = self.tuning(ops, nets, entropy, batch)
            metrics |= tuned
            loss = loss + tuned["loss/temperature"]
        return loss, metrics

    def tuning(self, ops: Ops, nets: Networks, entropy: Any, batch: Any) -> dict[str, Any]:
        """Return the loss and the value of the temperature, each [K].  entropy: [K, B], of the actor."""
        excess = ops.stop_gradient(entropy) - self._target_entropy(ops, batch)
        log_temperature = nets["temperature"]()[0][..., 0]
        tuning = weighted_mean(ops, log_temperature * excess, batch.weight)
        temperature = ops.exp(log_temperature) * ops.ones_like(excess)
        return {"loss/temperature": tuning, "temperature": weighted_mean(ops, temperature, batch.weight)}

    def _soft_value(
        self,
        ops: Ops,
        nets: Networks,
        critic: str,
        obs: Any,
        legal: Any,
        noise: Any,
        memory: Mapping[str, tuple[Any, ...]],
        hyper: Mapping[str, Any],
    ) -> tuple[Any, Any]:
        """Return V(s) = E[min_i Q_i(s, a) - alpha log pi(a|s)] and the entropy E[-log pi(a|s)], each [K, B].

        The expectation is one sample for a Box, and exact for Discrete actions.  memory: the inputs of recurrent
        networks beside the others, () for other networks.
        """
        out = nets["actor"](obs, *memory["actor"])[0]
        temperature = ops.stop_gradient(self._temperature(ops, nets, hyper))
        if self.discrete:
            q = nets[critic](obs, *memory["critic"])[0]
            return expected_value(ops, masked(ops, out, legal), ops.minimum(q[:, 0], q[:, 1]), temperature)
        action, _, log_prob = self.distribution.sample(ops, out, legal, noise, None)
        q = nets[critic](obs, action, *memory["critic"])[0][..., 0]
        return ops.minimum(q[:, 0], q[:, 1]) - temperature * log_prob, -log_prob

    def _temperature(self, ops: Ops, nets: Networks, hyper: Mapping[str, Any]) -> Any:
        """Return alpha, [K, 1]."""
        return ops.exp(nets["temperature"]()[0][..., 0]) if self.tuned else hyper["temperature"]

    def _target_entropy(self, ops: Ops, batch: Any) -> Any:
        """Return the target of the entropy: a number, or [K, B] if the legal actions differ between rows.

        For a Box it is -A (appendix D). For Discrete actions, the largest entropy of a row is the logarithm of its
        number of legal actions, and the target is a share of it. A row with one legal action then has target 0, and
        does not tune the temperature.
        """
        if not self.discrete:
            target = self.settings.target_entropy
            return -float(self.distribution.dims) if target is None else target
        ratio = self.settings.target_entropy_ratio
        if batch.legal is None:
            return ratio * math.log(self.distribution.choices)
        return ratio * ops.log(ops.sum(ops.flag(batch.legal), -1))


def expected_value(ops: Ops, logits: Any, q: Any, temperature: Any) -> tuple[Any, Any]:
    """Return the soft value [K, B] of a policy with logits [K, B, A] for action values [K, B, A], and its entropy."""
    log_probs = ops.log_softmax(logits, -1)
    probs: Any = ops.exp(log_probs)  # exactly 0 for illegal actions
    entropy = -ops.sum(probs * log_probs, -1)
    return ops.sum(probs * q, -1) + temperature * entropy, entropy


@dataclass(frozen=True, kw_only=True)
class SACArguments(AgentArguments, SACSettings):
    """Arguments of `SAC`."""


class SAC(LearningAgent):
    """Agent that learns with SAC."""

    algorithm_class = SACAlgorithm

    @accepts(SACArguments)
    def __init__(self, *args: Any, **arguments: Any) -> None:
        """Build the agent; see `LearningAgent`."""
        super().__init__(*args, **arguments)
