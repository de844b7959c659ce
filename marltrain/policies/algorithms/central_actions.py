"""Critics of the actions of all players: each agent learns Q_i(state, a_1, ..., a_N) from its own rewards.

The common part of MADDPG, MATD3 and MASAC (Lowe et al. 2017, arXiv:1706.02275, section 4.1). The critics are used in
training only: each agent acts by its own observation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import accumulate
from typing import Any, ClassVar

from marltrain.core.errors import AgentError, ConfigError
from marltrain.core.layout import Layout, Space, size_of
from marltrain.core.settings import setting
from marltrain.policies.algorithms.central_critic import MOST_VALUES, CentralCriticSettings, CentralInput
from marltrain.policies.algorithms.off_policy import OffPolicyActorCritic, UniformReplaySettings
from marltrain.policies.interface.algorithm import Algorithm, missing, weighted_mean
from marltrain.policies.interface.joint import JointAlgorithm, Member, Team, TeamSettings, by_member, for_players
from marltrain.policies.memory.needs import Needs
from marltrain.policies.networks.specs import Head, NetworkDefinition
from marltrain.policies.ops import Ops


@dataclass(frozen=True, kw_only=True)
class CentralActionsSettings(CentralCriticSettings, TeamSettings, UniformReplaySettings):
    """Settings of critics that read the actions of all players."""

    reads_joint_actions = True

    joint_action_size: int | None = setting(
        None, doc="values of the actions of all players; `make_agents` sets it", low=1, high=MOST_VALUES
    )


class CentralActions(JointAlgorithm, OffPolicyActorCritic):
    """Actors of their own observations, and critics of the global state and the actions of all players.

    An action enters a critic as a vector of the player: numbers in [-1, 1] of a Box, the one-hot of a Discrete action.
    The vectors stand side by side: those of the team's players in their order, then those of the other players. The
    vector of a player that is absent is 0.

    A subclass defines `vectors`, `next_vectors`, `next_value` and `phases`.
    """

    one_reward = False
    recurrent: tuple[str, ...] = ()
    Settings: ClassVar[type[CentralActionsSettings]] = CentralActionsSettings

    def __init__(self, settings: Any, layout: Layout, action_space: Space) -> None:
        """See `JointAlgorithm`; raises ConfigError without the size of the joint actions."""
        self.input = CentralInput(self.name, settings, layout)
        if settings.joint_action_size is None:
            raise ConfigError(
                f"{self.name}: the critics read the actions of all players, whose number of values the agent must "
                f"know: make_agents({self.name!r}, env) gives it, or joint_action_size= does"
            )
        super().__init__(settings, layout, action_space)

    def check_team(self, players: Sequence[Algorithm]) -> None:
        """Raise AgentError if the agents were made for other joint actions than those of the team."""
        sizes = {player.settings.joint_action_size for player in players}
        width = sum(size_of(player.action_space) or 0 for player in players)
        if len(sizes) > 1 or width > min(sizes):
            raise AgentError(
                f"{self.name}: the actions of the team have {width} values, and the agents were made for "
                f"joint_action_size={', '.join(map(str, sorted(sizes)))} in all: make them in one call of make_agents"
            )

    def needs(self) -> Needs:
        """Return `Needs` for batch steps from a replay memory, with the global state and the others' actions."""
        return Needs(
            on_policy=False, capacity=self.settings.capacity, state=self.input.need,
            joint_actions=self.settings.joint_action_size,
        )  # fmt: skip

    def central_critic(self, width: int) -> NetworkDefinition:
        """Return the ensemble of critics, with `width` outputs each."""
        spec = self.settings.critic_network or self.settings.network
        result = self.input.network(spec, [Head(width)], (self.settings.joint_action_size,))
        return replace(result, members=self.critics)

    # the parts that a subclass defines

    def vectors(self, ops: Ops, action: Any) -> Any:
        """Return stored actions as vectors [K, S * B, A]."""
        raise missing(self, "vectors")

    def next_vectors(self, ops: Ops, member: Member) -> Any:
        """Return the actions that the members choose after the batch step, as vectors [K, S * B, A]."""
        raise missing(self, "next_vectors")

    def next_value(self, ops: Ops, team: Team, member: Member, following: JointActions) -> Any:
        """Return the members' values after the batch step [K, S * B], for the actions of all players."""
        raise missing(self, "next_value")

    def own_critic_loss(self, ops: Ops, team: Team, member: Member, taken: JointActions) -> tuple[Any, Any]:
        """Return the loss of the members' critics and metrics, each [K], for the actions of all players."""
        q = self.q(ops, team, member, taken.of(member))[..., 0]
        return self.critic_error(ops, member, q)

    # what they share

    def add_targets(self, ops: Ops, team: Team) -> None:
        """Add `target` to the rows of the members: r_i + discount_i * Q'_i(s', a'_1, ..., a'_N) (eq. 6)."""

        def chosen(member: Member) -> Any:
            return ops.only(member.algorithm.next_vectors(ops, member), member.rows.next_present)

        following = JointActions(ops, team, chosen, team.rows.next_others)
        for member in team.members:
            value = member.algorithm.next_value(ops, team, member, following)
            member.rows.target = member.rows.reward + member.rows.discount * value

    def critic_loss(self, ops: Ops, team: Team) -> tuple[list[Any], dict[str, list[Any]]]:
        """Return the losses of the critics of all agents, for the actions in the memory."""
        taken = actions_taken(ops, team)
        return by_member(team, lambda member: member.algorithm.own_critic_loss(ops, team, member, taken))

    def critic_error(self, ops: Ops, member: Member, q: Any) -> tuple[Any, dict[str, Any]]:
        """Return the mean squared errors [K] of values [K, M, S * B], summed over the critics, and metrics."""
        errors = ops.square(q - member.rows.target[:, None])
        loss = ops.sum(weighted_mean(ops, errors, member.rows.weight[:, None]), -1)
        return loss, {"loss/critic": loss, "q_mean": weighted_mean(ops, ops.mean(q, 1), member.rows.weight)}

    def q(self, ops: Ops, team: Team, member: Member, actions: Any, *, target: bool = False) -> Any:
        """Return the outputs of the members' critics [K, M, S * B, width] for actions [K, S * B, J].

        target: the values after the batch step, by the target critics.
        """
        rows, moment = member.rows, team.rows
        net, obs, state = (
            (member.nets["target_critic"], rows.next_obs, moment.next_state)
            if target
            else (member.nets["critic"], rows.obs, moment.state)
        )
        state = None if state is None else for_players(ops, member, state)
        (q,) = net(*self.input.of(obs, state), actions)
        return q if self.critics > 1 else q[:, None]

    def least(self, ops: Ops, q: Any) -> Any:
        """Return the least value over the critics: [K, M, ...] -> [K, ...]."""
        return reduce(ops.minimum, [q[:, i] for i in range(self.critics)])


class JointActions:
    """The actions of all players at one moment, as vectors side by side."""

    def __init__(self, ops: Ops, team: Team, vectors: Callable[[Member], Any], others: Any) -> None:
        """Join the vectors [K, S * B, A] of the members, and those of the other players, [1, B, J] or None."""
        blocks = team.blocks(vectors)
        self._ops, self._starts = ops, [0, *accumulate(int(block.shape[-1]) for block in blocks)]
        self.all = ops.concat([*blocks, *([] if others is None else [others[0]])], -1)[None]  # [1, B, J]

    def of(self, member: Member) -> Any:
        """Return the actions for the rows of the members, [K, S * B, J]."""
        return for_players(self._ops, member, self.all)

    def with_own(self, member: Member, own: Any) -> Any:
        """Return the actions for the rows of the members [K, S * B, J], the player's own replaced by [K, S * B, A]."""
        ops, result = self._ops, []
        vectors = ops.seats_apart(own, member.seats)
        for i, place in enumerate(member.places):
            start, stop = self._starts[place : place + 2]
            result.append(ops.concat([self.all[0, :, :start], vectors[i], self.all[0, :, stop:]], -1))
        return ops.seats_joined(ops.stack(result, 0), member.seats)


def actions_taken(ops: Ops, team: Team) -> JointActions:
    """Return the actions in the memory."""

    def taken(member: Member) -> Any:
        return ops.only(member.algorithm.vectors(ops, member.rows.action), member.rows.present)

    return JointActions(ops, team, taken, team.rows.others)
