"""Team rewards: players learn from the rewards of their team, in place of their own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from marltrain.core.errors import ConfigError, EnvError, did_you_mean, shown
from marltrain.core.layout import Array
from marltrain.core.settings import check_function
from marltrain.trainer.seats.seats import Seats, TeamSeats
from marltrain.trainer.seats.teams import Teams, check_teams, members, team_of_each

TEAM_REWARDS = ("mean", "sum")
TeamFunction = Callable[[Array], float]
TeamReward = str | TeamFunction | Teams | None
"""One reward for all players, or teams by name, each with its players, who learn from the mean of their rewards."""


def check_team_reward(team_reward: Any) -> None:
    """Raise ConfigError unless it is None, "mean", "sum", a function of rewards, or teams of players."""
    if team_reward is None or (isinstance(team_reward, str) and team_reward in TEAM_REWARDS):
        return
    if isinstance(team_reward, Mapping):
        check_teams("team_reward", team_reward)
        return
    if callable(team_reward):
        check_function("team_reward", team_reward, "rewards")
        return
    near = did_you_mean(team_reward, TEAM_REWARDS)
    raise ConfigError(
        'team_reward must be None, "mean", "sum", a function of rewards, or teams ({name: [players]}), got '
        f"{shown(team_reward)}.{near}"
    )


def try_team_reward(team_reward: TeamReward, names: Sequence[str]) -> None:
    """Raise ConfigError for teams that do not fit the players, or a function that does not return one number.

    The function gets rewards [P] that are all 0. Arithmetic errors and non-finite results are ignored: real rewards may
    never be all 0.
    """
    if team_reward is None or isinstance(team_reward, str):
        return
    if isinstance(team_reward, Mapping):
        team_of_each("team_reward", team_reward, names)
        return
    try:
        with np.errstate(all="ignore"):
            value: Any = team_reward(np.zeros(len(names), np.float32))
    except (ArithmeticError, ValueError):
        return
    except (LookupError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"team_reward is called with an array of the rewards of {', '.join(names)}, in this order, and raised "
            f"{type(error).__name__}: {error}"
        ) from error
    if isinstance(value, str) or getattr(value, "shape", ()) != () or not hasattr(value, "__float__"):
        raise ConfigError(f"team_reward must return one number for rewards [{len(names)}], got {shown(value)}")


def check_one_reward(seated: Seats, team_reward: TeamReward) -> None:
    """Raise ConfigError if agents that learn from one reward are in several teams of `team_reward`."""
    if not isinstance(seated, TeamSeats) or not isinstance(team_reward, Mapping):
        return
    algorithm, names = seated.learner.algorithm, seated.members[0].names
    rewarded = team_of_each("team_reward", team_reward, names)
    team_of = {p: rewarded[p] for member in seated.members for p in member.players.ravel().tolist() if p in rewarded}
    if algorithm.one_reward and len(set(team_of.values())) > 1:
        text = ", ".join(f"{names[p]} in {team!r}" for p, team in sorted(team_of.items()))
        raise ConfigError(
            f"{algorithm.name}: the agents of team {algorithm.settings.team!r} learn from one reward, and team_reward "
            f"has several teams of them ({text}): give make_agents the same teams with teams="
        )


class TeamRewards:
    """Computes the rewards that the players learn from.

    copies: number of copies of the environment, which are independent of each other.
    teams: the places of the players of each team, in order.  mean: whether a team gets the mean of its rewards, else
    their sum.  function: of all rewards, in place of teams; None without one.
    """

    def __init__(self, team_reward: str | TeamFunction | Teams, names: Sequence[str], copies: int = 1) -> None:
        """Find the players of each team.

        names: all players of one environment.  copies: of a population, whose player p of copy n has the place
        p * copies + n; each copy has its own teams.
        """
        self.mean, self.copies, self._players = team_reward != "sum", copies, len(names)
        self.function: TeamFunction | None = None
        teams: list[list[int]] = []
        if isinstance(team_reward, Mapping):
            teams = [members(players, names) for players in team_reward.values()]
        elif isinstance(team_reward, str):
            teams = [list(range(len(names)))]
        else:
            self.function = team_reward
        self.teams = [[p * copies + n for p in team] for n in range(copies) for team in teams]

    @property
    def one_for_all(self) -> bool:
        """Whether all players always get the same reward."""
        return self.function is not None or [len(team) for team in self.teams] == [self._players]

    def __call__(self, rewards: Array) -> Array:
        """Return the rewards to learn from, [P, E] float32, for the players' own rewards [P, E].

        Raises EnvError if a function returns something other than one finite number.
        """
        if self.function is not None:
            own = [self._result(self.function, rewards[n :: self.copies]) for n in range(self.copies)]
            return np.tile(np.stack(own), (len(rewards) // self.copies, 1))
        shared = rewards.astype(np.float32)
        for team in self.teams:
            total = functools.reduce(np.add, shared[team])  # in order, as compiled code adds (`shared_rewards.py`)
            shared[team] = total / len(team) if self.mean else total
        return shared

    @staticmethod
    def _result(function: TeamFunction, rewards: Array) -> Array:
        """Return the function's numbers, [E] float32."""
        values = [function(rewards[:, e]) for e in range(rewards.shape[1])]
        joint = np.array(values)
        if joint.ndim != 1 or not np.issubdtype(joint.dtype, np.number) or not np.isfinite(joint).all():
            raise EnvError(f"team_reward must return one finite number for rewards [P], got {values[0]!r}")
        return joint.astype(np.float32)
