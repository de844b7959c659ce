"""Python environments of the games, which report steps and returns to the stopwatch."""

from __future__ import annotations

from typing import Any

import gymnasium
from pettingzoo.utils import BaseParallelWrapper, BaseWrapper

from benchmarks.peers.common import WATCH


class CountedGame(BaseParallelWrapper):
    """A PettingZoo parallel environment that reports to the stopwatch.

    It is defined at module level, so that pickled copies report, too.
    """

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin an episode."""
        self.total = 0.0
        return self.env.reset(seed=seed, options=options)

    def step(self, actions: dict[str, Any]) -> Any:
        """Make an environment step; the return of an episode is the mean over its players."""
        result = self.env.step(actions)
        WATCH.steps += 1
        self.total += sum(result[1].values()) / len(result[1])
        if not self.env.agents:
            WATCH.returns.append(self.total)
        return result


class CountedTurns(BaseWrapper):
    """A turn-based PettingZoo environment that reports to the stopwatch; one turn of each player is a step."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Begin an episode."""
        self.total = 0.0
        self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> None:
        """Make a player's turn; the rewards follow the last player's turn."""
        last = self.env.agent_selection == self.env.possible_agents[-1]
        self.env.step(action)
        if last:
            WATCH.steps += 1
            self.total += sum(self.env.rewards.values()) / len(self.env.rewards)
            if any(self.env.truncations.values()):
                WATCH.returns.append(self.total)


class CountedEpisodes(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A Gymnasium environment that reports to the stopwatch."""

    def reset(self, **options: Any) -> Any:
        """Begin an episode."""
        self.total = 0.0
        return self.env.reset(**options)

    def step(self, action: Any) -> Any:
        """Make an environment step."""
        result = self.env.step(action)
        WATCH.steps += 1
        self.total += float(result[1])
        if result[2] or result[3]:
            WATCH.returns.append(self.total)
        return result


def spread(players: int) -> CountedGame:
    """Return mpe2's simple_spread_v3 with discrete actions."""
    from mpe2 import simple_spread_v3

    return CountedGame(simple_spread_v3.parallel_env(N=players))


def spread_in_turns(players: int) -> CountedTurns:
    """Return the turn-based form of mpe2's simple_spread_v3."""
    from mpe2 import simple_spread_v3

    return CountedTurns(simple_spread_v3.env(N=players))


def cartpole() -> CountedEpisodes:
    """Return Gymnasium's CartPole-v1."""
    return CountedEpisodes(gymnasium.make("CartPole-v1"))
