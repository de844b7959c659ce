"""Goals that Transitive RL and DQN with hindsight reach in a long maze, by their distance (arXiv:2510.22512).

    python -m benchmarks.trl [--maze long] [--steps 30000] [--seeds 5] [--only dqn]

Starts and goals are drawn uniformly from the maze of `examples/point_maze.py`, and all agents learn from equally many
env steps and updates. The weights at the end then play greedily, 100 pairs of a start and a goal for each range of
distances, the same for all. Prints a table for docs/algorithms/trl.md, with the means over seeds and their 95 %
bootstrap intervals. One thread.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import marltrain as mt
from examples.point_maze import MAZES, PointMaze
from marltrain.trainer.evaluating.evaluation import bootstrap

AGENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "dqn": ("dqn", {"memory": mt.Replay(200_000, hindsight=mt.Hindsight("future", share=0.8))}),
    "trl": ("trl", {"extraction": "greedy"}),
    "trl-policy": ("trl", {"extraction": "policy"}),
}
RANGES = [(1, 8), (8, 16), (16, 24), (24, 32), (32, 100)]
"""Ranges of distances, in moves between neighboring cells."""
PAIRS = 100


def trained(name: str, maze: str, steps: int, seed: int) -> Any:
    """Return an agent after `steps` env steps."""
    kind, settings = AGENTS[name]
    agents = mt.make_agents(
        kind, PointMaze, env_args={"maze": maze}, seed=seed, network=mt.MLP((64, 64)), learning_rate=1e-3, gamma=0.98,
        tau=0.01, batch_size=128, learning_starts=2_000, update_per_step=0.25, max_grad_norm=10.0,
        epsilon=mt.linear(1.0, 0.1, steps // 2), **settings,
    )  # fmt: skip
    trainer = mt.DecentralizedTrainer(
        PointMaze, env_args={"maze": maze}, num_train_envs=16, steps_per_train=steps, update_freq=16, test_freq=None,
        seed=seed, run_dir=False, progress=False,
    )  # fmt: skip
    trainer.train(agents, [1], plot=False)
    return agents[0]


def pairs_of(maze: str) -> list[list[dict[str, Any]]]:
    """Return the starts and goals of each range of distances, as options of `PointMaze.reset`."""
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
    return found


def reached(agent: Any, maze: str, pairs: list[dict[str, Any]]) -> float:
    """Return the share of goals that an agent reaches, acting greedily."""
    envs = [PointMaze(maze) for _ in pairs]
    seen = [env.reset(seed=i, options=pair)[0] for i, (env, pair) in enumerate(zip(envs, pairs, strict=True))]
    going, there = np.ones(len(pairs), bool), np.zeros(len(pairs), bool)
    while going.any():
        actions = agent.act({name: np.stack([obs[name] for obs in seen]) for name in seen[0]})
        for i in np.flatnonzero(going):
            seen[i], _, there[i], cut, _ = envs[i].step(int(actions[i]))
            going[i] = not (there[i] or cut)
    return float(there.mean())


def main() -> None:
    """Print a line for each kind of agent."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--maze", choices=MAZES, default="long")
    parser.add_argument("--steps", type=int, default=30_000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", choices=AGENTS)
    given = parser.parse_args()
    ranges = [(pairs, limits) for pairs, limits in zip(pairs_of(given.maze), RANGES, strict=True) if pairs]
    farthest = PointMaze(given.maze)
    last = max(int(farthest.distances(cell).max()) for cell in farthest.cells)
    titles = [f"{low} to {min(high - 1, last)} moves" for _, (low, high) in ranges]
    print(f"| agent | {' | '.join(titles)} | seconds a seed |")
    print("|---|" + "---|" * (len(titles) + 1))
    for name in AGENTS:
        if given.only not in (None, name):
            continue
        start = time.process_time()
        agents = [trained(name, given.maze, given.steps, seed) for seed in range(given.seeds)]
        seconds = (time.process_time() - start) / given.seeds
        cells = []
        for pairs, _ in ranges:
            shares = np.array([reached(agent, given.maze, pairs) for agent in agents])
            low, high = bootstrap(shares)
            cells.append(f"{shares.mean():.2f} ({low:.2f} to {high:.2f})")
        print(f"| {name} | {' | '.join(cells)} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
