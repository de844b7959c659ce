"""Small single-player environments (Gymnasium)."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Film(gymnasium.Env):
    """Shows what AtariPreprocessing would: uint8 frames, all of whose pixels count the frames: 1, 2, 3 ... 200, 1.

    The reward is 1 for action 1. An episode is truncated after `length` steps.
    """

    def __init__(self, length: int = 6, size: int = 84) -> None:
        self.observation_space = spaces.Box(0, 255, (size, size), np.uint8)
        self.action_space = spaces.Discrete(2)
        self.length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._frame(), {}

    def step(self, action):
        self.t += 1
        return self._frame(), float(action), False, self.t == self.length, {}

    def _frame(self):
        return np.full(self.observation_space.shape, self.t % 200 + 1, np.uint8)


class MaskedByInfo(gymnasium.Env):
    """One player whose legal moves come with the info: all actions but t mod 3."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0, 10, (1,), np.float32)
        self.action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._seen()

    def step(self, action):
        self.t += 1
        observation, info = self._seen()
        return observation, 0.0, self.t == 4, False, info

    def _seen(self):
        return np.array([self.t], np.float32), {"action_mask": np.arange(3) != self.t % 3}


class BitFlipping(gymnasium.Env):
    """The bit-flipping game of Andrychowicz et al. 2017: an action flips a bit, and the goal is another state.

    The reward is 0 at the goal, where the episode ends, else -1. After as many steps as there are bits it is cut off.
    """

    def __init__(self, bits=4):
        self.bits = bits
        vector = spaces.Box(0, 1, (bits,), np.float32)
        names = "observation", "achieved_goal", "desired_goal"
        self.observation_space = spaces.Dict(dict.fromkeys(names, vector))
        self.action_space = spaces.Discrete(bits)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state, self.goal = (self.np_random.integers(2, size=self.bits).astype(np.float32) for _ in range(2))
        self.steps = 0
        return self._seen(), {}

    def step(self, action):
        self.state[action] = 1 - self.state[action]
        self.steps += 1
        reward = float(self.compute_reward(self.state, self.goal, {}))
        return self._seen(), reward, reward == 0, self.steps >= self.bits, {}

    def compute_reward(self, achieved, desired, info):
        return -np.any(achieved != desired, -1).astype(np.float32)

    def _seen(self):
        return {
            "observation": self.state.copy(),
            "achieved_goal": self.state.copy(),
            "desired_goal": self.goal.copy(),
        }


class Whole(gymnasium.Env):
    """Takes actions of any space, and pays the sum of their numbers; an episode is cut off after 4 steps.

    given: the actions, each of which must be in the space.
    """

    def __init__(self, space: Any = None) -> None:
        self.observation_space = spaces.Box(0, 9, (1,), np.float32)
        self.action_space = spaces.MultiBinary(3) if space is None else space
        self.given: list[Any] = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.given.append(action)
        self.t += 1
        return np.full(1, self.t, np.float32), float(np.sum(action)), False, self.t == 4, {}
