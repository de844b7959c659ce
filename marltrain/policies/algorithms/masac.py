"""Soft actor-critic with critics of the actions of all players: Haarnoja et al. 2018 (arXiv:1812.05905) for teams.

The critics are those of MADDPG (Lowe et al. 2017, arXiv:1706.02275), the actors and temperatures those of SAC.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from marltrain.core.layout import Array
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.agents.arguments import AgentArguments, accepts
from marltrain.policies.algorithms.central_actions import (
    CentralActions,
    CentralActionsSettings,
    JointActions,
    actions_taken,
)
from marltrain.policies.algorithms.sac import EntropySettings, SACAlgorithm, expected_value
from marltrain.policies.distributions import masked
from marltrain.policies.interface.algorithm import Phase, weighted_mean
from marltrain.policies.interface.joint import Member, Team, by_member
from marltrain.policies.networks.specs import NetworkDefinition
from marltrain.policies.ops import Ops


@dataclass(frozen=True, kw_only=True)
class MASACSettings(EntropySettings, CentralActionsSettings):
    """Settings of MASAC; the defaults suit small games."""

    burn_in: ClassVar[int] = 0


class MASACAlgorithm(CentralActions, SACAlgorithm):
    """MASAC: each agent has a stochastic actor pi_i(o_i), two critics with target networks, and a temperature alpha_i.

    The critics of an agent with a Box of actions are Q_i(s, a_1, ..., a_N). Those of an agent with Discrete actions
    have one output for each own action and read the actions of the others, so that expectations over the own action
    are exact.
    """

    name = "masac"
    Settings: ClassVar[type[MASACSettings]] = MASACSettings

    def networks(self) -> dict[str, NetworkDefinition]:
        """Return the networks of SAC, with critics that read the actions of all players."""
        width = self.distribution.choices if self.discrete else 1
        return {**super().networks(), "critic": self.central_critic(width)}

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The critics, then the actors through the new critics, with the temperatures."""
        trains = ("actor", "temperature") if self.tuned else ("actor",)
        return (
            Phase("critic", ("critic",), self.critic_loss, self.add_targets, draw=self._next_noise, apart=True),
            Phase("actor", trains, self._actor_losses, draw=None if self.discrete else self._noise, apart=True),
        )  # fmt: skip

    def vectors(self, ops: Ops, action: Any) -> Any:
        """See `CentralActions`."""
        if self.discrete:
            return ops.one_hot(action, self.distribution.choices)
        return self.distribution.from_units(ops, action)

    def next_vectors(self, ops: Ops, member: Member) -> Any:
        """Return samples of the actors; add the actors' logits or the samples' log-densities to the rows."""
        rows = member.rows
        (out,) = member.nets["actor"](rows.next_obs)
        if self.discrete:
            rows.next_logits = masked(ops, out, rows.next_legal)
            return ops.one_hot(ops.argmax(rows.next_logits + rows.next_noise, -1), self.distribution.choices)
        action, _, rows.next_log_prob = self.distribution.sample(ops, out, None, rows.next_noise, None)
        return action

    def next_value(self, ops: Ops, team: Team, member: Member, following: JointActions) -> Any:
        """Return the soft value V_i(s') of the target critics."""
        rows, temperature = member.rows, self._temperature(ops, member.nets, member.hyper)
        if self.discrete:
            q = self.q(ops, team, member, self._of_others(ops, member, following), target=True)
            return expected_value(ops, rows.next_logits, self.least(ops, q), temperature)[0]
        q = self.q(ops, team, member, following.of(member), target=True)
        return self.least(ops, q)[..., 0] - temperature * rows.next_log_prob

    def own_critic_loss(self, ops: Ops, team: Team, member: Member, taken: JointActions) -> tuple[Any, Any]:
        """Return the mean of (Q_i(s, a_1, ..., a_N) - target)^2 / 2, summed over both critics (eq. 5), and metrics."""
        if self.discrete:
            q = self.q(ops, team, member, self._of_others(ops, member, taken))
            q = ops.stack([ops.take(q[:, i], member.rows.action) for i in range(self.critics)], 1)
        else:
            q = self.q(ops, team, member, taken.of(member))[..., 0]
        loss, metrics = self.critic_error(ops, member, q)
        return 0.5 * loss, {**metrics, "loss/critic": 0.5 * loss}

    def _actor_losses(self, ops: Ops, team: Team) -> tuple[list[Any], dict[str, list[Any]]]:
        """Return the losses of all actors and temperatures."""
        taken = actions_taken(ops, team)
        return by_member(team, lambda member: member.algorithm.own_actor_loss(ops, team, member, taken))

    def own_actor_loss(self, ops: Ops, team: Team, member: Member, taken: JointActions) -> tuple[Any, dict[str, Any]]:
        """Return the mean of -V_i(s), with the others' actions in the memory, plus the loss of the temperature."""
        rows = member.rows
        (out,) = member.nets["actor"](rows.obs)
        temperature = ops.stop_gradient(self._temperature(ops, member.nets, member.hyper))
        if self.discrete:
            q = self.least(ops, self.q(ops, team, member, self._of_others(ops, member, taken)))
            value, entropy = expected_value(ops, masked(ops, out, rows.legal), q, temperature)
        else:
            own, _, log_prob = self.distribution.sample(ops, out, None, rows.noise, None)
            q = self.least(ops, self.q(ops, team, member, taken.with_own(member, own)))[..., 0]
            value, entropy = q - temperature * log_prob, -log_prob
        loss = -weighted_mean(ops, value, rows.weight)
        metrics = {"loss/actor": loss, "entropy": weighted_mean(ops, entropy, rows.weight)}
        if self.tuned:
            tuned = self.tuning(ops, member.nets, entropy, rows)
            metrics |= tuned
            loss = loss + tuned["loss/temperature"]
        return loss, metrics

    def _of_others(self, ops: Ops, member: Member, actions: JointActions) -> Any:
        """Return the actions of the other players; the vector of the member's own is 0."""
        return actions.with_own(member, ops.zeros_like(self.vectors(ops, member.rows.action)))

    def _next_noise(self, rngs: Sequence[np.random.Generator], rows: int) -> dict[str, Array]:
        return {"next_noise": self.distribution.noise(rngs, rows)}


@dataclass(frozen=True, kw_only=True)
class MASACArguments(AgentArguments, MASACSettings):
    """Arguments of `MASAC`."""


class MASAC(LearningAgent):
    """Agent that learns with MASAC, together with its team."""

    algorithm_class = MASACAlgorithm

    @accepts(MASACArguments)
    def __init__(self, *args: Any, **arguments: Any) -> None:
        """Build the agent; see `LearningAgent`."""
        super().__init__(*args, **arguments)
