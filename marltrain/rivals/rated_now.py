"""The players of a league as they are during training: learners, their earlier versions, and other members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from marltrain.core.errors import ConfigError
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.agents.mixed import MixedAgent
from marltrain.rivals.league_pool import LeaguePool
from marltrain.rivals.opponent_pool import OpponentPool
from marltrain.rivals.saved_league import EXPLOITERS, RatedPlayer, all_players, named, pool_members


@dataclass(frozen=True)
class TrainedLeague:
    """Learners by name, each an agent or a team, and the pools that play against them.

    pools: the sets of each pool, one for each seat of a team.
    seats: the places of the players of both sides of the game.
    """

    learners: Mapping[str, tuple[Agent, ...]]
    pools: Sequence[tuple[MixedAgent, ...]]
    seats: tuple[Sequence[int], Sequence[int]] = ((0,), (1,))

    def players(self, members: int, env_steps: int) -> list[RatedPlayer]:
        """Return copies of all that play; see `all_players`.  env_steps: of the run."""
        finals = [
            RatedPlayer(
                named("now", label, self.learners), tuple(agent.frozen_copy() for agent in team), label, final=True,
                exploits=label.rpartition("_")[0] in EXPLOITERS, env_steps=env_steps,
            )
            for label, team in self.learners.items()
        ]  # fmt: skip
        found = [player for pool in self.pools for player in pool_members(pool, None, self.learners)]
        versions, others = [one for one in found if one.learner], [one for one in found if not one.learner]
        return all_players(finals, versions, others, members)


def trained_league(line_up: Mapping[str, Agent]) -> TrainedLeague:
    """Return the learners and the pools of a line-up; raises ConfigError without a pool, and for other games.

    line_up: the agents that train, by player; of a league those of all its matches.
    """
    sets = list(dict.fromkeys(agent for agent in line_up.values() if isinstance(agent, MixedAgent)))
    held: dict[Agent, list[str]] = {}
    for player, agent in line_up.items():
        if isinstance(agent, LearningAgent):
            held.setdefault(agent, []).append(player)
    learners: dict[str, tuple[Agent, ...]] = {"+".join(names): (agent,) for agent, names in held.items()}
    if not sets or not learners:
        raise ConfigError(
            "LeagueRatings: expected learning agents and an OpponentPool, a MixedAgent or a League, got "
            f"{', '.join(type(agent).__name__ for agent in line_up.values())}"
        )
    for pool in sets:
        if isinstance(pool, LeaguePool) and len(line_up) == 2 * len(pool.learners):
            return TrainedLeague({each.name: (each.agent,) for each in pool.learners}, [(pool,)])
        if isinstance(pool, OpponentPool) and pool.sides and len(pool.teams) == 1:
            sides = [[list(line_up.values()).index(agent) for agent in side] for side in (pool.teams[0], pool.seats)]
            if len(line_up) == sum(map(len, sides)):
                return TrainedLeague({"+".join(learners): pool.teams[0]}, [tuple(pool.seats)], (sides[0], sides[1]))
    if len(line_up) != 2:
        raise ConfigError(
            "LeagueRatings: expected a game of two players, or a team against a pool of teams, got the players "
            f"{', '.join(line_up)}"
        )
    return TrainedLeague(learners, [(pool,) for pool in sets])
