"""A game of two teams whose rewards depend on the seats only."""

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

TEAMS = {"red": ["red_0", "red_1"], "blue": ["blue_0", "blue_1", "blue_2"]}


class Seats(ParallelEnv):
    """Five players of two teams for three steps; player p gets p + 1 in each step, whatever anybody does.

    With `zero_sum`, players of red get 3, 3 and those of blue -2, -2, -2.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "seats"}

    def __init__(self, zero_sum: bool = False) -> None:
        self.possible_agents = [name for team in TEAMS.values() for name in team]
        rewards = [3.0, 3.0, -2.0, -2.0, -2.0] if zero_sum else [1.0, 2.0, 3.0, 4.0, 5.0]
        self._rewards = dict(zip(self.possible_agents, rewards, strict=True))
        self._space, self._acts = spaces.Box(0, 3, (1,), np.float32), spaces.Discrete(2)

    def observation_space(self, agent):
        return self._space

    def action_space(self, agent):
        return self._acts

    def reset(self, seed=None, options=None):
        self.agents, self.t = list(self.possible_agents), 0
        return self._seen(), {name: {} for name in self.agents}

    def step(self, actions):
        self.t += 1
        names, over = self.agents, self.t == 3
        seen = self._seen()
        self.agents = [] if over else names
        ended = dict.fromkeys(names, over)
        return seen, self._rewards, ended, dict.fromkeys(names, False), {name: {} for name in names}

    def _seen(self):
        return {name: np.array([self.t], np.float32) for name in self.possible_agents}
