"""Transitive RL: Park et al. 2025 (arXiv:2510.22512), for Discrete actions.

Q(s, a, g) in (0, 1) is gamma to the power of the number of decisions that lead from s, with action a, to the goal g.
The values of two parts of an episode are multiplied, Q(s_i, a_i, g_j) <- Q(s_i, a_i, g_k) Q(s_k, a_k, g_j) for
i < k < j, so that the value of n decisions follows from those of about n / 2. Rewards are not used.

The rule is the paper's, in the form of its published code (github.com/aoberai/trl, agents/trl.py): cross-entropy with
an expectile, the known values 1 and gamma of offsets 0 and 1, weights by distance, two critics with a target network
each, geometric offsets. With `extraction="policy"`, the actor is that of the code for Discrete actions. Differences:

- Rows k are strictly between i and j where there are any; the code also draws k = i, whose target is the value itself.
- The actor learns for the goals of j and for the episodes' own goals; the code takes goals of random rows in place of
  the latter. Episodes are collected by the agent, which explores; the paper learns from given episodes.
- The default `extraction="greedy"` takes the best action by the critics: the limit of the paper's rejection sampling
  from all actions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from marltrain.core.errors import ConfigError, SpecError
from marltrain.core.layout import Array, Layout, Space
from marltrain.core.settings import Range, setting
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.agents.arguments import AgentArguments, accepts
from marltrain.policies.algorithms.off_policy import mean_error
from marltrain.policies.batches.batch import Acted, ActInputs
from marltrain.policies.distributions import Categorical, masked, policy_numbers_of
from marltrain.policies.exploration import ActionChoice, DiscreteExploration
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
from marltrain.policies.memory.config import MOST_STEPS, Replay, Triplets, replay_of
from marltrain.policies.memory.needs import Needs
from marltrain.policies.networks.specs import Head, NetworkDefinition, NetworkSpec
from marltrain.policies.ops import Ops

MOST_GAMMA = 1 - 1e-6
"""Largest discount: values are powers of gamma."""


@dataclass(frozen=True, kw_only=True)
class TRLSettings(DiscreteExploration, Settings):
    """Settings of Transitive RL; the defaults suit small games."""

    learning_rate: float | Schedule = setting(
        3e-4, search=Range(1e-5, 1e-2, "log"), doc="step size of all networks", low=0, high=FASTEST, per_row=True
    )
    gamma: float | Schedule = setting(
        0.99,
        search=Range(0.9, 0.9999, "complement"),
        doc="value of a goal that is one decision away",
        above=0,
        high=MOST_GAMMA,
        per_row=True,
    )
    max_grad_norm: float | None = setting(None, doc="largest gradient norm of an agent; None: not clipped", above=0,
                                          per_row=True)  # fmt: skip
    capacity: int = setting(200_000, doc="size of the replay memory in env steps", low=1, high=MOST_STEPS)
    learning_starts: int = setting(1_000, doc="env steps of learning seats before the first update", low=0)
    update_per_step: float = setting(0.25, doc="gradient steps per env step; fractions are carried over", above=0,
                                     high=MOST_PASSES)  # fmt: skip
    memory: Replay | None = setting(None, doc="Replay(...) with Triplets(...), priorities and others; None: uniform")
    tau: float | Schedule = setting(
        0.005, search=Range(0.001, 0.05, "log"), doc="rate of soft target updates", above=0, high=1, per_row=True
    )
    expectile: float | Schedule = setting(
        0.7,
        search=Range(0.5, 0.95),
        doc="kappa: weight of targets above the value; 1 - kappa below",
        above=0,
        high=1,
        per_row=True,
    )
    distance_power: float | Schedule = setting(
        0.0, doc="lambda: a triplet over n estimated steps has the weight (1 + n)^-lambda", low=0, per_row=True
    )
    extraction: str = setting("greedy", doc="greedy: the best action by the critics; policy: an actor",
                              choices=("greedy", "policy"))  # fmt: skip
    bc_coef: float | Schedule = setting(0.03, doc="alpha: weight of behavior cloning in the actor's loss", low=0,
                                        per_row=True, only=("extraction", "policy"))  # fmt: skip
    own_goals: float | Schedule = setting(0.5, doc="share of the actor's loss with the episodes' own goals", low=0,
                                          high=1, per_row=True, only=("extraction", "policy"))  # fmt: skip
    critic_network: Any = setting(None, doc="the critics' network; None: like the actor's")


class TRLAlgorithm(Algorithm):
    """Transitive RL: two critics Q(s, a, g) with target networks, whose outputs are logits, and an actor."""

    name = "trl"
    Settings: ClassVar[type[TRLSettings]] = TRLSettings
    on_policy = False
    reads_triplets = True
    acts_in_numpy = noise_by_rows = True
    batch_size = 256
    critics: ClassVar[int] = 2

    def __init__(self, settings: TRLSettings, layout: Layout, action_space: Space) -> None:
        """Raise SpecError for actions that are not Discrete, ConfigError for settings that have no meaning here."""
        super().__init__(settings, layout, action_space)
        if not isinstance(action_space, spaces.Discrete):
            raise SpecError(f"TRL needs a Discrete action space, got {action_space}; SAC takes a Box, too")
        replay = settings.memory or Replay()
        for name, given, neutral in (("hindsight", replay.hindsight, None), ("n_step", replay.n_step or 1, 1)):
            if given != neutral:
                raise ConfigError(
                    f"trl: memory has {name}={given}, and its values follow from triplets, not from rewards: leave "
                    f"{name}= out of Replay"
                )
        if settings.reward_model is not None:
            raise ConfigError("trl: reward_model has no effect: values follow from triplets, not from rewards")
        self.has_actor = settings.extraction == "policy"
        if self.has_actor and settings.critic_network is None and not isinstance(settings.network, NetworkSpec):
            raise ConfigError(
                f"trl: network={type(settings.network).__name__} is a model of your own and only the actor; give the "
                "critics' too with critic_network= (a model with one output per action, or MLP() or CNN())"
            )
        self.distribution = Categorical(action_space)
        rule = "softmax" if self.has_actor else "epsilon_greedy"
        self.exploration = ActionChoice(settings, self.distribution.choices, default=rule)
        self.policy_numbers = policy_numbers_of(self.distribution, "actor") if self.has_actor else self._policy_numbers
        if self.has_actor and self.exploration.rule == "softmax":
            self.sampling = replace(self.distribution.sampling, name="gumbel")

    def networks(self) -> dict[str, NetworkDefinition]:
        """Return the critics, with a logit for each action, and the actor if there is one."""
        own = self.settings.network
        critic = NetworkDefinition(
            self.settings.critic_network or own, [Head(self.distribution.choices)], self.layout, members=self.critics
        )
        actor = {"actor": NetworkDefinition(own, [self.distribution.head(0.01)], self.layout)}
        return {"critic": critic, **(actor if self.has_actor else {})}

    def targets(self) -> tuple[str, ...]:
        """Return the name of the critics, which have target networks."""
        return ("critic",)

    def target_share(self, updates: Array, hyper: Mapping[str, Array]) -> Array:
        """Return tau: targets follow after every update."""
        return np.asarray(hyper["tau"])

    @property
    def counted_actions(self) -> int:
        """Number of actions that the exploration rule counts."""
        return self.exploration.counted

    def needs(self) -> Needs:
        """Return `Needs` for transitions with triplets."""
        replay = replay_of(self.settings, self.name)
        return Needs.of(replace(replay, triplets=replay.triplets or Triplets()))

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The critics, then the actor through the new critics."""
        critic = Phase("critic", ("critic",), self._critic_loss, self._targets, row_error=mean_error)
        return (critic, Phase("actor", ("actor",), self._actor_loss)) if self.has_actor else (critic,)

    # acting

    def noise(self, rngs: Sequence[np.random.Generator], rows: int) -> dict[str, Array]:
        """Draw the random numbers of the exploration rule."""
        return self.exploration.noise(rngs, rows)

    def act(self, ops: Ops, nets: Networks, inputs: ActInputs) -> Acted:
        """Return the best legal action by the actor or the critics; where `explore`, that of the exploration rule."""
        return Acted(self.exploration.choose(ops, self._scores(ops, nets, inputs.obs), inputs))

    def _scores(self, ops: Ops, nets: Networks, obs: Any) -> Any:
        """Return the logits of the actor, or of the critics if there is no actor, [K, B, A]."""
        return nets["actor"](obs)[0] if self.has_actor else self._mean_logits(ops, nets, obs)

    def _policy_numbers(self, ops: Ops, nets: Networks, inputs: ActInputs) -> dict[str, Any]:
        """Return the logits of the critics."""
        return {"values": self._scores(ops, nets, inputs.obs)}

    # learning

    def _targets(self, ops: Ops, nets: Networks, batch: Any, hyper: Mapping[str, Any]) -> None:
        """Add `log_target` [K, M, B], log Q(s_i, a_i, g_k) + log Q(s_k, a_k, g_j) of each target critic."""
        near = self._log_value(ops, nets, batch.near_obs, batch.action, batch.near_offset, hyper)
        rest = batch.offset - batch.near_offset
        batch.log_target = near + self._log_value(ops, nets, batch.far_obs, batch.far_action, rest, hyper)

    def _log_value(self, ops: Ops, nets: Networks, obs: Any, action: Any, offset: Any, hyper: Mapping[str, Any]) -> Any:
        """Return log Q of the target critics, [K, M, B]; it is known for goals that are 0 or 1 decisions away."""
        estimate = -ops.softplus(-self._logits(ops, nets["target_critic"], obs, action))  # log(sigmoid)
        known = (offset * ops.log(hyper["gamma"]))[:, None] + ops.zeros_like(estimate)
        return ops.where((offset <= 1)[:, None], known, estimate)

    def _logits(self, ops: Ops, critic: Any, obs: Any, action: Any) -> Any:
        """Return each critic's logit of an action, [K, M, B]."""
        (out,) = critic(obs)
        return ops.stack([ops.take(out[:, i], action) for i in range(self.critics)], 1)

    def _mean_logits(self, ops: Ops, nets: Networks, obs: Any) -> Any:
        """Return the mean of the critics' logits, [K, B, A]."""
        return ops.mean(nets["critic"](obs)[0], 1)

    def _critic_loss(
        self, ops: Ops, nets: Networks, batch: Any, hyper: Mapping[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """Return the mean of w |kappa - 1(target < Q)| BCE(Q, target), summed over the critics.

        BCE is the cross-entropy, and w = (1 + n)^-lambda for the number of decisions n that the target stands for.
        """
        logits = self._logits(ops, nets["critic"], batch.goal_obs, batch.action)
        value, target = ops.exp(-ops.softplus(-ops.stop_gradient(logits))), ops.exp(batch.log_target)
        batch.error = value - target
        kappa, power, gamma = (hyper[name][:, None] for name in ("expectile", "distance_power", "gamma"))
        side = ops.absolute(kappa - ops.flag(target < value))
        distance = batch.log_target / ops.log(gamma)
        row = side * ops.exp(-power * ops.log(1.0 + distance)) * (ops.softplus(logits) - target * logits)
        loss = ops.sum(weighted_mean(ops, row, batch.weight[:, None]), -1)
        return loss, {"loss/critic": loss, "q_mean": weighted_mean(ops, ops.mean(value, 1), batch.weight)}

    def _actor_loss(self, ops: Ops, nets: Networks, batch: Any, hyper: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return the mean of -E_pi[logit of Q(s, a, g)] - alpha log pi(a_i|s, g) over both kinds of goals g."""
        share = hyper["own_goals"]
        (row, entropy), (own, _) = (
            self._extracted(ops, nets, obs, batch, hyper) for obs in (batch.goal_obs, batch.obs)
        )
        loss = weighted_mean(ops, (1.0 - share) * row + share * own, batch.weight)
        return loss, {"loss/actor": loss, "entropy": weighted_mean(ops, entropy, batch.weight)}

    def _extracted(self, ops: Ops, nets: Networks, obs: Any, batch: Any, hyper: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return the actor's loss for the goals of `obs`, and its entropy, each [K, B]."""
        log_probs = ops.log_softmax(masked(ops, nets["actor"](obs)[0], batch.legal), -1)
        probs = ops.exp(log_probs)  # exactly 0 for illegal actions
        worth = ops.sum(probs * ops.stop_gradient(self._mean_logits(ops, nets, obs)), -1)
        return -worth - hyper["bc_coef"] * ops.take(log_probs, batch.action), -ops.sum(probs * log_probs, -1)


@dataclass(frozen=True, kw_only=True)
class TRLArguments(AgentArguments, TRLSettings):
    """Arguments of `TRL`."""


class TRL(LearningAgent):
    """Agent that learns with Transitive RL."""

    algorithm_class = TRLAlgorithm

    @accepts(TRLArguments)
    def __init__(self, *args: Any, **arguments: Any) -> None:
        """Build the agent; see `LearningAgent`."""
        super().__init__(*args, **arguments)
