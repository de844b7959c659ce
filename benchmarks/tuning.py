"""Trials an hour of `tune`: populations of trials beside separate processes, plain and compiled.

    python benchmarks/tuning.py [--trials 50] [--steps 3000] [--population 25] [--jobs 2] [--rounds 3]

Studies of PPO on CartPole with random settings (learning rate, gae_lambda, clip), a seed a trial, no pruning, 10 tests
of 20 episodes each. A study is made by calls that share its storage, each in a process of its own with its imports, as
calls of `marltrain tune` in several terminals are. The studies of a round are made in turn; the numbers are medians
over rounds, with the smallest and largest one. "of a core": by the processor time of all processes, which other work on
the machine changes little; "by the clock": by wall time.

    python benchmarks/tuning.py --check

compares the metric that the file of a study names with that of 10 more seeds: the best of 12 trials of 3,000 env steps.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import marltrain as mt
from marltrain.core.seeds import child_seed
from marltrain.tools.search.training import Plan
from marltrain.tools.tuning.space import Space
from marltrain.tools.tuning.trials import Subject, evaluate
from marltrain.trainer.evaluating.evaluation import bootstrap

ENV = "marltrain/CartPole-v1"
TRAINER = {"num_train_envs": 8, "update_freq": 256, "episodes_per_test": 20}
SPACE: dict[str, Any] = {
    "epochs": 4, "minibatches": 4, "learning_rate": (1e-4, 1e-2), "gae_lambda": (0.8, 0.99), "clip": (0.1, 0.4),
    "entropy_coef": 0.0, "value_coef": 0.5, "gamma": 0.99,
}  # fmt: skip
MORE = 10
"""Number of further seeds of `--check`."""


def search(folder: str, trials: int, steps: int, population: int, *, compiled: bool) -> None:
    """Make the trials of a study that no other process makes."""
    mt.tune(
        "ppo", ENV, {**SPACE, "jit_compile": compiled}, trials=trials, steps=steps, population=population,
        storage=f"sqlite:///{folder}/study.db", pruner="none", warmup_trials=trials, fresh_seeds=0, trainer=TRAINER,
        progress=False,
    )  # fmt: skip


def timed(processes: int, words: Mapping[str, Any]) -> tuple[float, float]:
    """Return the processor time and the wall time of a study that several processes make."""
    begun, used = time.perf_counter(), _processor_time()
    with tempfile.TemporaryDirectory() as folder:
        code = f"from benchmarks.tuning import search; search({folder!r}, **{dict(words)!r})"
        result = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(processes)]
        codes = [process.wait() for process in result]
    if any(codes):
        raise SystemExit("a process failed")
    return _processor_time() - used, time.perf_counter() - begun


def _processor_time() -> float:
    """Return the processor time of all processes that this one has started, and that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def compare(options: argparse.Namespace) -> None:
    """Measure and print trials an hour."""
    common = {"trials": options.trials, "steps": options.steps}
    kinds = {
        f"{options.jobs} processes, a trial at a time": (options.jobs, 1),
        f"1 process, {options.population} trials at once": (1, options.population),
        f"{options.jobs} processes, {options.population} at once": (options.jobs, options.population),
    }
    for path, compiled in (("plain", False), ("compiled", True)):
        timed(1, {"trials": 2, "steps": 512, "population": 2, "compiled": compiled})  # compiles what is kept on disk
        hours: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
        for _ in range(options.rounds):
            for name, (processes, population) in kinds.items():
                seconds = timed(processes, {**common, "population": population, "compiled": compiled})
                hours[name].append((3600 * options.trials / seconds[0], 3600 * options.trials / seconds[1]))
        print(f"{path}: trials an hour")
        for i, by in enumerate(("of a core", "by the clock")):
            first = np.median([found[i] for found in next(iter(hours.values()))])
            for name, pairs in hours.items():
                found = [pair[i] for pair in pairs]
                spread = f"({min(found):,.0f} to {max(found):,.0f})"
                middle = np.median(found)
                print(f"  {by:<14}{name:<34}{middle:>8,.0f}{middle / first:>7.1f} x  {spread}", flush=True)


def check(steps: int = 3000) -> tuple[float, tuple[float, float], float, float, tuple[float, float]]:
    """Return the metric of the best trial, that of its file with its interval, and those of ten more seeds."""
    result = mt.tune("ppo", ENV, SPACE, trials=12, steps=steps, population=12, trainer=TRAINER, progress=False)
    plan, space = Plan.of("check", ENV, None, steps, None, TRAINER), Space.of("ppo", SPACE, per_row=True)
    subject = Subject("ppo", ENV, None, plan, space, [], 0.25)
    more = evaluate(subject, result.settings["agents"], [child_seed(0, "more", i) for i in range(MORE)])
    return (
        float(result.table["metric"].max()), result.interval, result.metric, float(np.mean(more)),
        bootstrap(np.array(more)),
    )  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("trials", 50), ("steps", 3000), ("population", 25), ("jobs", 2), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if not options.check:
        compare(options)
        return
    best, (low, high), metric, mean, (more_low, more_high) = check(options.steps)
    print(f"best of 12 trials: metric {best:.0f}")
    print(f"10 fresh seeds of its settings, which the file names: {metric:.0f} (95 %: {low:.0f} to {high:.0f})")
    print(f"{MORE} more seeds: {mean:.0f} (95 %: {more_low:.0f} to {more_high:.0f})")


if __name__ == "__main__":
    main()
