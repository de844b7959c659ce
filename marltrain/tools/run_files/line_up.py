"""The agents that play the tests of a run that is tested against random players (`--test-against`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from marltrain.core.errors import ConfigError, did_you_mean, shown
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.fixed import RandomAgent

RANDOM = "random"
"""The only opponent."""
OPTION = "test_against (--test-against)"


class LineUp(NamedTuple):
    """Arguments of `DecentralizedTrainer.train`."""

    test_agents: Sequence[Agent]
    rotate_tests: bool


def check_test_against(against: Any) -> None:
    """Raise ConfigError unless it is None, "random", or {player or pattern: "random"}."""
    if against is None or against == RANDOM:
        return
    if not isinstance(against, Mapping) or not against:
        raise ConfigError(f'{OPTION} must be "random", or players by name or pattern, {{"player": "random"}}; got '
                          f"{shown(against)}.{did_you_mean(against, [RANDOM])}")  # fmt: skip
    for player, opponent in against.items():
        if opponent != RANDOM:
            raise ConfigError(f"{OPTION}: the opponent in the seat of {player!r} must be random, got {shown(opponent)}."
                              f"{did_you_mean(opponent, [RANDOM])}")  # fmt: skip


def line_up(
    against: Any, agents: Sequence[Agent], players: Sequence[str], learns: Sequence[bool],
    sides: Mapping[str, Sequence[str]],
) -> LineUp:  # fmt: skip
    """Return the line-up that plays the tests.

    against: {player or pattern: "random"}: these seats are random, all others hold their agents. "random": the first
      side that learns holds its agents, all other seats are random. One agent in all seats, without teams, changes
      seats with the random players after each episode.
    agents, players, learns: one of each per seat.  sides: the players of each side, see `sides_of`.
    Raises ConfigError for a pattern that matches no player, and if every seat would be random, or none.
    """
    if isinstance(against, Mapping):
        random = _matched(against, players)
        if len(random) == len(players):
            raise ConfigError(f"{OPTION}: all players ({', '.join(players)}) would be random: leave out those whose "
                              "agents are tested")  # fmt: skip
        return _seated(agents, random)
    if len(sides) < 2:
        raise ConfigError(
            f"{OPTION}: there is one side ({', '.join(players)}), and random players need a second one: name the "
            "players that play at random (--test-against PLAYER=random)"
        )
    if len(sides) == len(players) and all(agent is agents[0] for agent in agents):
        return LineUp(beside_random(agents), rotate_tests=True)
    learning = {player for player, own in zip(players, learns, strict=True) if own}
    tested = next((side for side in sides.values() if learning & set(side)), None)
    if tested is None:
        raise ConfigError(f"{OPTION}: no player learns, so there is nothing to test")
    return _seated(agents, {i for i, player in enumerate(players) if player not in tested})


def beside_random(agents: Sequence[Agent]) -> list[Agent]:
    """Return the first agent, and random agents in all other seats."""
    return [agents[0], *(RandomAgent() for _ in agents[1:])]


def _matched(against: Mapping[str, Any], players: Sequence[str]) -> set[int]:
    """Return the places of the players that names and patterns match."""
    found: set[int] = set()
    for pattern in against:
        own = {i for i, player in enumerate(players) if player == pattern or fnmatchcase(player, pattern)}
        if not own:
            raise ConfigError(f"{OPTION}: {pattern!r} matches no player.{did_you_mean(pattern, players)} "
                              f"Players: {', '.join(players)}")  # fmt: skip
        found |= own
    return found


def _seated(agents: Sequence[Agent], random: Collection[int]) -> LineUp:
    """Return agents in their seats, but for the random ones, which stay there."""
    return LineUp([RandomAgent() if i in random else agent for i, agent in enumerate(agents)], rotate_tests=False)
