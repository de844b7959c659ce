"""A GRU against no memory in level-based foraging with a sight of 2 places: returns after an equal number of env steps.

    python -m benchmarks.memory --results FOLDER train gru --seed 0
    python -m benchmarks.memory --results FOLDER table

PPO on marltrain/foraging_v3 (8 x 8 places, 2 players, 2 foods), with one network for both players; the networks have
equal numbers of weights within 10 %. A training writes a file with its scores: the sum of the returns of both players,
at most 1, in 500 greedy test episodes, and in the last tenth of the training's episodes, in which actions are sampled.
The table holds the number of weights, and the interquartile mean and the mean of the seeds with 95 % bootstrap
intervals. The settings were chosen with seed 100.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import marltrain as mt
from benchmarks.learn.table import RESAMPLES
from marltrain.tools.statistics import estimate
from marltrain.trainer.evaluating.evaluation import bootstrap

ENV, ARGS = "marltrain/foraging_v3", {"sight": 2}
STEPS, EPISODES = 300_000, 500
TRAINER: dict[str, Any] = {"num_train_envs": 32, "num_test_envs": 100, "update_freq": 4_096, "test_freq": None}
AGENTS: dict[str, Any] = {
    "share": True, "shared_trunk": True, "learning_rate": mt.linear(1e-3, 0.0, STEPS), "epochs": 4, "minibatches": 4,
    "entropy_coef": mt.linear(0.01, 0.0, STEPS),
}  # fmt: skip
NETWORKS: dict[str, Any] = {"gru": mt.GRU((64,), units=64, sequence_length=16), "mlp": mt.MLP((150, 150))}
SCORES = ("greedy", "sampled")


def trained(network: str, seed: int, steps: int) -> dict[str, Any]:
    """Train with a network and a seed; return the scores, the number of weights and the processor time."""
    agents: list[Any] = mt.make_agents("ppo", ENV, env_args=ARGS, seed=seed, network=NETWORKS[network], **AGENTS)
    trainer = mt.DecentralizedTrainer(
        ENV, ARGS, steps_per_train=steps, seed=seed, run_dir=False, progress=False, **TRAINER
    )  # fmt: skip
    start = time.process_time()
    episodes = trainer.train(agents, [1, 1], plot=False)["episodes"]
    seconds = time.process_time() - start
    returns = episodes[[name for name in episodes.columns if name.startswith("return/")]].sum(axis=1).to_numpy()
    arrays = agents[0].learner_.export(0).arrays
    return {
        "network": network, "seed": seed, "steps": steps, "seconds": round(seconds),
        "weights": sum(array.size for name, array in arrays.items() if name.startswith("net/")),
        "greedy": float(trainer.test(agents, EPISODES).returns.sum(-1).mean()),
        "sampled": float(returns[-(len(returns) // 10) :].mean()),
    }  # fmt: skip


def table(folder: Path) -> str:
    """Return the table of the results in a folder, in Markdown."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    lines = ["| network | weights | env steps | seeds | actions | IQM | mean |", "| --- |" + " --- |" * 6]
    for network, spec in NETWORKS.items():
        own = [result for result in found if result["network"] == network]
        for score in SCORES if own else ():
            values = np.array([result[score] for result in own])
            iqm, low, high = (float(part[0]) for part in estimate(values[:, None, None], RESAMPLES))
            mean = bootstrap(values)
            cells = (
                f"`{spec}`", f"{own[0]['weights']:,}", f"{own[0]['steps']:,}", f"{len(own)}", score,
                f"{iqm:.3f} ({low:.3f} to {high:.3f})", f"{values.mean():.3f} ({mean[0]:.3f} to {mean[1]:.3f})",
            )  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Train once, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, required=True)
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("train")
    training.add_argument("network", choices=NETWORKS)
    training.add_argument("--seed", type=int, default=0)
    training.add_argument("--steps", type=int, default=STEPS)
    commands.add_parser("table")
    given = parser.parse_args()
    if given.command == "table":
        print(table(given.results))
        return
    given.results.mkdir(parents=True, exist_ok=True)
    result = json.dumps(trained(given.network, given.seed, given.steps))
    (given.results / f"{given.network}-{given.seed}.json").write_text(result)
    print(result)


if __name__ == "__main__":
    main()
