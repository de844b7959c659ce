"""Time of a gradient step on PyTorch and on TensorFlow, plain and compiled, stacked and looped.

    python benchmarks/backends.py [--repeats 15] [--agents 3 8]

PPO: an update of K agents on 2,048 rows each, 4 epochs of 4 minibatches of 512 rows; the time is divided by the 16
gradient steps. DQN: double, one update on batches of 64 rows. Observations of 18 numbers, 2x64 tanh networks, 5
actions; one thread; medians; all variants run in turn. Plain is the default (TensorFlow: a graph); compiled is
jit_compile=True.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from gymnasium import spaces

import marltrain as mt
from marltrain.policies.batches.batch import Rollout, Transitions
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner

SPACES = spaces.Box(-1, 1, (18,)), spaces.Discrete(5)
MODES = {
    f"{backend} {'compiled' if compiled else 'plain'}": {"backend": backend, "jit_compile": compiled}
    for backend in ("torch", "tensorflow")
    for compiled in (False, True)
}


def transitions(agents: int, rows: int = 64) -> dict[str, Any]:
    """Return the columns of random transitions of K agents."""
    rng, shape = np.random.default_rng(0), (agents, rows)
    return {
        "obs": rng.standard_normal((*shape, 18), np.float32), "legal": None, "action": rng.integers(5, size=shape),
        "reward": rng.standard_normal(shape, np.float32), "discount": np.full(shape, 0.99, np.float32),
        "weight": np.ones(shape, np.float32),
    }  # fmt: skip


def ppo_batch(agents: int) -> Rollout:
    """Return a rollout of 2,048 rows per agent: 16 environments, 128 steps each."""
    columns = transitions(agents, 2048)
    cut = np.arange(2048) % 128 == 127
    return Rollout(
        **columns, extras={"log_prob": np.full((agents, 2048), -np.log(5), np.float32)},
        cut=np.repeat(cut[None], agents, 0), truncated=np.zeros((agents, 2048), bool),
        boot=np.repeat(np.where(cut, np.arange(2048) // 128, -1)[None], agents, 0),
        boot_obs=np.zeros((agents, 16, 18), np.float32), boot_legal=None,
    )  # fmt: skip


def dqn_batch(agents: int) -> Transitions:
    """Return 64 transitions of each agent."""
    columns = transitions(agents)
    cells = np.zeros((agents, 64), np.int64)
    return Transitions(**columns, extras={}, next_obs=columns["obs"][:, ::-1].copy(), next_legal=None, cells=cells)


TASKS: dict[str, tuple[Any, Callable[[int], Any], dict[str, Any], int]] = {
    "PPO, 512 rows": (mt.PPO, ppo_batch, {"epochs": 4, "minibatches": 4}, 16),
    "DQN, 64 rows": (mt.DQN, dqn_batch, {}, 1),
}


def learners(kind: Any, agents: int, each: int, mode: dict[str, Any], settings: dict[str, Any]) -> list[Any]:
    """Return learners of `each` agents, with `agents` agents in total."""
    first = kind(*SPACES, seed=0, **mode, **settings)
    return [
        AlgorithmLearner(first.algorithm, first.backend, list(range(start, start + each)), draw=True)
        for start in range(0, agents, each)
    ]


def milliseconds(group: list[Any], batch: Any, passes: int) -> float:
    """Return the time of one gradient step of all agents."""
    start = time.perf_counter()
    for _ in range(16 // passes):
        for one in group:
            one.update(batch, learn=np.ones(one.num_agents, bool), batch_size=64)
    return 1e3 * (time.perf_counter() - start) / 16


def measured(task: str, agents: int, repeats: int) -> dict[str, tuple[float, float]]:
    """Return the median time of a gradient step (ms) and the time of the first updates (s), by mode.

    Modes that are not compiled are measured stacked and looped. All modes run in turn.
    """
    kind, batch_of, settings, passes = TASKS[task]
    rivals = {}
    for name, mode in MODES.items():
        rivals[name] = learners(kind, agents, agents, mode, settings), batch_of(agents)
        if not mode["jit_compile"]:
            rivals[f"{name}, looped"] = learners(kind, agents, 1, mode, settings), batch_of(1)
    first = {name: 16e-3 * milliseconds(group, batch, passes) for name, (group, batch) in rivals.items()}  # compiles
    times: dict[str, list[float]] = {name: [] for name in rivals}
    for _ in range(repeats):
        for name, (group, batch) in rivals.items():
            times[name].append(milliseconds(group, batch, passes))
    return {name: (statistics.median(values), first[name]) for name, values in times.items()}


def main() -> None:
    """Print a table for each task and number of agents."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--agents", type=int, nargs="+", default=[3, 8])
    args = parser.parse_args()
    for task in TASKS:
        for agents in args.agents:
            found = measured(task, agents, args.repeats)
            best = {b: min(v for name, (v, _) in found.items() if name.startswith(b)) for b in ("torch", "tensorflow")}
            print(f"{task}, {agents} agents: best of torch / best of tensorflow = "
                  f"{best['torch'] / best['tensorflow']:.2f}")  # fmt: skip
            for name, (value, first) in found.items():
                print(f"  {name:26s} {value:6.2f} ms, the first 16 passes {first:5.1f} s", flush=True)


if __name__ == "__main__":
    main()
