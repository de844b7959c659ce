"""What agents learn in matrix games with a known trap: the greedy joint action and its payoff, by algorithm and seed.

    python benchmarks/matrix_games.py [--seeds 5] [--steps 10000] [--games climbing penalty] [--rows dqn mappo]

Climbing and penalty games (Claus and Boutilier 1998) of one round, with a constant observation. Agents with replay
memories explore uniformly (epsilon 1), so that the other player's choice is random: the mean payoff of each own action
then leads away from the best joint action. A cell holds the payoffs of the seeds, with the joint action of each.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import marltrain as mt

ONE_ROUND: dict[str, Any] = {"num_rounds": 1, "observe_last_actions": False}
GAMES: dict[str, tuple[str, dict[str, Any]]] = {
    "climbing": ("marltrain/climbing_v1", ONE_ROUND),
    "penalty": ("marltrain/penalty_v1", {"k": -100.0, **ONE_ROUND}),
    "levers": ("marltrain/levers_v1", {}),
}
REPLAY: dict[str, Any] = {
    "epsilon": 1.0, "learning_rate": 5e-3, "capacity": 20_000, "learning_starts": 500, "update_per_step": 0.125,
    "target_sync": 50, "network": mt.MLP((32, 32), "relu"),
}  # fmt: skip


def hundredth(observation: Any, action: Any, reward: np.ndarray) -> np.ndarray:
    """Return the rewards over 100: DQN's Huber loss of errors above 1 would learn medians instead of means."""
    return reward / 100


ROLLOUTS: dict[str, Any] = {"update_freq": 256, "learning_rate": 3e-3, "network": mt.MLP((32, 32))}
PASSES: dict[str, Any] = {"epochs": 4, "minibatches": 2, "entropy_coef": 0.01}
ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "dqn": ("dqn", {**REPLAY, "reward_model": hundredth}),
    "vdn": ("vdn", REPLAY),
    "qmix": ("qmix", REPLAY),
    "wqmix": ("wqmix", REPLAY),
    "wqmix-optimistic": ("wqmix", {**REPLAY, "weighting": "optimistic"}),
    "ppo": ("ppo", {**ROLLOUTS, **PASSES}),
    "mappo": ("mappo", {**ROLLOUTS, **PASSES}),
    "coma": ("coma", {**ROLLOUTS, "epsilon": mt.linear(0.5, 0.02, 5_000), "target_sync": 5, "optimizer": "adam"}),
}
"""Row of the table -> (algorithm, its settings)."""


def outcome(row: str, game: str, seed: int, steps: int) -> tuple[tuple[int, ...], float]:
    """Return the greedy joint action after training with a seed, and its payoff to a player."""
    env, env_args = GAMES[game]
    algorithm, settings = ROWS[row]
    agents = mt.make_agents(algorithm, env, env_args=env_args, seed=seed, **settings)
    trainer = mt.DecentralizedTrainer(
        env, env_args, num_train_envs=16, update_freq=16, batch_size=64, steps_per_train=steps, test_freq=None,
        seed=seed, progress=False, run_dir=False,
    )  # fmt: skip
    trainer.train(agents, [1] * len(agents), plot=False)
    joint = tuple(int(agent.act(np.ones(1, np.float32))) for agent in agents)
    return joint, float(trainer.test(agents, 1).returns.mean())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--games", nargs="+", choices=list(GAMES), default=["climbing", "penalty"])
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    given = parser.parse_args()
    print(f"| algorithm | {' | '.join(given.games)} |\n| --- |{' --- |' * len(given.games)}")
    for row in given.rows:
        cells = []
        for game in given.games:
            found = [outcome(row, game, seed, given.steps) for seed in range(given.seeds)]
            cells.append(", ".join(f"{payoff:g} {joint}" for joint, payoff in found))
        print(f"| {row} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
