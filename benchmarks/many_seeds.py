"""Many seeds of PPO on cart-pole to a mean test return of 475: seeds a minute, and each seed beside its run alone.

    python benchmarks/many_seeds.py [--seeds 1000] [--rows 64] [--jobs 2] [--check 4]

The agents of `--rows` seeds are rows of one learner, each in 8 environments of its own; `--jobs` processes share the
seeds. Settings are the tuned ones of `gymnasium/CartPole-v1`, compiled. A seed ends at the first test of 100 greedy
episodes, every 8,192 env steps, with a mean of at least 475, or after 100,352 env steps. The time includes the start of
the processes and the loading of compiled code. `--check` trains that many seeds once more, each alone, and compares
the returns of all tests.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import marltrain as mt
from marltrain.tools.search.train_all import train_all
from marltrain.tools.search.training import Plan, Training

ENV, TARGET = "marltrain/CartPole-v1", 475.0
STEPS, EVERY, EPISODES = 100_352, 8_192, 100
Tests = list[tuple[int, float]]
"""Env steps and mean return of each test."""


def agents_of(seed: int, settings: dict[str, Any]) -> list[mt.Agent]:
    """Return the agents of a seed."""
    return list(mt.make_agents("ppo", ENV, seed=seed, jit_compile=True, **settings))


def end_solved(trainings: Sequence[Training]) -> None:
    """End the trainings whose last test reached the target."""
    for training in trainings:
        training.stopped = training.readings[-1].metric >= TARGET


def trained(seeds: Sequence[int]) -> dict[int, Tests]:
    """Train seeds as rows of one learner; return their tests."""
    tuned = mt.tuned("ppo", "gymnasium/CartPole-v1")
    trainer = {name: tuned["trainer"][name] for name in ("num_train_envs", "update_freq")}
    plan = Plan.of(
        "many_seeds",
        ENV,
        None,
        STEPS,
        None,
        {**trainer, "num_test_envs": EPISODES, "episodes_per_test": EPISODES},
        EVERY,
    )
    trainings = [Training(0, seed, partial(agents_of, seed, tuned["agents"])) for seed in seeds]
    train_all(plan, trainings, end_solved, alone=False)
    return {training.seed: [(test.env_steps, test.metric) for test in training.readings] for training in trainings}


def main() -> None:
    """Train all seeds, and print the measures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=64, help="seeds in one learner")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--check", type=int, default=0, help="seeds to train alone, too")
    args = parser.parse_args()
    groups = [range(first, min(first + args.rows, args.seeds)) for first in range(0, args.seeds, args.rows)]
    found: dict[int, Tests] = {}
    start = time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(args.jobs) as pool:
        for tests in pool.imap_unordered(trained, groups):
            found.update(tests)
            print(f"{len(found)} of {args.seeds} seeds, {time.perf_counter() - start:.0f} s", flush=True)
    seconds = time.perf_counter() - start
    solved = [tests[-1][0] for tests in found.values() if tests[-1][1] >= TARGET]
    print(
        f"{len(solved)} of {args.seeds} seeds reach {TARGET:g} within {STEPS:,} env steps, median "
        f"{statistics.median(solved):,.0f}; {seconds:.0f} s, {60 * args.seeds / seconds:.0f} seeds a minute"
    )
    for seed in range(args.check):
        same = trained([seed])[seed] == found[seed]
        print(f"seed {seed} alone: {'equal' if same else 'other'} returns in {len(found[seed])} tests")


if __name__ == "__main__":
    main()
