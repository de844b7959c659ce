"""A game of images: two rivals on a 16 x 16 picture race for apples, learned with a CNN by PPO or by DQN.

    python examples/apples.py [--algo ppo|dqn] [--steps 60000] [--seed 0] [--run-dir runs/apples]

Both players see the whole picture: red is "me", green the other, blue the apple, each a square of 2 x 2 pixels on a
board of 8 x 8 fields. Whoever reaches the apple scores 1 and a new one falls. Random play scores about 0.3 an episode.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

import marltrain as mt

FIELDS, PIXELS, STEPS = 8, 2, 32
MOVES = np.array([(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)])


class Apples(ParallelEnv):
    """Two players, five moves (stay, up, down, left, right), 32 steps an episode."""

    metadata = {"name": "apples", "render_modes": ["rgb_array"], "render_fps": 8}

    def __init__(self, render_mode: str | None = None) -> None:
        self.possible_agents = ["red", "green"]
        self.render_mode = render_mode
        side = FIELDS * PIXELS
        self._observation_space = spaces.Box(0, 255, (side, side, 3), np.uint8)
        self._action_space = spaces.Discrete(len(MOVES))

    def observation_space(self, agent: str) -> spaces.Box:
        return self._observation_space

    def action_space(self, agent: str) -> spaces.Discrete:
        return self._action_space

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self._rng = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self._places = self._rng.integers(FIELDS, size=(2, 2))
        self._apple = self._rng.integers(FIELDS, size=2)
        self._steps = 0
        return self._look(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, int]) -> tuple[dict[str, Any], ...]:
        moves = MOVES[[actions[agent] for agent in self.possible_agents]]
        self._places = np.clip(self._places + moves, 0, FIELDS - 1)
        there = (self._places == self._apple).all(1)
        scores = there / max(1, there.sum())  # two who arrive together share
        if there.any():
            self._apple = self._rng.integers(FIELDS, size=2)
        self._steps += 1
        over = self._steps >= STEPS
        agents = self.possible_agents
        self.agents = [] if over else list(agents)
        return (
            self._look(),
            dict(zip(agents, scores.tolist(), strict=True)),
            dict.fromkeys(agents, False),
            dict.fromkeys(agents, over),
            {agent: {} for agent in agents},
        )

    def render(self) -> np.ndarray:
        return self._picture(0).repeat(16, 0).repeat(16, 1)

    def _look(self) -> dict[str, np.ndarray]:
        return {agent: self._picture(i) for i, agent in enumerate(self.possible_agents)}

    def _picture(self, me: int) -> np.ndarray:
        board = np.zeros((FIELDS, FIELDS, 3), np.uint8)
        for color, (row, column) in enumerate((self._places[me], self._places[1 - me], self._apple)):
            board[row, column, color] = 255
        return board.repeat(PIXELS, 0).repeat(PIXELS, 1)


SETTINGS: dict[str, dict[str, Any]] = {
    "ppo": {
        "network": mt.CNN(filters=((16, 2, 2), (32, 3, 1)), hidden=(128,)), "learning_rate": 1e-3, "epochs": 4,
        "minibatches": 4, "update_freq": 1024, "gamma": 0.9, "entropy_coef": 0.01,
    },
    "dqn": {
        "network": mt.CNN(filters=((16, 2, 2), (32, 3, 1)), hidden=(128,)), "learning_rate": 5e-4, "gamma": 0.9,
        "epsilon": mt.linear(1.0, 0.05, 20_000), "capacity": 40_000, "learning_starts": 2_000, "update_freq": 16,
        "update_per_step": 1 / 8, "n_step": 3, "batch_size": 64,
    },
}  # fmt: skip


def main() -> None:
    """Train, and print what a test before and after gave."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algo", choices=list(SETTINGS), default="ppo")
    parser.add_argument("--steps", type=int, default=60_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run-dir", default=None)
    args = parser.parse_args()
    agents = mt.make_agents(args.algo, Apples, seed=args.seed, **SETTINGS[args.algo])
    trainer = mt.DecentralizedTrainer(
        Apples, num_train_envs=16, num_test_envs=16, steps_per_train=args.steps, test_freq=500, episodes_per_test=96,
        seed=args.seed, run_dir=args.run_dir,
    )  # fmt: skip
    result = trainer.train(agents, learning_mask=[1, 1])
    tests = result["reward_metric_stats"]
    print(f"apples a player and episode: {tests[0]:.2f} untrained, {tests[-1]:.2f} trained; see {result['run_dir']}")


if __name__ == "__main__":
    main()
