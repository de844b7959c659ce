"""Sides: the players whose returns in tests a picture draws as one curve, their mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from marltrain.layout import Array
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.algorithms.joint import JointAlgorithm
from marltrain.trainer.teams import members

if TYPE_CHECKING:
    import pandas as pd

RETURN = "return/"
"""Beginning of the columns of players' returns."""
MANY = 8
"""Number of players from which those of equal names before the last "_" are one side."""
ZERO = 1e-6
"""Fraction of the largest return below which a metric counts as 0: sums are rounded."""


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
            side_of |= {players[i]: str(team) for i in members([str(each) for each in named], players)}
    elif teams is not None and len(set(teams.values())) > 1:
        side_of = {player: team for player, team in teams.items() if player in players}
    elif len(players) > MANY and 1 < len({_prefix(player) for player in players}) <= MANY:
        side_of = {player: _prefix(player) for player in players}
    sides: dict[str, list[str]] = {}
    for player in players:
        sides.setdefault(side_of.get(player, player), []).append(player)
    return sides


def sides_of_run(config: Mapping[str, Any], tests: pd.DataFrame) -> dict[str, list[str]]:
    """Return the sides of a run by its config.json, and its table of tests."""
    trainer, seats = config.get("trainer"), config.get("seats")
    reward = trainer.get("team_reward") if isinstance(trainer, Mapping) else None
    teams: dict[str, str] = {}
    for seat in seats if isinstance(seats, list) else ():
        agent = seat.get("agent") if isinstance(seat, Mapping) else None
        settings = agent.get("settings") if isinstance(agent, Mapping) else None
        if isinstance(settings, Mapping) and "team" in settings:
            teams[str(seat.get("player"))] = str(settings["team"])
    return sides_of(players_of(tests), reward, teams)


def teams_of(agents: Sequence[Agent], players: Sequence[str]) -> dict[str, str]:
    """Return the team of each player whose agent learns together with others."""
    return {
        player: agent.algorithm.settings.team
        for player, agent in zip(players, agents, strict=True)
        if isinstance(agent, LearningAgent) and isinstance(agent.algorithm, JointAlgorithm)
    }


def players_of(tests: pd.DataFrame) -> list[str]:
    """Return the players of a table of tests."""
    return [name.removeprefix(RETURN) for name in tests.columns if name.startswith(RETURN)]


def side_returns(tests: pd.DataFrame, side: Sequence[str]) -> Array:
    """Return the mean return of the players of a side in each test, [tests] float64."""
    return np.asarray(tests[[f"{RETURN}{player}" for player in side]].to_numpy(float).mean(1))


def is_zero_sum(tests: pd.DataFrame) -> bool:
    """Return whether the metric is 0 in every test though returns are not: it then says nothing."""
    returns = np.abs(tests[[f"{RETURN}{player}" for player in players_of(tests)]].to_numpy(float))
    largest = float(np.nanmax(returns)) if np.isfinite(returns).any() else 0.0
    return largest > 0 and bool((tests["metric"].abs() <= ZERO * largest).all())


def _prefix(player: str) -> str:
    return player.rpartition("_")[0] or player
