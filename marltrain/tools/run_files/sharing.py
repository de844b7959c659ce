"""Keys of a plan's players where some of them hold the same agent."""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from marltrain.core.errors import ConfigError


def by_agent(plans: Mapping[str, Any], agents: Sequence[int]) -> dict[str, Any]:
    """Return the players' plans with one key for each agent: a name, or a pattern for the players that share it.

    plans: by player, in the players' order.  agents: [P], equal numbers for players that hold the same agent.
    Raises ConfigError if no pattern matches just the players of an agent, or if their plans differ.
    """
    players: dict[int, list[str]] = {}
    for name, agent in zip(plans, agents, strict=True):
        players.setdefault(agent, []).append(name)
    sharing = [names for names in players.values() if len(names) > 1]
    result = {}
    for names in players.values():
        others = [other for group in sharing if group is not names for other in group]
        if any(plans[name] != plans[names[0]] for name in names):
            raise ConfigError(f"no file can describe players of one agent that differ: {', '.join(names)}")
        result[names[0] if len(names) == 1 else _pattern(names, others)] = plans[names[0]]
    return result


def _pattern(names: Sequence[str], others: Sequence[str]) -> str:
    """Return a shell pattern that matches all of some names, and none of others."""
    first = _common_start(names)
    last = _common_start([name[len(first) :][::-1] for name in names])[::-1]
    pattern = f"{glob.escape(first)}*{glob.escape(last)}"
    if wrong := [name for name in others if fnmatchcase(name, pattern)]:
        raise ConfigError(
            f"no file can describe which players share an agent: the pattern {pattern!r} of {', '.join(names)} matches "
            f"{', '.join(wrong)} too. Train this run from Python"
        )
    return pattern


def _common_start(texts: Sequence[str]) -> str:
    """Return the longest text with which all texts start: that of the first and the last in their order."""
    low, high = min(texts), max(texts)
    return low[: next((i for i, letter in enumerate(low) if letter != high[i : i + 1]), len(low))]
