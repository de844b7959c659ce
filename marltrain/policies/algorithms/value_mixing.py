"""Value mixing: each agent learns values of its own actions, whose mixture is the value of the team.

The common part of VDN, QMIX and WQMIX. The agents are trained by one temporal-difference error of the mixture, and each
acts by its own values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from marltrain.core.settings import Range, setting
from marltrain.policies.algorithms.q_learning import QLearning
from marltrain.policies.exploration import DiscreteExploration
from marltrain.policies.hyperparameters.schedules import Schedule
from marltrain.policies.interface.algorithm import (
    FASTEST,
    MOST_PASSES,
    CompiledForm,
    Phase,
    Settings,
    missing,
    weighted_mean,
)
from marltrain.policies.interface.joint import (
    JointAlgorithm,
    Member,
    Team,
    TeamSettings,
    learned_only,
)
from marltrain.policies.interface.recurrence import BurnIn, needs_of
from marltrain.policies.interface.scaled_rewards import ScaledRewards
from marltrain.policies.memory.config import LONGEST, MOST_STEPS
from marltrain.policies.memory.needs import Needs
from marltrain.policies.ops import Ops


@dataclass(frozen=True, kw_only=True)
class ValueMixingSettings(BurnIn, TeamSettings, DiscreteExploration, ScaledRewards, Settings):
    """Settings of value mixing; the defaults suit small games."""

    noisy: ClassVar[float] = 0.0

    learning_rate: float | Schedule = setting(
        5e-4, search=Range(1e-5, 1e-2, "log"), doc="step size", low=0, high=FASTEST, per_row=True
    )
    max_grad_norm: float | None = setting(10.0, doc="largest norm of the gradient of the team; None: not clipped",
                                          above=0, per_row=True)  # fmt: skip
    capacity: int = setting(50_000, doc="size of the replay memory in env steps", low=1, high=MOST_STEPS)
    learning_starts: int = setting(1_000, doc="env steps of learning seats before the first update", low=0)
    update_per_step: float = setting(0.25, doc="gradient steps per env step; fractions are carried over", above=0,
                                     high=MOST_PASSES)  # fmt: skip
    n_step: int = setting(1, doc="rewards of the team summed before bootstrapping", low=1, high=LONGEST)
    double: bool = setting(True, doc="double Q-learning: the online networks choose the next actions")
    dueling: bool = setting(False, doc="dueling networks: separate heads for value and advantages")
    target_sync: int = setting(250, doc="updates between copies to the target networks (tau=None)", low=1)
    tau: float | None = setting(None, doc="rate of soft target updates; None: hard copies",
                                above=0, high=1, per_row=True)  # fmt: skip


class ValueMixing(JointAlgorithm, QLearning):
    """Agents with values Q_i of their own actions, and a team with the value Q_tot of the actions of all.

    A subclass defines `mixed`. Discrete actions only.
    """

    Settings: ClassVar[type[ValueMixingSettings]] = ValueMixingSettings
    recurrent = ("q",)
    shared_settings = (*JointAlgorithm.shared_settings, "n_step")

    def needs(self) -> Needs:
        """Return `Needs` for batch steps from a replay memory, in sequences for recurrent networks."""
        given = Needs(on_policy=False, capacity=self.settings.capacity, n_step=self.settings.n_step)
        return needs_of(given, self.networks())

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The single phase, which trains the agents and the mixer."""
        mixer = tuple(self.team_networks())
        return (Phase("q", ("q",), self._joint_loss, self._joint_targets, team_trains=mixer),)

    def acting_form(self) -> CompiledForm | None:
        """Return the compiled form of acting, for `compiled_form` of a subclass; None if dueling or recurrent."""
        unfit = self.settings.dueling or self.carry()
        return None if unfit else CompiledForm("q", self.exploration.compiled_rule)

    def values(self, ops: Ops, outputs: Any) -> Any:
        """Return Q [K, B, A] from the heads' outputs; dueling: V + A - mean A (Wang et al. 2016, eq. 9)."""
        if not self.settings.dueling:
            return outputs[0]
        value, advantage = outputs
        return value + advantage - ops.mean(advantage, -1)[..., None]

    def mixed(self, ops: Ops, team: Team, values: Any, *, target: bool) -> Any:
        """Return Q_tot [1, B] for the values of the players [1, B, N], which are 0 for those that are absent.

        target: mix the values after the batch step, by the target network and at the next state.
        """
        raise missing(self, "mixed")

    def _joint_targets(self, ops: Ops, team: Team) -> None:
        """Add `target`: r + discount * Q_tot_target(s', a'), where a'_i is best by agent i alone.

        With `n_step`, r is the sum of up to n rewards of the team, and s' is the state after the last of them.
        """
        following = team.side_by_side(lambda member: _next_value(ops, member))
        team.rows.target = team.rows.reward + team.rows.discount * self.mixed(ops, team, following, target=True)

    def _joint_loss(self, ops: Ops, team: Team) -> tuple[Any, dict[str, Any]]:
        """Return the mean squared temporal-difference error of the mixture."""
        total = self.mixed(ops, team, team.side_by_side(lambda member: _taken(ops, member)), target=False)
        loss = weighted_mean(ops, ops.square(total - team.rows.target), team.rows.weight)
        return loss, {"loss/total": loss, "q_mean": weighted_mean(ops, total, team.rows.weight)}


def _taken(ops: Ops, member: Member) -> Any:
    """Return the values of the members' actions, [K, S * B]; 0 for players that are absent."""
    algorithm = member.algorithm
    q = algorithm.values(ops, algorithm.heads(member.nets["q"], member.rows, ""))
    return ops.where(member.rows.present, learned_only(ops, member, ops.take(q, member.rows.action)), 0.0)


def _next_value(ops: Ops, member: Member) -> Any:
    """Return the target networks' values of the best legal next actions, [K, S * B]; 0 for players without a value."""
    algorithm, rows = member.algorithm, member.rows
    following = algorithm.values(ops, algorithm.next_heads(member.nets["target_q"], rows, ""))
    best = algorithm.next_action(ops, member.nets, rows, following)
    return ops.where(rows.next_present, ops.take(following, best), 0.0)
