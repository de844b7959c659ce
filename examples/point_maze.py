"""A maze with goals: a point finds its way to places that it is told, by Transitive RL.

    python examples/point_maze.py [--maze small] [--steps 12000]

trains and prints the share of goals that are reached. Other environments with goals have the same form: observations
are a Dict of observation, achieved_goal and desired_goal, and `compute_reward` takes arrays of goals.
"""

from __future__ import annotations

import argparse
from collections import deque
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

import marltrain as mt

MAZES = {
    "small": ("......", ".####.", ".#....", ".#.##.", "...#.."),
    "medium": (".........", ".#######.", ".#.......", ".#.#####.", ".#.....#.", ".#####.#.", ".......#."),
    "long": (".............", "############.", ".............", ".############", "............."),
}
"""Names of mazes -> rows of cells: a point is free and a # is a wall. Around a maze there are walls."""
STEP, NOISE, REACHED = 1.0, 0.1, 0.5
"""Length of a move, standard deviation of its noise, and the distance at which a goal is reached, in cells."""
MOVES = [(np.cos(turn), np.sin(turn)) for turn in np.arange(8) * np.pi / 4]


class PointMaze(gymnasium.Env[dict[str, Any], int]):
    """A point moves in one of eight directions; the reward is 0 at the goal, where the episode ends, and -1 elsewhere.

    Start and goal are drawn uniformly from the free places. A move into a wall keeps the part of it along the wall.
    Places are seen in units of half the longer side, with the origin in the center.
    """

    def __init__(self, maze: str = "small", limit: int | None = None) -> None:
        """Make a maze of `MAZES`; limit: steps of an episode, None: four for each free cell."""
        self.free = np.array([[cell == "." for cell in row] for row in MAZES[maze]])
        self.cells = np.argwhere(self.free)
        self.limit = 4 * len(self.cells) if limit is None else limit
        self.center, self.unit = np.array(self.free.shape) / 2, max(self.free.shape) / 2
        place = spaces.Box(-1, 1, (2,), np.float32)
        self.observation_space = spaces.Dict(dict.fromkeys(("observation", "achieved_goal", "desired_goal"), place))
        self.action_space = spaces.Discrete(len(MOVES))  # type: ignore[assignment]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Draw a start and a goal, or take those of options={"start": (2,), "goal": (2,)}, in cells."""
        super().reset(seed=seed)
        given = options or {}
        self.place, self.goal = (np.array(given.get(name, self._somewhere()), float) for name in ("start", "goal"))
        self.steps = 0
        return self._seen(), {}

    def step(self, action: int) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Move in direction `action`, an eighth of a turn each."""
        move = STEP * np.array(MOVES[action]) + NOISE * self.np_random.standard_normal(2)
        for axis in range(2):
            there = self.place.copy()
            there[axis] += move[axis]
            if self._is_free(there):
                self.place = there
        self.steps += 1
        seen = self._seen()
        reward = float(self.compute_reward(seen["achieved_goal"], seen["desired_goal"], {}))
        return seen, reward, reward == 0, self.steps >= self.limit, {}

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        """Return 0 where a goal is reached, else -1, for places [..., 2] as they are seen."""
        distance = np.linalg.norm(achieved - desired, axis=-1) * self.unit
        return -(distance > REACHED).astype(np.float32)

    def distances(self, place: Any) -> Any:
        """Return the moves between neighboring cells from a place to each cell, [rows, columns]; -1: no way."""
        found = np.full(self.free.shape, -1)
        first = tuple(np.floor(place).astype(int))
        found[first], waiting = 0, deque([first])
        while waiting:
            row, column = waiting.popleft()
            for there in ((row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)):
                if self._is_free(there) and found[there] < 0:
                    found[there] = found[row, column] + 1
                    waiting.append(there)
        return found

    def _somewhere(self) -> Any:
        return self.cells[self.np_random.integers(len(self.cells))] + self.np_random.random(2)

    def _is_free(self, place: Any) -> bool:
        row, column = int(np.floor(place[0])), int(np.floor(place[1]))
        inside = 0 <= row < self.free.shape[0] and 0 <= column < self.free.shape[1]
        return inside and bool(self.free[row, column])

    def _seen(self) -> dict[str, Any]:
        place, goal = (((p - self.center) / self.unit).astype(np.float32) for p in (self.place, self.goal))
        return {"observation": place, "achieved_goal": place.copy(), "desired_goal": goal}


def main() -> None:
    """Train, and test the agent."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--maze", choices=MAZES, default="small")
    parser.add_argument("--steps", type=int, default=12_000)
    given = parser.parse_args()
    maze = {"maze": given.maze}
    agents = mt.make_agents(
        "trl", PointMaze, env_args=maze, seed=0, gamma=0.98, network=mt.MLP((64, 64)),
        learning_rate=1e-3, tau=0.01, batch_size=128, epsilon=mt.linear(1.0, 0.1, given.steps // 2),
    )  # fmt: skip
    trainer = mt.DecentralizedTrainer(
        PointMaze, env_args=maze, num_train_envs=16, steps_per_train=given.steps, test_freq=None, seed=0, run_dir=False,
        progress=False,
    )  # fmt: skip
    trainer.train(agents, learning_mask=[1], plot=False)
    reached = trainer.test(agents, episodes=100).returns > -PointMaze(given.maze).limit
    print(f"goals reached: {np.mean(reached):.0%}")


if __name__ == "__main__":
    main()
