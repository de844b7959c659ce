"""Games that only players with a memory solve."""

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv


class Recall(ParallelEnv):
    """Two players; each sees a cue of -1 or 1 at first, and names it after `length` steps of a corridor.

    An observation is [the cue, then 0; 1 at the last step, else 0]. Naming the cue (action 1 for a cue of 1, else 0)
    gives 1, another name -1. A player without a memory gets 0 in the mean.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "recall"}

    def __init__(self, length: int = 4, truncate: bool = False) -> None:
        self.length, self.truncate, self.possible_agents = length, truncate, ["left", "right"]
        self._seen, self._acts = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(2)

    def observation_space(self, agent):
        return self._seen

    def action_space(self, agent):
        return self._acts

    def reset(self, seed=None, options=None):
        self.agents, self.t = list(self.possible_agents), 0
        self.cues = dict(zip(self.agents, 2 * np.random.default_rng(seed).integers(2, size=2) - 1, strict=True))
        return self._observations(), {name: {} for name in self.agents}

    def step(self, actions):
        over, names = self.t == self.length, self.agents
        rewards = {name: float(over) * self.cues[name] * (2 * int(actions[name]) - 1) for name in names}
        self.t += 1
        self.agents = [] if over else names
        ends = dict.fromkeys(names, over), dict.fromkeys(names, False)
        return self._observations(), rewards, *(reversed(ends) if self.truncate else ends), {name: {} for name in names}

    def _observations(self):
        last = float(self.t == self.length)
        return {name: np.array([cue if self.t == 0 else 0, last], np.float32) for name, cue in self.cues.items()}
