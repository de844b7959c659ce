"""The options `--team-reward`, `--teams` and `--test-against`: who plays with and against whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from marltrain.cli.options import Parser
from marltrain.core.errors import ConfigError


def add_team_reward(parser: Parser) -> None:
    """Add the option `--team-reward`, which `pop_team_reward` reads."""
    parser.add_argument("--team-reward", action="append", metavar="REWARD", help="to learn from: mean or sum of all, "
                        "or TEAM=PLAYER,... (their mean) for each team")  # fmt: skip


def add_team_arguments(parser: Parser) -> None:
    """Add the three options; each takes a word, or may be repeated."""
    add_team_reward(parser)
    parser.add_argument("--teams", action="append", metavar="TEAMS",
                        help="that learn together: prefix (names before the last _), or TEAM=PLAYER,... for "
                        "each")  # fmt: skip
    parser.add_argument("--test-against", action="append", metavar="WHO", help="in tests: random for all but the first "
                        "side that learns; or PLAYER=random, repeatable")  # fmt: skip


def pop_teams(options: dict[str, Any]) -> dict[str, Any]:
    """Remove the three options and return those that were given, as fields of a `RunPlan`; raises ConfigError."""
    fields = pop_team_reward(options)
    if "teams" in options:
        fields["teams"] = teams_of("--teams", options.pop("teams"))
    if "test_against" in options:
        fields["test_against"] = _opponents(options.pop("test_against"))
    return fields


def pop_team_reward(options: dict[str, Any]) -> dict[str, Any]:
    """Remove `--team-reward` and return the argument `team_reward` of the trainer, if it was given."""
    if "team_reward" not in options:
        return {}
    return {"team_reward": teams_of("--team-reward", options.pop("team_reward"))}


def teams_of(option: str, texts: Sequence[str]) -> Any:
    """Return one word, or teams with their players from texts TEAM=PLAYER,...; raises ConfigError for other texts."""
    if len(texts) == 1 and "=" not in texts[0]:
        return texts[0]
    teams: dict[str, list[str]] = {}
    for text in texts:
        team, equals, players = text.partition("=")
        named = [player for player in players.split(",") if player]
        if not equals or not team or not named:
            raise ConfigError(f"{option} takes one word, or TEAM=PLAYER,... for each team, got {text!r}")
        if team in teams:
            raise ConfigError(f"{option} names the team {team!r} twice: give its players at once, separated by commas")
        teams[team] = named
    return teams


def _opponents(texts: Sequence[str]) -> Any:
    """Return "random", or {player: opponent} from texts PLAYER=random."""
    if len(texts) == 1 and "=" not in texts[0]:
        return texts[0]
    opponents: dict[str, str] = {}
    for text in texts:
        player, _, opponent = text.rpartition("=")
        if not player or not opponent:
            raise ConfigError(f"--test-against takes random, or PLAYER=random for each player, got {text!r}")
        if player in opponents:
            raise ConfigError(f"--test-against names {player!r} twice")
        opponents[player] = opponent
    return opponents
