"""The numbers of agents that a callback may change, and the choice of agents by player names."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from marltrain.core.errors import ConfigError, did_you_mean, shown
from marltrain.core.settings import accepts_fractions
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.hyperparameters.stacked import StackedHyperparameters
from marltrain.trainer.settings import TrainerSettings
from marltrain.trainer.updating.update_schedule import Defaults, batch_size_of

Players = str | Sequence[str] | None
"""Names of players or shell patterns; None: all."""


def checked_players(who: str, players: Players) -> tuple[str, ...] | None:
    """Return names or patterns of players as a tuple; raises ConfigError for anything else."""
    given = (players,) if isinstance(players, str) else players
    if given is None:
        return None
    if not isinstance(given, list | tuple) or not given or not all(isinstance(name, str) for name in given):
        raise ConfigError(f"{who}: players must be names of players or shell patterns, got {shown(players)}")
    return tuple(given)


def chosen_agents(
    who: str, name: str, patterns: tuple[str, ...] | None, players: Mapping[str, Agent]
) -> dict[str, LearningAgent]:
    """Return the agents whose number `name` a callback changes, by their labels in tables.

    who: the callback, for messages.  patterns: names or shell patterns of players; each of these agents must have the
    number. None: all agents that have it.
    Raises ConfigError if there is none, for a pattern without a player, and for a number that a schedule sets.
    """
    seats: dict[int, list[str]] = {}
    for player, agent in players.items():
        seats.setdefault(id(agent), []).append(player)
    for pattern in patterns or ():
        if not any(fnmatchcase(player, pattern) for player in players):
            near = did_you_mean(pattern, players)
            raise ConfigError(f"{who}: no player is called {pattern!r}.{near} Players: {', '.join(players)}")
    chosen: dict[str, LearningAgent] = {}
    missing: dict[str, str] = {}
    for player, agent in players.items():
        held = seats[id(agent)]
        if player != held[0] or not _wanted(held, patterns):
            continue
        if isinstance(agent, LearningAgent) and name in names_of(agent):
            chosen["+".join(held)] = agent
        else:
            known = names_of(agent) if isinstance(agent, LearningAgent) else ()
            near = did_you_mean(name, known)
            missing[player] = f"{near} It has: {', '.join(known)}" if known else " It has no numbers that may change"
    if missing and (patterns is not None or not chosen):
        player, hint = next(iter(missing.items()))
        raise ConfigError(
            f"{who}: the {type(players[player]).__name__} of player {player!r} has no number {name!r} that may change "
            f"in training.{hint}"
        )
    for label, agent in chosen.items():
        number = holder(agent, name)
        if number.get(agent.row, name) is None and not common_number(agent, name):
            raise ConfigError(f"{who}: {name} of {label} is None. Make the agent with a number: {name}=...")
        if name in number.schedules[agent.row]:
            raise ConfigError(f"{who}: {name} of {label} follows a schedule. Make the agent with a number: {name}=...")
    return chosen


def names_of(agent: LearningAgent) -> tuple[str, ...]:
    """Return the names of an agent's numbers that may change in training: hyperparameters, and those of its memory."""
    hyper, memory = agent.learner_.hyper, agent.learner_.memory
    return (*hyper.names, *hyper.common, *(() if memory is None else memory.names))


def holder(agent: LearningAgent, name: str) -> StackedHyperparameters:
    """Return the object that holds an agent's number."""
    hyper, memory = agent.learner_.hyper, agent.learner_.memory
    if name in hyper.names or name in hyper.common or memory is None:
        return hyper
    return next(part for part in memory.parts.values() if name in part.names)


def check_value(agent: LearningAgent, name: str, value: float) -> None:
    """Raise ConfigError for a value that an agent's number cannot have, or that has no effect; see `write`."""
    held, learner = holder(agent, name), agent.learner_
    checked = held.checked(name, rounded(held, name, value))
    if common_number(agent, name):
        learner.update_schedule.with_common({name: checked}, learner.algorithm.name)


def common_number(agent: LearningAgent, name: str) -> bool:
    """Return whether all agents of a learner share this number."""
    return name in agent.learner_.hyper.common


def read(agent: LearningAgent, name: str, settings: TrainerSettings) -> float:
    """Return the value of an agent's number that is in effect; settings: the trainer's, for values that it gives."""
    if name == "batch_size":
        defaults = Defaults(settings.batch_size, settings.update_freq, settings.shared_memory, settings.given)
        return batch_size_of(agent.learner_.update_schedule, defaults)
    value = holder(agent, name).get(agent.row, name)
    return math.inf if value is None else float(value)


def write(agent: LearningAgent, name: str, value: float) -> None:
    """Set an agent's number, rounded if it is an integer; the next update uses it."""
    held = holder(agent, name)
    settings = agent.hyper if held is agent.learner_.hyper else agent.memory
    setattr(settings, name, rounded(held, name, value))


def rounded(held: StackedHyperparameters, name: str, value: float) -> float:
    """Return a value of a number, rounded to an integer of at least 1 if the number is one."""
    return value if accepts_fractions(type(held.settings), name) else max(1, round(value))


def _wanted(held: Sequence[str], patterns: tuple[str, ...] | None) -> bool:
    """Return whether an agent is meant that holds the seats of these players."""
    return patterns is None or any(fnmatchcase(player, pattern) for player in held for pattern in patterns)
