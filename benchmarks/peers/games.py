"""The games as Python environments, which report steps and returns to the stopwatch."""

from __future__ import annotations

from typing import Any

import gymnasium
from pettingzoo.utils import BaseParallelWrapper, BaseWrapper

from benchmarks.peers.common import WATCH


class CountedGame(BaseParallelWrapper):
    """A PettingZoo parallel environment; at module level, so that copies made by pickling still report."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin an episode."""
        self.total = 0.0
        return self.env.reset(seed=seed, options=options)

    def step(self, actions: dict[str, Any]) -> Any:
        """Take an env step; an episode's return is the mean over its players."""
        result = self.env.step(actions)
        WATCH.steps += 1
        self.total += sum(result[1].values()) / len(result[1])
        if not self.env.agents:
            WATCH.returns.append(self.total)
        return result


class CountedTurns(BaseWrapper):
    """The same for a PettingZoo environment whose players take turns: an env step is over when all have moved."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Begin an episode."""
        self.total = 0.0
        self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> None:
        """Take a player's turn; rewards come with the last one's."""
        last = self.env.agent_selection == self.env.possible_agents[-1]
        self.env.step(action)
        if last:
            WATCH.steps += 1
            self.total += sum(self.env.rewards.values()) / len(self.env.rewards)
            if any(self.env.truncations.values()):
                WATCH.returns.append(self.total)


class CountedEpisodes(gymnasium.Wrapper[Any, Any, Any, Any]):
    """The same for a Gymnasium environment."""

    def reset(self, **options: Any) -> Any:
        """Begin an episode."""
        self.total = 0.0
        return self.env.reset(**options)

    def step(self, action: Any) -> Any:
        """Take an env step."""
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
    """Return the same game, with players who take turns."""
    from mpe2 import simple_spread_v3

    return CountedTurns(simple_spread_v3.env(N=players))


def cartpole() -> CountedEpisodes:
    """Return Gymnasium's CartPole-v1."""
    return CountedEpisodes(gymnasium.make("CartPole-v1"))
