"""Teams: players by the name of their team, given by names, shell patterns or prefixes of names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from marltrain.core.errors import ConfigError, did_you_mean, shown

Teams = Mapping[str, Sequence[str]]
"""Teams by name, each with its players, by names or shell patterns."""
BY_PREFIX = "prefix"
"""The teams are the players of equal names before the last "_"."""
EVERYONE = "all"
"""Name of the team of all players."""


def check_teams(where: str, teams: Any) -> None:
    """Raise ConfigError unless `teams` is a mapping of names to lists of at least one player, with a team.

    where: name of the argument.
    """
    if not teams:
        raise ConfigError(f"{where} must name at least one team, got {{}}: leave it out if there is none")
    for team, players in teams.items():
        if not isinstance(team, str):
            raise ConfigError(f"{where}: a team is named by text, got {shown(team)}")
        if isinstance(players, str) or not isinstance(players, Sequence) or not players:
            raise ConfigError(f"{where}: team {team!r} must be a list of at least one player, got {shown(players)}")


def members(players: Sequence[str], names: Sequence[str]) -> list[int]:
    """Return the places of a team's players, who are given by names or shell patterns."""
    return [i for i, name in enumerate(names) if any(name == each or fnmatchcase(name, each) for each in players)]


def team_of_each(where: str, teams: Teams, names: Sequence[str]) -> dict[int, str]:
    """Return the team of each player that has one, by the player's place.

    Raises ConfigError for names without a player, and for a player of two teams.
    """
    team_of: dict[int, str] = {}
    for team, players in teams.items():
        for given in players:
            if not isinstance(given, str) or not members([given], names):
                raise ConfigError(
                    f"{where}: team {team!r} names {shown(given)}, which matches no player."
                    f"{did_you_mean(given, names)} Players: {', '.join(names)}"
                )
        for member in members(players, names):
            if member in team_of:
                raise ConfigError(
                    f"{where}: player {names[member]!r} is in the teams {team_of[member]!r} and {team!r}: name it "
                    "in one of them"
                )
            team_of[member] = team
    return team_of


def joint_teams(teams: Teams | str | None, names: Sequence[str], learning_together: Sequence[bool]) -> list[str]:
    """Return the name of each player's team, for `make_agents(teams=...)`.

    teams: None: one team, "all"; "prefix": by the names before the last "_"; or teams by name.
    learning_together: for each player, whether its agent learns together with others.
    Raises ConfigError for other values, for teams that are empty, overlap, or leave out a player whose agent learns
    together with others, and for teams without such agents.
    """
    if teams is None:
        return [EVERYONE] * len(names)
    if not any(learning_together):
        raise ConfigError("teams= is for algorithms whose agents learn together (such as vdn and qmix): leave it out")
    if teams == BY_PREFIX:
        return [name.rpartition("_")[0] or name for name in names]
    if not isinstance(teams, Mapping):
        raise ConfigError(
            f'teams must be None (one team), "prefix" or teams by name ({{name: [players]}}), got {shown(teams)}'
        )
    check_teams("teams", teams)
    team_of = team_of_each("teams", teams, names)
    for i, team in team_of.items():
        if not learning_together[i]:
            raise ConfigError(
                f"teams: team {team!r} has the player {names[i]!r}, whose agent learns alone: leave it out of the team"
            )
    for i, together in enumerate(learning_together):
        if together and i not in team_of:
            raise ConfigError(
                f"teams: player {names[i]!r}, whose agent learns together with others, is in no team: add it to one of "
                f"{', '.join(map(repr, teams))}, or to a team of its own"
            )
    return [team_of.get(i, EVERYONE) for i in range(len(names))]
