"""Multi-agent deep deterministic policy gradient: Lowe et al. 2017 (arXiv:1706.02275)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from marltrain.core.layout import Array, Layout, Space
from marltrain.core.settings import Range, setting
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.agents.arguments import AgentArguments, accepts
from marltrain.policies.algorithms.central_actions import (
    CentralActions,
    CentralActionsSettings,
    JointActions,
    actions_taken,
)
from marltrain.policies.algorithms.central_policies import VectorPolicySettings, policy_of
from marltrain.policies.batches.batch import Acted, ActInputs
from marltrain.policies.hyperparameters.schedules import Schedule
from marltrain.policies.interface.algorithm import FASTEST, Networks, Phase, weighted_mean
from marltrain.policies.interface.joint import Member, Team, by_member
from marltrain.policies.memory.needs import Column
from marltrain.policies.networks.specs import NetworkDefinition
from marltrain.policies.ops import Ops


@dataclass(frozen=True, kw_only=True)
class MADDPGSettings(VectorPolicySettings, CentralActionsSettings):
    """Settings of MADDPG; the defaults suit small games."""

    learning_rate: float | Schedule = setting(
        1e-3, search=Range(1e-5, 1e-2, "log"), doc="step size of all networks", low=0, high=FASTEST, per_row=True
    )
    output_penalty: float | Schedule = setting(
        1e-3, doc="factor of the mean squared outputs of the actor in its loss", low=0, per_row=True
    )


class MADDPGAlgorithm(CentralActions):
    """MADDPG: each agent has an actor mu_i(o_i), a critic Q_i(s, a_1, ..., a_N) and target networks of both.

    The policies of Discrete actions are stochastic, and gradients flow through samples of the Gumbel-softmax (section
    5.1); target actions are samples, too.
    """

    name = "maddpg"
    Settings: ClassVar[type[MADDPGSettings]] = MADDPGSettings
    acts_in_numpy = noise_by_rows = True

    def __init__(self, settings: Any, layout: Layout, action_space: Space) -> None:
        """See `CentralActions`; raises SpecError for another action space than those of `policy_of`."""
        super().__init__(settings, layout, action_space)
        self.policy = policy_of(settings, action_space, self.name.upper())
        self.policy_numbers, self.sampling = self.policy.numbers, self.policy.sampling
        self.units = self.policy.units

    def networks(self) -> dict[str, NetworkDefinition]:
        """Return the actor and the critic."""
        actor = NetworkDefinition(self.settings.network, [self.policy.head()], self.layout)
        return {"actor": actor, "critic": self.central_critic(1)}

    def targets(self) -> tuple[str, ...]:
        """Return the names of both networks, which have target networks."""
        return ("actor", "critic")

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The critics, then the actors through the new critics (algorithm 1)."""
        return (
            Phase("critic", ("critic",), self.critic_loss, self.add_targets, draw=self._next_noise, apart=True),
            Phase("actor", ("actor",), self._actor_loss, draw=self._noise, apart=True),
        )  # fmt: skip

    # learning

    def vectors(self, ops: Ops, action: Any) -> Any:
        """See `CentralActions`."""
        return self.policy.vectors(ops, action)

    def next_vectors(self, ops: Ops, member: Member) -> Any:
        """Return the actions mu'_i(o'_i) of the target actors."""
        (out,) = member.nets["target_actor"](member.rows.next_obs)
        return self.policy.sample(ops, out, member.rows.next_legal, member.rows.next_noise, member.hyper)

    def next_value(self, ops: Ops, team: Team, member: Member, following: JointActions) -> Any:
        """Return Q'_i(s', a'_1, ..., a'_N), the least of the critics."""
        return self.least(ops, self.q(ops, team, member, following.of(member), target=True))[..., 0]

    def _actor_loss(self, ops: Ops, team: Team) -> tuple[list[Any], dict[str, list[Any]]]:
        """Return the losses of all actors."""
        taken = actions_taken(ops, team)
        return by_member(team, lambda member: member.algorithm.own_actor_loss(ops, team, member, taken))

    def own_actor_loss(self, ops: Ops, team: Team, member: Member, taken: JointActions) -> tuple[Any, dict[str, Any]]:
        """Return the mean of -Q_i(s, a_1, ..., mu_i(o_i), ..., a_N), with the others' actions in the memory (eq. 5).

        The squared outputs of the actor are added, as in the paper's published code.
        """
        (out,) = member.nets["actor"](member.rows.obs)
        own = self.policy.sample(ops, out, member.rows.legal, member.rows.noise, member.hyper)
        q = self.q(ops, team, member, taken.with_own(member, own))[:, 0, :, 0]
        penalty = member.hyper["output_penalty"] * ops.mean(ops.square(out), -1)
        loss = weighted_mean(ops, penalty - q, member.rows.weight)
        return loss, {"loss/actor": loss}

    def _noise(self, rngs: Sequence[np.random.Generator], rows: int) -> dict[str, Array | None]:
        return {"noise": self.policy.training_noise(rngs, rows)}

    def _next_noise(self, rngs: Sequence[np.random.Generator], rows: int) -> dict[str, Array | None]:
        return {"next_noise": self.policy.training_noise(rngs, rows)}

    # acting

    def noise(self, rngs: Sequence[np.random.Generator], rows: int) -> dict[str, Array]:
        """Draw the random numbers of one act."""
        return self.policy.noise(rngs, rows)

    def carry(self) -> Mapping[str, Column]:
        """Return the state of Ornstein-Uhlenbeck noise."""
        return self.policy.carry()

    def act(self, ops: Ops, nets: Networks, inputs: ActInputs) -> Acted:
        """Return the actions of the policy, with exploration where `explore`, and the next state of the noise."""
        return self.policy.act(ops, nets["actor"](inputs.obs)[0], inputs)


@dataclass(frozen=True, kw_only=True)
class MADDPGArguments(AgentArguments, MADDPGSettings):
    """Arguments of `MADDPG`."""


class MADDPG(LearningAgent):
    """Agent that learns with MADDPG, together with its team."""

    algorithm_class = MADDPGAlgorithm

    @accepts(MADDPGArguments)
    def __init__(self, *args: Any, **arguments: Any) -> None:
        """Build the agent; see `LearningAgent`."""
        super().__init__(*args, **arguments)
