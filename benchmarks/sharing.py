"""Parameter sharing, with and without the identity of the players, and none: mean return of a player after training.

    python benchmarks/sharing.py [--seeds 5] [--games spread levers]

PPO with its tuned settings on marltrain/simple_spread_v3 (300,000 env steps), and on marltrain/levers_v1 (20,000 env
steps), in which the observation does not tell the players apart. A cell holds the mean over the seeds of the mean
return in 100 greedy episodes, and the lowest and the highest seed.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import marltrain as mt

SHARING: dict[str, dict[str, Any]] = {
    "none": {},
    "`share=True`": {"share": True},
    "`share=True, identify=True`": {"share": True, "identify": True},
}
EPISODES = 100


def games() -> dict[str, tuple[str, dict[str, Any], dict[str, Any]]]:
    """Return, for each game, the environment, the trainer's arguments and those of the agents."""
    spread, levers = "marltrain/simple_spread_v3", "marltrain/levers_v1"
    tuned, steps = mt.tuned("ppo", spread), 300_000
    rate = mt.linear(1e-3, 1e-4, steps)
    return {
        "spread": (
            spread, {**tuned["trainer"], "steps_per_train": steps}, {**tuned["agents"], "learning_rate": rate},
        ),
        "levers": (
            levers, {"num_train_envs": 64, "steps_per_train": 20_000},
            {"update_freq": 256, "epochs": 4, "minibatches": 1, "learning_rate": 3e-3},
        ),
    }  # fmt: skip


def score(game: str, sharing: str, seed: int) -> float:
    """Return the mean return of a player after training with a seed, in greedy episodes."""
    env, of_trainer, of_agents = games()[game]
    settings = {"jit_compile": True, **of_agents, **SHARING[sharing]}
    agents = mt.make_agents("ppo", env, seed=seed, **settings)
    trainer = mt.DecentralizedTrainer(
        env, seed=seed, run_dir=False, progress=False, **{**of_trainer, "test_freq": None}
    )
    trainer.train(agents, [1] * len(agents), plot=False)
    return float(trainer.test(agents, EPISODES).returns.mean())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--games", nargs="+", choices=list(games()), default=list(games()))
    given = parser.parse_args()
    print(f"| sharing | {' | '.join(given.games)} |\n| --- |{' --- |' * len(given.games)}")
    for sharing in SHARING:
        cells = []
        for game in given.games:
            scores = np.array([score(game, sharing, seed) for seed in range(given.seeds)])
            cells.append(f"{scores.mean():.2f} ({scores.min():.2f} to {scores.max():.2f})")
        print(f"| {sharing} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
