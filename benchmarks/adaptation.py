"""Where adaptation helps and where it harms: PPO and DQN on the native CartPole-v1, well and badly set.

    python benchmarks/adaptation.py [--seeds 6] [--only ppo]

Prints a table for docs/adaptation.md. A run's score is its mean test return, over all tests but the first one.
Intervals are 95 % bootstrap intervals over seeds; differences are taken seed by seed from the run without adaptation.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import marltrain as mt
from marltrain.trainer.evaluating.evaluation import bootstrap

ENV, NETWORK = "marltrain/CartPole-v1", mt.MLP((64, 64))
TRAINER: dict[str, Any] = {"num_train_envs": 8, "test_freq": None, "test_freq_steps": 2_000, "episodes_per_test": 10}
PPO: dict[str, Any] = {
    "learning_rate": 2.5e-3, "batch_size": 256, "epochs": 10, "gamma": 0.98, "network": NETWORK, "jit_compile": True,
    "update_freq": 1_024,
}  # fmt: skip
DQN: dict[str, Any] = {
    "learning_rate": 1e-3, "batch_size": 64, "gamma": 0.99, "network": NETWORK, "jit_compile": True,
    "update_per_step": 0.25, "update_freq": 8, "learning_starts": 1_000, "epsilon": mt.linear(1.0, 0.05, 5_000),
    "capacity": 20_000,
}  # fmt: skip
STEPS = {"ppo": 20_000, "dqn": 20_000}
SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "ppo": {"well set": PPO, "learning rate x 8": {**PPO, "learning_rate": 2e-2},
            "learning rate / 8": {**PPO, "learning_rate": 3e-4}, "batch size x 4": {**PPO, "batch_size": 1_024}},
    "dqn": {"well set": DQN, "learning rate x 8": {**DQN, "learning_rate": 8e-3}},
}  # fmt: skip


def adapting(name: str, by: str, low: float, high: float, **more: Any) -> Callable[[], mt.Callback]:
    """Return a function that makes the callback of one run."""
    return lambda: mt.Adapt(name, by=by, low=low, high=high, **more)


ON, OFF = {"every": 1, "rate": 0.1, "smoothing": 0.8}, {"every": 50, "rate": 0.1, "smoothing": 0.99}
ADAPTED: dict[str, dict[str, Callable[[], mt.Callback]]] = {
    "ppo": {
        "batch size by noise": adapting("batch_size", "gradient_noise", 32, 1_024, **ON),
        "learning rate by effective rows":
            adapting("learning_rate", "effective_sample_size", 1e-4, 2e-2, target=0.95, **ON),
        "clip by effective rows": adapting("clip", "effective_sample_size", 0.05, 0.4, target=0.95, **ON),
        "learning rate halved on plateaus": lambda: mt.ReduceOnPlateau(patience=2),
    },
    "dqn": {
        "batch size by noise": adapting("batch_size", "gradient_noise", 16, 512, **OFF),
        "learning rate by noise": adapting("learning_rate", "gradient_noise", 1e-4, 1e-2, **OFF),
        "learning rate by errors": adapting("learning_rate", "td_error", 1e-4, 1e-2, **OFF),
        "learning rate halved on plateaus": lambda: mt.ReduceOnPlateau(patience=2),
    },
}  # fmt: skip


def scores(algo: str, settings: dict[str, Any], make: Callable[[], mt.Callback] | None, seeds: int) -> np.ndarray:
    """Return the mean test return of a run for each seed."""
    result = []
    for seed in range(seeds):
        agents = mt.make_agents(algo, ENV, seed=seed, **settings)
        trainer = mt.DecentralizedTrainer(
            ENV, seed=seed, progress=False, run_dir=False, steps_per_train=STEPS[algo],
            callbacks=[] if make is None else [make()], **TRAINER,
        )  # fmt: skip
        result.append(np.mean(trainer.train(agents, [1], plot=False)["reward_metric_stats"][1:]))
    return np.array(result)


def spoken(values: np.ndarray, sign: str = "") -> str:
    """Return the mean and its interval."""
    low, high = bootstrap(values)
    return f"{values.mean():{sign}.0f} [{low:{sign}.0f}, {high:{sign}.0f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--only", choices=list(SETTINGS))
    asked = parser.parse_args()
    print("| agent | adaptation | score | difference |\n|---|---|---|---|")
    for algo in [asked.only] if asked.only else list(SETTINGS):
        for name, settings in SETTINGS[algo].items():
            began, fixed = time.process_time(), scores(algo, settings, None, asked.seeds)
            print(f"| {algo.upper()}, {name} | none | {spoken(fixed)} | |", flush=True)
            for how, make in ADAPTED[algo].items():
                values = scores(algo, settings, make, asked.seeds)
                print(f"| | {how} | {spoken(values)} | {spoken(values - fixed, '+')} |", flush=True)
            print(f"<!-- {time.process_time() - began:.0f} s of processor time -->", flush=True)


if __name__ == "__main__":
    main()
