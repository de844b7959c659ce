"""Line-ups of an evaluation: competitors, their agents, and who holds which seats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from marltrain.core.errors import AgentError, ConfigError, did_you_mean, shown
from marltrain.core.spaces import describe_space, without_mask
from marltrain.core.spec import EnvSpec
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.fixed import RandomAgent
from marltrain.storage.files import path_of
from marltrain.tools.saved_run import agents_of
from marltrain.trainer.seats.by_player import in_seats, without_seats
from marltrain.trainer.seats.seats import Seating

RANDOM = "random"
"""The competitor whose agents play at random."""


@dataclass(frozen=True, eq=False)
class Competitor:
    """A name and one agent per player; None: random agents."""

    name: str
    agents: Sequence[Agent] | None

    def agent(self, player: int) -> Agent:
        """Return the agent of a player."""
        return RandomAgent() if self.agents is None else self.agents[player]


@dataclass(frozen=True, eq=False)
class LineUp:
    """One competitor for each player, in the players' order."""

    seats: tuple[Competitor, ...]

    @property
    def name(self) -> str:
        """The names of the competitors in order, each once."""
        return " vs ".join(dict.fromkeys(seat.name for seat in self.seats))

    @property
    def agents(self) -> list[Agent]:
        """The agents that play, one per player."""
        return [seat.agent(player) for player, seat in enumerate(self.seats)]


def opponents(
    against: Sequence[Any] | Mapping[str, Any],
    spec: EnvSpec,
    taken: str,
    custom_objects: Mapping[str, Any] | None,
    device: str | None = None,
) -> list[Competitor]:
    """Return the competitors that `against` names; see `evaluate`. Raises ConfigError for a name that is used twice.

    spec: of the first environment.  Agents without a name are "agents 2" and so on, by their place after the run.
    """
    if isinstance(against, str | Path):
        raise ConfigError(f"against must be a list of opponents or a mapping from name to opponent, got {against!r}")
    if isinstance(against, Mapping):
        named = dict(against)
    else:
        named = {
            name_of(one) if isinstance(one, str | Path) else f"agents {i}": one for i, one in enumerate(against, 2)
        }
    if len(named) < len(against) or taken in named:
        twice = taken if taken in named else "an opponent"
        raise ConfigError(f"against names {twice} twice: give different names, such as {{'old': 'runs/a', ...}} "
                          "(--against old=runs/a)")  # fmt: skip
    return [Competitor(name, _agents(one, spec, custom_objects, device)) for name, one in named.items()]


def name_of(run: Any) -> str:
    """Return the name of a run in tables: that of its folder."""
    return run if run == RANDOM else path_of(run, "run", ConfigError).resolve().name


def _agents(
    one: Any, spec: EnvSpec, custom_objects: Mapping[str, Any] | None, device: str | None
) -> Sequence[Agent] | None:
    if isinstance(one, str) and one == RANDOM:
        return None
    if isinstance(one, str | Path):
        one = agents_of(one, custom_objects=custom_objects, device=device)[0]
    elif not are_agents(one):
        raise ConfigError(f"against: expected 'random', the folder of a run or a list of agents, got {shown(one)}")
    agents: Sequence[Agent] = in_seats(one, spec, "against")
    return agents


def are_agents(value: Any) -> bool:
    """Return whether an object is a sequence of agents, or a mapping with agents as its values."""
    agents = without_seats(value)
    return isinstance(agents, Sequence) and all(isinstance(agent, Agent) for agent in agents)


def sides_of(spec: EnvSpec, sides: Sequence[str] | None) -> list[list[int]]:
    """Return the players of each side; None: each player is a side.

    sides: a name or pattern for each side; the players that none of them matches form one more side.
    Raises ConfigError if a side has no player.
    """
    players = range(len(spec.players))
    if sides is None:
        return [[player] for player in players]
    left, result = list(players), []
    for pattern in sides:
        side = [player for player in left if fnmatchcase(spec.names[player], pattern)]
        if not side:
            raise ConfigError(f"sides: {pattern!r} matches no player that is left.{did_you_mean(pattern, spec.names)} "
                              f"There are {', '.join(spec.names)}")  # fmt: skip
        result.append(side)
        left = [player for player in left if player not in side]
    return [*result, left] if left else result


def line_ups(competitors: Sequence[Competitor], sides: Sequence[Sequence[int]]) -> list[LineUp]:
    """Return the line-ups of a cross-play matrix, each once: one competitor holds a side, another one all others.

    A single competitor holds all seats.
    """
    players = sorted(player for side in sides for player in side)
    found: dict[tuple[int, ...], LineUp] = {}
    for one in competitors:
        for other in competitors:
            for side in sides:
                seats = tuple(one if player in side else other for player in players)
                found.setdefault(tuple(map(id, seats)), LineUp(seats))
    return list(found.values())


def check_seats(spec: EnvSpec, competitors: Sequence[Competitor], cell: str) -> None:
    """Raise ConfigError, naming the cell of the grid, if the agents of a competitor cannot play an environment."""
    for competitor in competitors:
        if competitor.agents is None:
            continue
        try:
            Seating(spec, list(competitor.agents), 0, stack=False)
        except AgentError as error:
            where = f"with {cell}" if cell else "in this environment"
            raise ConfigError(
                f"the agents of {competitor.name!r} cannot play {where}: {error}{_other_space(spec, competitor)}. "
                "Evaluate over arguments that keep the players and their spaces"
            ) from error


def _other_space(spec: EnvSpec, competitor: Competitor) -> str:
    """Return the first observation space that differs from the agent's, in words, if the numbers of both differ."""
    agents = competitor.agents or ()
    if len(agents) == len(spec.players):
        return ""
    for player, agent in zip(spec.players, agents, strict=False):
        theirs, mine = without_mask(player.observation_space)[0], agent.observation_space
        if mine is not None and describe_space(without_mask(mine)[0]) != describe_space(theirs):
            return f". Player {player.name!r} observes {theirs}, and its agent was made for {mine}"
    return ""
