"""Games with goals: bit-flipping, a point reacher, and goals of a maze by their distance."""

from __future__ import annotations

from functools import cache
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from examples.point_maze import PointMaze

BITS, STEPS_OF_A_REACH = 15, 50


class BitFlipping(gymnasium.Env[dict[str, Any], int]):
    """An action flips a bit of n; the reward is 0 in the goal's state, where the episode ends, and -1 elsewhere.

    An episode has at most n steps.
    """

    def __init__(self, bits: int = BITS) -> None:
        """Make a game of n bits."""
        self.bits = bits
        names = "observation", "achieved_goal", "desired_goal"
        self.observation_space = spaces.Dict(dict.fromkeys(names, spaces.Box(0, 1, (bits,), np.float32)))
        self.action_space = spaces.Discrete(bits)  # type: ignore[assignment]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Draw a state and a goal."""
        super().reset(seed=seed)
        self.state, self.goal = (self.np_random.integers(2, size=self.bits).astype(np.float32) for _ in range(2))
        self.steps = 0
        return self._seen(), {}

    def step(self, action: int) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Flip a bit."""
        self.state[action] = 1 - self.state[action]
        self.steps += 1
        reward = float(self.compute_reward(self.state, self.goal, {}))
        return self._seen(), reward, reward == 0, self.steps >= self.bits, {}

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        """Return 0 where the goal is achieved, else -1."""
        return -np.any(achieved != desired, -1).astype(np.float32)

    def _seen(self) -> dict[str, Any]:
        return {"observation": self.state.copy(), "achieved_goal": self.state.copy(), "desired_goal": self.goal.copy()}


class PointReacher(gymnasium.Env[dict[str, Any], np.ndarray]):
    """A point in the square [-1, 1]^2 is pushed to a goal; the reward is 0 within 0.05 of the goal, and -1 elsewhere.

    An action is an acceleration of at most 0.02 in each direction. The velocity loses a tenth in each step, and a wall
    stops the point. Observed are the velocity, the place (achieved_goal) and the goal. As in Gymnasium-Robotics, an
    episode has 50 steps and does not end at the goal.
    """

    RADIUS = 0.05

    def __init__(self) -> None:
        """Make the square."""
        square = spaces.Box(-1, 1, (2,), np.float32)
        names = "observation", "achieved_goal", "desired_goal"
        self.observation_space = spaces.Dict(dict.fromkeys(names, square))
        self.action_space = square

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Draw a place and a goal; the point rests."""
        super().reset(seed=seed)
        self.place, self.goal = self.np_random.uniform(-1, 1, (2, 2))
        self.velocity, self.steps = np.zeros(2), 0
        return self._seen(), {}

    def step(self, action: np.ndarray) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Push the point."""
        pushed = 0.9 * self.velocity + 0.02 * np.clip(action, -1, 1)
        there = np.clip(self.place + pushed, -1, 1)
        self.place, self.velocity = there, there - self.place
        self.steps += 1
        reward = float(self.compute_reward(self.place, self.goal, {}))
        return self._seen(), reward, False, self.steps >= STEPS_OF_A_REACH, {"is_success": reward == 0}

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        """Return 0 where the place is near the goal, else -1."""
        return -(np.linalg.norm(achieved - desired, axis=-1) > self.RADIUS).astype(np.float32)

    def _seen(self) -> dict[str, Any]:
        parts = {"observation": 5 * self.velocity, "achieved_goal": self.place, "desired_goal": self.goal}
        return {name: part.astype(np.float32) for name, part in parts.items()}


RANGES = [(1, 8), (8, 16), (16, 24), (24, 32), (32, 100)]
"""Ranges of distances in a maze, in moves between neighboring cells."""
PAIRS = 100
"""Number of pairs of a start and a goal in each range, the same for all agents."""


def shares_by_distance(agent: Any, maze: str) -> dict[str, float]:
    """Return the shares of goals that an agent reaches, acting greedily, by the range of their distances."""
    return {name: _reached(agent, maze, pairs) for name, pairs in _pairs_of(maze).items()}


@cache
def _pairs_of(maze: str) -> dict[str, list[dict[str, Any]]]:
    """Return the starts and goals of each range that the maze has, as options of `PointMaze.reset`."""
    env, rng = PointMaze(maze), np.random.default_rng(0)
    found: list[list[dict[str, Any]]] = [[] for _ in RANGES]
    for _ in range(50_000):
        start, goal = env.cells[rng.integers(len(env.cells), size=2)] + rng.random((2, 2))
        distance = env.distances(start)[tuple(np.floor(goal).astype(int))]
        for (low, high), pairs in zip(RANGES, found, strict=True):
            if low <= distance < high and len(pairs) < PAIRS:
                pairs.append({"start": start, "goal": goal})
        if min(map(len, found)) == PAIRS:
            break
    last = max(int(env.distances(cell).max()) for cell in env.cells)
    names = [f"{low} to {min(high - 1, last)} moves" for low, high in RANGES]
    return {name: pairs for name, pairs in zip(names, found, strict=True) if pairs}


def _reached(agent: Any, maze: str, pairs: list[dict[str, Any]]) -> float:
    envs = [PointMaze(maze) for _ in pairs]
    seen = [env.reset(seed=i, options=pair)[0] for i, (env, pair) in enumerate(zip(envs, pairs, strict=True))]
    going, there = np.ones(len(pairs), bool), np.zeros(len(pairs), bool)
    while going.any():
        actions = agent.act({name: np.stack([obs[name] for obs in seen]) for name in seen[0]})
        for i in np.flatnonzero(going):
            seen[i], _, there[i], cut, _ = envs[i].step(int(actions[i]))
            going[i] = not (there[i] or cut)
    return float(there.mean())
