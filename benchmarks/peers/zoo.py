"""Rows of the learning table trained by Stable-Baselines3 itself, with the settings of RL Baselines3 Zoo, over seeds.

    .venv-peers/sb3/bin/python -m pip install "gymnasium[box2d]"
    .venv-peers/sb3/bin/python -m benchmarks.peers.zoo lunarlander-a2c [--seeds 0 1 2 3 4]

RL Zoo publishes the return of one model. Here every seed trains a model, which then plays 100 episodes greedily, on
seeds that training did not use, as in `benchmarks/learn`. Prints the mean return of each seed and their mean.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

EPISODES, UNSEEN = 100, 1_000_000


def linear(start: float) -> Callable[[float], float]:
    """Return a schedule that falls to 0; its argument is the share of the training that remains."""
    return lambda remaining: remaining * start


ROWS: dict[str, tuple[type[A2C] | type[PPO], str, int, int, bool, dict[str, Any]]] = {
    "lunarlander-a2c": (
        A2C, "LunarLander-v3", 8, 200_000, False,
        {"gamma": 0.995, "n_steps": 5, "learning_rate": linear(8.3e-4), "ent_coef": 1e-5},
    ),
    "mountaincar-ppo": (
        PPO, "MountainCar-v0", 16, 1_000_000, True,
        {"n_steps": 16, "gae_lambda": 0.98, "gamma": 0.99, "n_epochs": 4, "ent_coef": 0.0},
    ),
}  # fmt: skip
"""(Algorithm, environment, number of environments, env steps, normalized, arguments)."""


def score(row: str, seed: int) -> float:
    """Train with a seed; return the mean return of the greedy episodes."""
    algorithm, name, envs, steps, normalized, settings = ROWS[row]
    training: VecEnv = make_vec_env(name, envs, seed=seed)
    if normalized:
        training = VecNormalize(training, gamma=settings["gamma"])
    model = algorithm("MlpPolicy", training, seed=seed, device="cpu", **settings).learn(steps)
    unseen: VecEnv = make_vec_env(name, 1, seed=UNSEEN + seed)
    if isinstance(training, VecNormalize):
        unseen = VecNormalize(unseen, training=False, norm_reward=False)
        unseen.obs_rms = training.obs_rms
    returns, _ = evaluate_policy(model, unseen, EPISODES, deterministic=True)
    return float(np.mean(returns))


def main() -> None:
    """Print the score of each seed and their mean."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("row", choices=ROWS)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(5)))
    given = parser.parse_args()
    torch.set_num_threads(1)
    scores = []
    for seed in given.seeds:
        start = time.perf_counter()
        scores.append(score(given.row, seed))
        print(f"{given.row}, seed {seed}: {scores[-1]:.1f} in {time.perf_counter() - start:.0f} s", flush=True)
    print(f"{given.row}: mean of {len(scores)} seeds {np.mean(scores):.1f}")


if __name__ == "__main__":
    main()
