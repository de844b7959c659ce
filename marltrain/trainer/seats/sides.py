"""Sides: players who play together, by the teams of a run, or by their names if there are many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.agents.mixed import MixedAgent
from marltrain.policies.interface.joint import JointAlgorithm
from marltrain.trainer.seats.teams import members, team_of_each

MANY = 8
"""Number of players from which those of equal names before the last "_" are one side."""


def sides_of(
    players: Sequence[str], team_reward: Any = None, teams: Mapping[str, str] | None = None
) -> dict[str, list[str]]:
    """Return the players of each side by its name; every player is on one side.

    players: all, in order.  team_reward: that of the trainer; teams in it are sides.  teams: the team of players that
    learn together; they are sides if there are several.
    Without teams, each player is a side, or players of equal names before the last "_" if there are many players.
    """
    side_of: dict[str, str] = {}
    if isinstance(team_reward, Mapping):
        for team, named in team_reward.items():
            if not isinstance(named, Sequence):  # a config.json is not trusted
                continue
            side_of |= {players[i]: str(team) for i in members([str(each) for each in named], players)}
    elif teams is not None and len(set(teams.values())) > 1:
        side_of = {player: team for player, team in teams.items() if player in players}
    elif len(players) > MANY and 1 < len({_prefix(player) for player in players}) <= MANY:
        side_of = {player: _prefix(player) for player in players}
    sides: dict[str, list[str]] = {}
    for player in players:
        sides.setdefault(side_of.get(player, player), []).append(player)
    return sides


def teams_of(agents: Sequence[Agent], players: Sequence[str]) -> dict[str, str]:
    """Return the team of each player whose agent learns together with others."""
    return {
        player: agent.algorithm.settings.team
        for player, agent in zip(players, agents, strict=True)
        if isinstance(agent, LearningAgent) and isinstance(agent.algorithm, JointAlgorithm)
    }


def whole_teams(agents: Sequence[Agent], players: Sequence[str], team_reward: Any) -> list[list[int]]:
    """Return the teams of a line-up as the indices of their players; none if every player is alone, or all together.

    Players are in a team if `team_reward` says so, if their agents learn together, or if they are seats of a pool of
    teams, or of a team of which versions play there. The other players are a team.
    """
    joint, label = teams_of(agents, players), dict[int, Any]()
    for agent in agents:
        for team in agent.sides if isinstance(agent, MixedAgent) else ():
            label |= {i: id(team[0]) for i, other in enumerate(agents) if any(other is each for each in team)}
    if len(set(joint.values())) > 1:
        label |= {i: joint[player] for i, player in enumerate(players) if player in joint}
    if isinstance(team_reward, Mapping):
        label |= team_of_each("team_reward", team_reward, players)
    if not label:
        return []
    teams: dict[Any, list[int]] = {}
    for i in range(len(players)):
        teams.setdefault(label.get(i), []).append(i)
    return list(teams.values())


def _prefix(player: str) -> str:
    return player.rpartition("_")[0] or player
