"""Cost of a finder: 9 learning rates x 5 seeds of PPO on CartPole at once, compared with single runs.

    python benchmarks/finders.py [--steps 4000] [--singles 3]

Processor time of training and tests (10 tests of 20 episodes), one thread, plain PyTorch and compiled
(`jit_compile=True`). The time of 45 single runs is that of `--singles` runs, with rates from the smallest to the
largest, times 45 / singles. "an hour": trainings, or trials of one seed, that one core makes in an hour; separate
processes make as many as single runs on each core.
"""

from __future__ import annotations

import argparse
import os
import time
from functools import partial

os.environ.setdefault("OMP_NUM_THREADS", "1")

import marltrain as mt
from marltrain.envs import resolve
from marltrain.tools.finding.find import RATES
from marltrain.tools.search.train_all import train_all
from marltrain.tools.search.training import Plan, Training

ENV, SEEDS = "marltrain/CartPole-v1", 5
TRAINER = {"num_train_envs": 8, "update_freq": 256, "episodes_per_test": 20}


def trainings(rates: list[float], seeds: int, *, compiled: bool) -> list[Training]:
    """Return a training for each rate and seed."""
    make = partial(mt.make_agents, "ppo", ENV, jit_compile=compiled, epochs=4, minibatches=4)
    return [
        Training(c, seed, partial(make, seed=seed, learning_rate=rate))
        for c, rate in enumerate(rates)
        for seed in range(seeds)
    ]


def seconds(groups: list[list[Training]], steps: int) -> float:
    """Return the processor time of groups of trainings, one group after another."""
    plan = Plan(resolve(ENV), steps, None, {**TRAINER, "test_freq_steps": steps // 10})
    begun = time.process_time()
    for group in groups:
        train_all(plan, group)
    return time.process_time() - begun


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--singles", type=int, default=3)
    options = parser.parse_args()
    rates = list(RATES)
    print(f"{'':<10}{'45 at once':>12}{'45 alone':>12}{'times':>8}{'an hour, at once':>18}{'alone':>10}")
    for name, compiled in (("plain", False), ("compiled", True)):
        own = partial(trainings, compiled=compiled)
        seconds([own(rates[4:5], 1), own(rates[4:6], 1)], 512)  # warm up
        some = [rates[i * (len(rates) - 1) // max(1, options.singles - 1)] for i in range(options.singles)]
        alone = seconds([own([rate], 1) for rate in some], options.steps) * 45 / options.singles
        together = seconds([own(rates, SEEDS)], options.steps)
        hours = [3600 * 45 / taken for taken in (together, alone)]
        print(
            f"{name:<10}{together:>10.1f} s{alone:>10.1f} s{alone / together:>8.2f}{hours[0]:>18.0f}{hours[1]:>10.0f}"
        )


if __name__ == "__main__":
    main()
