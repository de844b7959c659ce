"""Time of an update of K separate agents, stacked in one learner, compared with a loop over K learners.

    python benchmarks/stacking.py [--repeats 50]

Double DQN, batches of 64 rows, observations of 18 numbers, 2x64 networks, 5 actions; one thread; medians; both variants
run in turn. It then measures PPO by number of agents: updates of 2,048 rows per agent, 4 epochs x 4 minibatches,
stacked and compiled; all numbers of agents run in turn.
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
from marltrain.policies.batches.batch import Rollout, Transitions
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner

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
        next_obs=following, next_legal=None, cells=np.zeros(shape, np.int64),
    )  # fmt: skip


def learner(agents: int) -> AlgorithmLearner:
    """Return one learner of K agents."""
    first = mt.DQN(*SPACES, seed=0)
    return AlgorithmLearner(first.algorithm, first.backend, list(range(agents)), draw=True)


def rollout(agents: int, rows: int = 2048) -> Rollout:
    """Return a random rollout of K agents: complete episodes of 128 rows."""
    rng, shape = np.random.default_rng(0), (agents, rows)
    ends = np.broadcast_to(np.arange(rows) % 128 == 127, shape)
    return Rollout(
        obs=rng.standard_normal((*shape, 18), np.float32), legal=None, action=rng.integers(5, size=shape),
        reward=rng.standard_normal(shape, np.float32), discount=np.where(ends, 0, 0.99).astype(np.float32),
        weight=np.ones(shape, np.float32), extras={"log_prob": np.full(shape, -1.6, np.float32)}, cut=ends,
        truncated=np.zeros(shape, bool), boot=np.where(ends, 0, -1), boot_obs=np.zeros((agents, 1, 18), np.float32),
        boot_legal=None,
    )  # fmt: skip


def costs(agents: tuple[int, ...], rounds: int) -> dict[int, float]:
    """Return the median time of PPO updates, in microseconds per agent and row, by number of agents."""
    result = {}
    for count in agents:
        first = mt.PPO(*SPACES, seed=0, epochs=4, minibatches=4, jit_compile=True)
        result[count] = AlgorithmLearner(first.algorithm, first.backend, list(range(count)), draw=True), rollout(count)
        milliseconds([result[count][0]], result[count][1])  # compiles
    times: dict[int, list[float]] = {count: [] for count in agents}
    for _ in range(rounds):
        for count, (one, data) in result.items():
            times[count].append(1e3 * milliseconds([one], data) / (count * data.weight.shape[1]))
    return {count: statistics.median(each) for count, each in times.items()}


def milliseconds(learners: list[AlgorithmLearner], data: Transitions | Rollout) -> float:
    """Return the time of one update of every learner."""
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
    found = costs((3, 8, 16, 32, 64), rounds=args.repeats // 5)
    for count, each in found.items():
        print(f"{count:3d} agents: PPO learns in {each:.2f} us an agent and row ({each / found[3]:.2f} of 3 agents)")


if __name__ == "__main__":
    main()
