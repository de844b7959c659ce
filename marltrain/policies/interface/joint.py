"""JointAlgorithm: agents of a team that learn together from one loss; each of them acts alone.

Centralized training with decentralized execution (Lowe et al. 2017, arXiv:1706.02275; Rashid et al. 2018,
arXiv:1803.11485).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from marltrain.core.errors import ConfigError
from marltrain.core.layout import Array, Layout, Space
from marltrain.core.settings import setting
from marltrain.core.spec import MOST_STATE
from marltrain.policies.batches.batch import TeamRollout
from marltrain.policies.batches.tensor_batch import TensorBatch
from marltrain.policies.interface.algorithm import REWARD, Algorithm, Networks, Phase
from marltrain.policies.networks.specs import NetworkDefinition
from marltrain.policies.ops import Ops

MOST_PLAYERS = 10_000
"""Largest number of players of a team; it detects mistyped settings."""


@dataclass(frozen=True)
class Member:
    """Agents of a team with equal spaces, in a gradient pass: K agents of S seats each.

    algorithm: their algorithm, which knows their spaces.
    nets: name -> network of the K agents.
    rows: columns [K, S * B, ...] of `TeamRows`, and those that phases add. `weight` is 0 for absent players, and for
        decisions from which the agent may not learn; the weights of an agent sum to 1.
    hyper: name -> [K, 1].
    places: of the K * S players, in the order of the team's players.
    """

    algorithm: Any
    nets: Networks
    rows: Any
    hyper: Mapping[str, Any]
    seats: int
    places: Sequence[int]


class Team:
    """A team in a gradient pass, which the functions of its phases get.

    members: the agents, those with equal spaces together.
    nets: name -> network of the team.
    rows: `reward, discount, weight` [1, B], `state, next_state` [1, B, S] and `others, next_others` [1, B, J], see
        `TeamBatch`; the weights sum to 1.
    hyper: name -> [1, 1], the numbers of the team's first agent.
    """

    def __init__(
        self, ops: Ops, members: Sequence[Member], nets: Networks, rows: TensorBatch, hyper: Mapping[str, Any],
        order: Sequence[int],
    ) -> None:  # fmt: skip
        """Store the parts.  order: places of the environment's players, in their order, among those of the members."""
        self.members, self.nets, self.hyper = members, nets, hyper
        self.rows: Any = rows
        self._ops, self._order = ops, order

    def each(self, function: Callable[[Member], Any]) -> Any:
        """Return the results [K, S * B, ...] of a function of the members, for all players in order: [N, B, ...]."""
        ops = self._ops
        rows = [ops.seats_apart(function(member), member.seats) for member in self.members]
        joined = rows[0] if len(rows) == 1 else ops.concat(rows, 0)
        if list(self._order) == sorted(self._order):
            return joined
        players = ops.unstack(joined)
        return ops.stack([players[i] for i in self._order], 0)

    def blocks(self, function: Callable[[Member], Any]) -> list[Any]:
        """Return the results [K, S * B, A_i] of a function of the members, for each player in order: [B, A_i]."""
        players = []
        for member in self.members:
            rows = self._ops.seats_apart(function(member), member.seats)
            players += [rows[i] for i in range(len(member.places))]
        return [players[i] for i in self._order]

    def side_by_side(self, function: Callable[[Member], Any]) -> Any:
        """Return the results [K, S * B] or [K, S * B, A] of all players side by side, [1, B, N] or [1, B, N * A]."""
        return self._ops.players_last(self.each(function))


@dataclass(frozen=True, kw_only=True)
class TeamSettings:
    """Settings of agents that learn together, beside those of their algorithm."""

    team: str = setting("all", doc="name of the team: the agents of one algorithm and team learn together")
    team_size: int | None = setting(None, doc="players of the team; `make_agents` sets it", low=1, high=MOST_PLAYERS)
    state_size: int | None = setting(
        None, doc="values of the global state; `make_agents` sets it", low=1, high=MOST_STATE
    )


class JointAlgorithm(Algorithm):
    """Base of algorithms whose agents learn together from batch steps at which the team acted.

    They are drawn from a replay memory; with `on_policy`, a rollout holds each of them once. `networks`, `targets`,
    `needs` and acting are those of one agent, as in every algorithm; the functions of `phases` get a `Team`. The team
    has networks of its own, such as a mixer. A checkpoint and the file of an agent hold a copy of them.

    one_reward: whether the players of a team must have equal rewards. Losses read that of the team (`Team.rows`).
    shared_settings: names of settings that must be equal in a team.
    """

    one_reward: ClassVar[bool] = True
    shared_settings: ClassVar[tuple[str, ...]] = ("batch_size", "update_freq", "update_per_step", "learning_starts")
    on_policy = False

    def __init__(self, settings: Any, layout: Layout, action_space: Space) -> None:
        """See `Algorithm`; raises ConfigError for a reward model, and without the sizes of the team and the state."""
        super().__init__(settings, layout, action_space)
        if getattr(settings, "reward_model", None) is not None:
            raise ConfigError(f"{self.name}: agents that learn together take no reward_model=: leave it out")
        if settings.team_size is None:
            raise ConfigError(
                f"{self.name}: agents learn together in a team, whose number of players they must know: "
                f"make_agents({self.name!r}, env) gives it, or team_size= does"
            )
        needs = self.needs()
        if needs.state is not None and settings.state_size is None:
            raise ConfigError(
                f"{self.name}: the team reads a global state, whose number of values the agents must know: "
                f"make_agents({self.name!r}, env) gives it, or state_size= does"
            )

    def statistics(self) -> dict[str, int]:
        """Return those of the base; those of a team's one reward are the team's."""
        return {name: width for name, width in super().statistics().items() if not (self.one_reward and name == REWARD)}

    def team_statistics(self) -> dict[str, int]:
        """Return the running statistics of the team, see `statistics`: those of its one reward, if it has one."""
        return {name: width for name, width in Algorithm.statistics(self).items() if self.one_reward and name == REWARD}

    def check_team(self, players: Sequence[Algorithm]) -> None:
        """Raise AgentError if the algorithms of a team's players do not fit together; by default, they do."""

    def team_networks(self) -> dict[str, NetworkDefinition]:
        """Return the networks of the team by name; none by default."""
        return {}

    def team_targets(self) -> tuple[str, ...]:
        """Return the names of the team's networks with a target network, which is named "target_<name>"."""
        return ()

    def settling_share(self, updates: Array, hyper: Mapping[str, Array]) -> Array:
        """Return the share by which the target networks of an agent that does not learn move after the team's update n.

        Its networks do not change, so that the target networks become equal to them. By default, see `target_share`.
        updates: [..., K], the numbers n.  hyper: name -> [..., K].
        """
        return self.target_share(updates, hyper)

    def prepare_team(
        self, ops: Ops, team: Team, batch: TeamRollout, to_numpy: Callable[[Any], Array]
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return columns [1, B] for the rows of the team, and metrics [1], from a complete rollout; without gradients.

        Only algorithms that are `on_policy` get rollouts.
        """
        return {}, {}

    def after_turn(self, ops: Ops, team: Team, learned: Sequence[Any]) -> dict[str, Any]:
        """Return columns [1, B] for the rows of the team, tensors, after a turn of a phase (`Phase.turns`).

        team: with all rows and the new weights; no gradients.  learned: [K] bool of each member, whose turn it was.
        """
        return {}


class TeamNetworks(Algorithm):
    """The networks of a team, of which `Weights` makes one of each."""

    def __init__(self, algorithm: JointAlgorithm) -> None:
        """Take the algorithm of the agents."""
        super().__init__(algorithm.settings, algorithm.layout, algorithm.action_space)
        self.name = algorithm.name  # type: ignore[misc]
        self.optimizer_epsilon = algorithm.optimizer_epsilon  # type: ignore[misc]
        self._of = algorithm

    def networks(self) -> dict[str, NetworkDefinition]:
        """See `JointAlgorithm.team_networks`."""
        return self._of.team_networks()

    def targets(self) -> tuple[str, ...]:
        """See `JointAlgorithm.team_targets`."""
        return self._of.team_targets()

    def statistics(self) -> dict[str, int]:
        """See `JointAlgorithm.team_statistics`."""
        return self._of.team_statistics()

    @property
    def phases(self) -> tuple[Phase, ...]:
        """No phases."""
        return ()


def learned_only(ops: Ops, member: Member, values: Any) -> Any:
    """Return values [K, S * B] of the members' decisions; those that an agent may not learn from get no gradient."""
    learned = member.rows.learned
    return values if learned is None else ops.where(learned, values, ops.stop_gradient(values))


def for_players(ops: Ops, member: Member, rows: Any) -> Any:
    """Return rows [1, B, ...] of the team for each player of the members, [K, S * B, ...]."""
    return ops.seats_joined(ops.repeat_agents(rows, len(member.places)), member.seats)


def by_member(
    team: Team, function: Callable[[Member], tuple[Any, dict[str, Any]]]
) -> tuple[list[Any], dict[str, list[Any]]]:
    """Return the losses and the metrics of a function of the members, as a phase with `apart` needs them."""
    result = [function(member) for member in team.members]
    return [loss for loss, _ in result], {name: [metrics[name] for _, metrics in result] for name in result[0][1]}
