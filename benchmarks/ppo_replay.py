"""PPO with prioritized replay on CartPole: greedy returns beside those of PPO, with the settings of `mt.tuned`.

    python benchmarks/ppo_replay.py [--steps 100000] [--seeds 5] [--only lambda=0.5]

A test of 20 episodes each 5,000 env steps gives a curve; its mean tells how fast a run learns. The weights at the end
play 100 other episodes. Prints a table for docs/algorithms/ppo.md, with the 95 % bootstrap intervals of the means over
seeds. One thread, on marltrain's own CartPole.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import marltrain as mt
from marltrain.trainer.evaluating.evaluation import bootstrap

ENV, EPISODES, EVERY = "marltrain/CartPole-v1", 20, 5_000


def replayed(lam: float = 0.5, alpha: float = 0.6, share: float = 0.5) -> dict[str, Any]:
    """Return the settings of a replay of the rows of the last 16 rollouts."""
    memory = mt.Replay(16 * 256, prioritized=mt.Prioritized(alpha))
    return {"memory": memory, "priority_lambda": lam, "replay_share": share}


VARIANTS: dict[str, dict[str, Any]] = {
    "none": {},
    "lambda=0.5": replayed(),
    "lambda=1": replayed(lam=1.0),
    "lambda=0": replayed(lam=0.0),
    "uniform": replayed(alpha=0.0),
    "lambda=0.5, two earlier rows for a new one": replayed(share=2.0),
}


def returns_of(steps: int, seed: int, settings: dict[str, Any]) -> tuple[float, float]:
    """Train; return the mean return of the curve's tests and that of the final test."""
    tuned = mt.tuned("ppo", "gymnasium/CartPole-v1")
    agents = mt.make_agents("ppo", ENV, seed=seed, jit_compile=True, device="cpu", **tuned["agents"], **settings)
    own = tuned["trainer"] | {"steps_per_train": steps, "test_freq": None, "test_freq_steps": EVERY}
    own |= {"episodes_per_test": EPISODES, "num_test_envs": EPISODES}
    trainer = mt.DecentralizedTrainer(ENV, seed=seed, run_dir=False, progress=False, **own)
    curve = trainer.train(agents, [1], plot=False)["reward_metric_stats"][1:]  # the first test is before training
    final = mt.DecentralizedTrainer(ENV, num_test_envs=EPISODES, seed=1_000_000 + seed, run_dir=False, progress=False)
    return float(np.mean(curve)), float(final.test(agents, episodes=100).returns.mean())


def main() -> None:
    """Print a line for each variant."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=VARIANTS)
    given = parser.parse_args()
    print("| replay | mean of the curve | 95 % interval | at the end, seeds | mean | 95 % interval | seconds a seed |")
    print("|---|---|---|---|---|---|---|")
    for name, settings in VARIANTS.items():
        if given.only is not None and name not in given.only:
            continue
        start = time.process_time()
        curves, finals = np.array([returns_of(given.steps, seed, settings) for seed in range(given.seeds)]).T
        seconds = (time.process_time() - start) / given.seeds
        each = " ".join(f"{value:.0f}" for value in finals)
        spans = [
            f"{mean.mean():.0f} | {' to '.join(f'{end:.0f}' for end in bootstrap(mean))}" for mean in (curves, finals)
        ]
        print(f"| {name} | {spans[0]} | {each} | {spans[1]} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
