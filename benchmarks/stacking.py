"""What an update of K separate agents costs, stacked in one learner against a loop over K learners.

    python benchmarks/stacking.py [--repeats 50]

Double DQN, batches of 64 rows of 18 numbers, 2x64 networks, 5 actions; one thread; medians, both in turn.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from gymnasium import spaces

import marltrain as mt
from marltrain.policies.batch import Transitions
from marltrain.policies.learner import AlgorithmLearner

SPACES = spaces.Box(-1, 1, (18,)), spaces.Discrete(5)
ROWS = 64


def batch(agents: int) -> Transitions:
    """Return random transitions for K agents."""
    rng = np.random.default_rng(0)
    shape = (agents, ROWS)
    obs, following = (rng.standard_normal((*shape, 18), np.float32) for _ in range(2))
    return Transitions(
        obs=obs, legal=None, action=rng.integers(5, size=shape), reward=rng.standard_normal(shape, np.float32),
        discount=np.full(shape, 0.99, np.float32), weight=np.ones(shape, np.float32), extras={},
        next_obs=following, next_legal=None, rows=np.zeros((*shape, 3), np.int64),
    )  # fmt: skip


def learner(agents: int) -> AlgorithmLearner:
    """Return one learner of K agents."""
    first = mt.DQN(*SPACES, seed=0)
    return AlgorithmLearner(first.algorithm, first.backend, list(range(agents)), draw=True)


def milliseconds(learners: list[AlgorithmLearner], data: Transitions) -> float:
    """Return what one update of every learner takes."""
    start = time.perf_counter()
    for one in learners:
        one.update(data, learn=np.ones(one.num_agents, bool), batch_size=ROWS)
    return 1e3 * (time.perf_counter() - start)


def main() -> None:
    """Print a line for each number of agents."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=50)
    args = parser.parse_args()
    for agents in (1, 3, 8, 32):
        stacked, looped = [learner(agents)], [learner(1) for _ in range(agents)]
        whole, single = batch(agents), batch(1)
        times = [(milliseconds(stacked, whole), milliseconds(looped, single)) for _ in range(args.repeats)]
        together, apart = (statistics.median(column) for column in zip(*times, strict=True))
        print(f"{agents:3d} agents: stacked {together:.2f} ms, looped {apart:.2f} ms ({apart / together:.1f} times)")


if __name__ == "__main__":
    main()
