"""Claims about learning, with seeds and confidence intervals (`make claims`), with the settings of `marltrain.tuned`.

    python benchmarks/claims.py [tictactoe] [cartpole-ppo] [cartpole-dqn] [apples] [--backend tensorflow] [--write]

--write writes the results to docs/results.md and replaces those of the same task and backend.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np

import marltrain as mt
from benchmarks import results_page

Rows = list[dict[str, Any]]


Result = tuple[str, Rows]


class Place:
    """Folder and backend of a task's runs; TensorFlow runs compiled, since its plain graphs are slower."""

    def __init__(self, folder: str, backend: str) -> None:
        self.folder, self.backend = folder, backend
        self.agents: dict[str, Any] = {"backend": backend, "jit_compile": backend == "tensorflow"}


def trained(algo: str, env: str, seed: int, place: Place, **more: Any) -> tuple[mt.DecentralizedTrainer, Any, Any]:
    """Train with the tuned settings; return the trainer, the agents and the result."""
    tuned = mt.tuned(algo, env)
    agents = mt.make_agents(algo, env, seed=seed, **tuned["agents"], **place.agents)
    trainer = mt.DecentralizedTrainer(
        env, seed=seed, run_dir=f"{place.folder}/{algo}-{seed}", progress=False, **{**tuned["trainer"], **more}
    )
    mask = [1] * len(agents)
    against = [agents[0], mt.RandomAgent()] if len(agents) > 1 else None
    return trainer, agents, trainer.train(agents, mask, plot=False, test_agents=against)


def upper(shares: np.ndarray, games: int) -> float:
    """Return the upper end of a 95 % interval of the mean share: the larger of Student's (over seeds) and Wilson's."""
    student = {5: 2.776}[len(shares)]
    by_seed = shares.mean() + student * shares.std(ddof=1) / np.sqrt(len(shares))
    n, p, z = games * len(shares), shares.mean(), 1.96
    wilson = (p + z * z / (2 * n) + z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))) / (1 + z * z / n)
    return float(max(by_seed, wilson))


def tictactoe(place: Place) -> Result:
    """Self-play with one agent in both seats: lost games of 2,000 a seat against a random player, seeds 0 to 4."""
    rows: Rows = []
    for seed in range(5):
        start = time.perf_counter()
        trainer, (agent, _), result = trained("dqn", "pettingzoo/classic/tictactoe_v3", seed, place)
        minutes = (time.perf_counter() - start) / 60
        first = trainer.test([agent, mt.RandomAgent(seed=1000 + seed)], 2000).losses
        second = trainer.test([mt.RandomAgent(seed=2000 + seed), agent], 2000).losses
        assert first is not None and second is not None
        rows.append({"seed": seed, "moves": result["num_collected_steps"], "minutes": round(minutes, 2),
                     "lost as first": float(first[0] / 2000), "lost as second": float(second[1] / 2000)})  # fmt: skip
        print(rows[-1], flush=True)
    ends = [upper(np.array([row[f"lost as {seat}"] for row in rows]), 2000) for seat in ("first", "second")]
    return (f"Tic-tac-toe, lost games: upper end of the 95 % interval {ends[0]:.2%} as first (wanted: at most 2 %), "
            f"{ends[1]:.2%} as second (at most 5 %)"), rows  # fmt: skip


def cartpole(algo: str, wanted: int, place: Place) -> Result:
    """Seeds 0 to 9: env steps until a test of 100 episodes has a mean of at least 475."""
    rows: Rows = []
    for seed in range(10):
        start = time.perf_counter()
        _, _, result = trained(algo, "gymnasium/CartPole-v1", seed, place, stop_fn=lambda metric, _: metric >= 475)
        rows.append({"seed": seed, "env steps": result["num_collected_steps"],
                     "test of 100 episodes": round(max(result["reward_metric_stats"]), 1),
                     "seconds": round(time.perf_counter() - start, 1)})  # fmt: skip
        print(rows[-1], flush=True)
    solved = sum(row["test of 100 episodes"] >= 475 for row in rows)
    steps = mt.tuned(algo, "gymnasium/CartPole-v1")["trainer"]["steps_per_train"]
    return (f"CartPole, {algo.upper()}: {solved} of 10 seeds reach 475 within {steps:,} env steps "
            f"(wanted: at least {wanted})"), rows  # fmt: skip


def apples(place: Place) -> Result:
    """The game of images in examples/apples.py, by PPO and by DQN, seeds 0 to 2."""
    from examples.apples import SETTINGS, Apples

    rows: Rows = []
    for algo, settings in SETTINGS.items():
        for seed in range(3):
            start = time.perf_counter()
            agents = mt.make_agents(algo, Apples, seed=seed, **settings, **place.agents)
            trainer = mt.DecentralizedTrainer(
                Apples, steps_per_train=60_000, test_freq=10**6, episodes_per_test=96, seed=seed, progress=False,
                run_dir=f"{place.folder}/apples-{algo}-{seed}",
            )  # fmt: skip
            tests = trainer.train(agents, [1, 1], plot=False)["reward_metric_stats"]
            rows.append({"algorithm": algo, "seed": seed, "apples untrained": round(tests[0], 2),
                         "apples trained": round(tests[-1], 2),
                         "seconds": round(time.perf_counter() - start, 1)})  # fmt: skip
            print(rows[-1], flush=True)
    gains = {algo: min(r["apples trained"] - r["apples untrained"] for r in rows if r["algorithm"] == algo)
             for algo in SETTINGS}  # fmt: skip
    said = ", ".join(f"{algo} {gain:+.2f}" for algo, gain in gains.items())
    return f"Apples (images, CNN), smallest gain of a seed: {said}", rows


TASKS: dict[str, Callable[[Place], Result]] = {
    "tictactoe": tictactoe,
    "cartpole-ppo": partial(cartpole, "ppo", 9),
    "cartpole-dqn": partial(cartpole, "dqn", 8),
    "apples": apples,
}


def section(task: Callable[[Place], Result], result: Result) -> str:
    """Return a task's results as the text of a section of the page."""
    summary, rows = result
    described = task.func if isinstance(task, partial) else task
    page = [str(described.__doc__), "", f"**{summary}.**", ""]
    page += ["| " + " | ".join(rows[0]) + " |", "|" + "---|" * len(rows[0])]
    return "\n".join([*page, *("| " + " | ".join(str(value) for value in row.values()) + " |" for row in rows)])


def main() -> None:
    """Run the named tasks, or all tasks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", help=f"of {', '.join(TASKS)}; all by default")
    parser.add_argument("--backend", default="torch", choices=("torch", "tensorflow"))
    parser.add_argument("--write", action="store_true", help="write docs/results.md")
    args = parser.parse_args()
    unknown = [name for name in args.tasks if name not in TASKS]
    if unknown:
        parser.error(f"unknown tasks {unknown}; there are {', '.join(TASKS)}")
    for name in args.tasks or TASKS:
        with tempfile.TemporaryDirectory() as folder:
            result = TASKS[name](Place(folder, args.backend))
        print(result[0], flush=True)
        if args.write:
            results_page.put({f"{name}, {args.backend}": section(TASKS[name], result)})


if __name__ == "__main__":
    main()
