"""Speed of marltrain's worker processes compared with Gymnasium's vector environments, on a fast environment.

    python benchmarks/vectors.py [--envs 16] [--workers 2] [--seconds 3] [--rounds 3]

Every vector environment steps `gymnasium/CartPole-v1` with constant actions. Gymnasium starts one process for each
environment; each of marltrain's workers holds several environments. Measurements alternate over several rounds, so that
ratios compare runs that are adjacent in time.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import time
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")

import gymnasium
import numpy as np

from marltrain.core.spec import empty_actions
from marltrain.envs import VectorEnv, make_vector

ENV = "CartPole-v1"
WARM_UP = 50


def rate(step: Callable[[], object], num_envs: int, seconds: float) -> float:
    """Return environment steps per second of a function that makes one batch step."""
    for _ in range(WARM_UP):
        step()
    steps, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        step()
        steps += num_envs
    return steps / (time.perf_counter() - start)


def ours(vector: str, num_envs: int, workers: int | None, seconds: float) -> float:
    """Return environment steps per second of marltrain's vector environment."""
    envs: VectorEnv
    with make_vector(f"gymnasium/{ENV}", None, num_envs, vector=vector, num_workers=workers) as envs:
        envs.reset(0)
        actions = empty_actions(envs.spec, num_envs)
        return rate(lambda: envs.step(actions), num_envs, seconds)


def gymnasiums(kind: Callable[..., gymnasium.vector.VectorEnv], num_envs: int, seconds: float) -> float:
    """Return environment steps per second of one of Gymnasium's vector environments."""
    envs = kind([functools.partial(gymnasium.make, ENV) for _ in range(num_envs)])
    try:
        envs.reset(seed=0)
        actions = np.zeros(num_envs, np.int64)
        return rate(lambda: envs.step(actions), num_envs, seconds)
    finally:
        envs.close()


def main() -> None:
    """Measure all variants in turn; print rates and medians of ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", type=int, default=16)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    measures: dict[str, Callable[[], float]] = {
        "marltrain, this process": lambda: ours("dummy", args.envs, None, args.seconds),
        "Gymnasium, this process": lambda: gymnasiums(gymnasium.vector.SyncVectorEnv, args.envs, args.seconds),
        f"marltrain, {args.workers} workers": lambda: ours("subproc", args.envs, args.workers, args.seconds),
        f"Gymnasium, {args.envs} processes": lambda: gymnasiums(
            gymnasium.vector.AsyncVectorEnv, args.envs, args.seconds
        ),
    }
    found: dict[str, list[float]] = {name: [] for name in measures}
    for number in range(args.rounds):
        for name, measure in measures.items():
            found[name].append(measure())
        text = ", ".join(f"{name} {rates[-1]:,.0f}" for name, rates in found.items())
        print(f"round {number + 1}: {text} env steps/s", flush=True)
    here, theirs, workers, processes = found.values()
    for place, mine, its in (("this process", here, theirs), ("other processes", workers, processes)):
        ratios = [one / other for one, other in zip(mine, its, strict=True)]
        print(f"{place}: marltrain / Gymnasium, median {statistics.median(ratios):.2f} "
              f"(from {min(ratios):.2f} to {max(ratios):.2f})")  # fmt: skip


if __name__ == "__main__":
    main()
