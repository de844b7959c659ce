"""Time of a gradient step under each strategy: 3 PPO agents, minibatches of 512 rows each, small and large networks.

    python benchmarks/strategies.py [--repeats 5] [--widths 64 1024]

Observations of 18 numbers, two hidden layers, 5 actions; one thread per process. Medians, measured in turn with the
same backend without a strategy. "start" is the time of the first update, which starts the processes and, on TensorFlow,
traces the graphs.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from gymnasium import spaces

import marltrain as mt
from marltrain.policies.backends.strategies import STRATEGIES
from marltrain.policies.batches.batch import Rollout
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner

SPACES, AGENTS, ROWS, PASSES = (spaces.Box(-1, 1, (18,)), spaces.Discrete(5)), 3, 2048, 4


def rollout() -> Rollout:
    """Return a random rollout: 16 environments, 128 steps each."""
    rng, shape = np.random.default_rng(0), (AGENTS, ROWS)
    cut = np.repeat((np.arange(ROWS) % 128 == 127)[None], AGENTS, 0)
    return Rollout(
        obs=rng.standard_normal((*shape, 18), np.float32), legal=None, action=rng.integers(5, size=shape),
        reward=rng.standard_normal(shape, np.float32), discount=np.full(shape, 0.99, np.float32),
        weight=np.ones(shape, np.float32), extras={"log_prob": np.full(shape, -np.log(5), np.float32)}, cut=cut,
        truncated=np.zeros(shape, bool), boot=np.where(cut, np.arange(ROWS) // 128, -1),
        boot_obs=np.zeros((AGENTS, 16, 18), np.float32), boot_legal=None,
    )  # fmt: skip


def learner(backend: str, strategy: Any, width: int) -> AlgorithmLearner:
    """Return a learner of all agents."""
    network = mt.MLP(hidden=(width, width))
    first = mt.PPO(*SPACES, seed=0, backend=backend, strategy=strategy, network=network, epochs=1, minibatches=PASSES)
    return AlgorithmLearner(first.algorithm, first.backend, list(range(AGENTS)), draw=True)


def milliseconds(one: AlgorithmLearner, batch: Rollout) -> float:
    """Return the time of a gradient step, from an update of four gradient steps."""
    start = time.perf_counter()
    one.update(batch, learn=np.ones(AGENTS, bool), batch_size=64)
    return 1e3 * (time.perf_counter() - start) / PASSES


def main() -> None:
    """Print a line for each strategy and width."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--widths", type=int, nargs="+", default=[64, 1024])
    args = parser.parse_args()
    batch = rollout()
    names = sorted(
        STRATEGIES, key=lambda name: name != "MirroredStrategy"
    )  # first, since it divides the CPU, which TensorFlow allows only before its start
    for width in args.widths:
        for name in names:
            strategy = STRATEGIES[name]()
            shared = learner(strategy.backend, strategy, width)
            alone = learner(strategy.backend, None, width)
            start = milliseconds(shared, batch) * PASSES / 1e3
            milliseconds(alone, batch)
            pairs = [(milliseconds(alone, batch), milliseconds(shared, batch)) for _ in range(args.repeats)]
            without, spread = (statistics.median(times) for times in zip(*pairs, strict=True))
            shared.close()
            print(f"2x{width:<5d}{strategy!s:50s} {spread:7.1f} ms, without {without:7.1f} ms, start {start:5.1f} s",
                  flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
