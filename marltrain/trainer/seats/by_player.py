"""Values by player: mappings from players' names or shell patterns to entries, agents or masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from marltrain.core.errors import AgentError, ConfigError, MarlTrainError, did_you_mean, shown
from marltrain.core.spec import EnvSpec
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.matches import Matches

T = TypeVar("T")
Agents = Sequence[Agent] | Mapping[str, Agent]
"""One agent per player, in the players' order, or agents by player's name or pattern."""


def check_keys(given: Mapping[Any, Any], what: str, error: type[MarlTrainError] = ConfigError) -> None:
    """Raise an error unless all keys of the argument `what` are texts."""
    if wrong := [key for key in given if not isinstance(key, str)]:
        raise error(f"{what}: keys are players' names or patterns, got {shown(wrong[0])}")


def by_player(
    given: Mapping[str, T],
    spec: EnvSpec,
    what: str,
    error: type[MarlTrainError] = ConfigError,
    *,
    complete: bool = True,
) -> dict[str, T]:
    """Return the value of each player, in the players' order.

    given: values by player's name or shell pattern ("hare_*", case-sensitive, see `fnmatch`). A name takes precedence
      over patterns.  what: name of the argument, for messages.
    complete: every player must be matched. With False, players that no key matches are left out.
    Raises an error for keys that are no text, for a player that two patterns match, and for a key without a player.
    """
    check_keys(given, what, error)
    found: dict[str, T] = {}
    used: set[str] = set()
    for player in spec.names:
        keys = [player] if player in given else [key for key in given if fnmatchcase(player, key)]
        if len(keys) > 1 or (complete and not keys):
            by = f"by {len(keys)} patterns ({', '.join(map(repr, keys))})" if keys else "by none of the keys"
            times = "once" if complete else "at most once"
            raise error(
                f"{what}: player {player!r} of {spec.name} is matched {by}; every player must be matched {times}. Its "
                f"own name as a key takes precedence over patterns. Keys: {', '.join(map(repr, given)) or 'none'}"
            )
        used.update(keys)
        found.update((player, given[key]) for key in keys)
    for key in given:
        if key not in used:
            raise error(
                f"{what}: no player of {spec.name} is left for the key {key!r}.{did_you_mean(key, spec.names)} "
                f"Players: {', '.join(spec.names)}"
            )
    return found


def in_seats(agents: Any, spec: EnvSpec, what: str = "agents") -> Any:
    """Return a mapping of agents as a list, one per player; `Seating` checks the agents, and all other values.

    Raises AgentError if the keys do not fit the players.
    """
    return list(by_player(agents, spec, what, AgentError).values()) if isinstance(agents, Mapping) else agents


def without_seats(agents: Any) -> Any:
    """Return the agents of a mapping or of matches as a list, without their seats; other values as they are."""
    if isinstance(agents, Matches):
        return agents.agents
    return list(agents.values()) if isinstance(agents, Mapping) else agents
