"""Time of operations that marltrain implements itself, compared with torch's (cosine and sine: the C library's).

    python benchmarks/kernels.py [--rounds 9]

tanh: by numpy; [3, 512, 64] float32, a hidden layer of three agents and 512 rows.
log_softmax: in two operations; [3, 512, 5], five actions.
linear: 64 inputs, five outputs, padded with columns of zeros.
act, act in numpy: an act of three PPO agents in 16 environments, compiled by Numba or over numpy; compared with torch.
cosine and sine: of 1,000 angles of an upright pole.
One thread; medians; both variants run in turn.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from gymnasium import spaces

import marltrain as mt
from marltrain.envs.native.control.cartpole import cos_sin
from marltrain.jit.compiling import compiled as compiled_by_numba
from marltrain.policies.backends.torch import ops
from marltrain.policies.batches.batch import ActInputs
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner

CALLS = 200
SPACES = spaces.Box(-1, 1, (18,)), spaces.Discrete(5)


def microseconds(function: Callable[[], object]) -> float:
    """Return the mean time of a call, over at most CALLS calls or one second."""
    start, calls = time.perf_counter(), 0
    while calls < CALLS and time.perf_counter() - start < 1:
        function()
        calls += 1
    return (time.perf_counter() - start) / calls * 1e6


def act(way: str) -> Callable[[], object]:
    """Return a function that makes one act of three agents in 16 environments.

    way: "compiled", "numpy" or "tensors".
    """
    agent = mt.PPO(*SPACES, seed=0)
    learner = AlgorithmLearner(agent.algorithm, agent.backend, [0, 1, 2], draw=True)
    if way != "compiled":
        learner.actor._compiled = {None: None}
    if way == "tensors":
        learner.actor._in_numpy = None
    obs, everyone = np.ones((3, 16, 18), np.float32), np.ones((3, 16), bool)
    rngs = learner.rngs("act")
    return lambda: learner.act(ActInputs(obs, None, everyone), turn=everyone, rngs=rngs)


def angles(of: Callable[[float], tuple[float, float]]) -> Callable[[], object]:
    """Return a compiled loop over the angles of an upright pole."""

    def loop(given: Any) -> float:
        total = 0.0
        for angle in given:
            cos, sin = of(angle)
            total += cos + sin
        return total

    run, given = compiled_by_numba(loop), np.linspace(-0.2, 0.2, 1000)
    return lambda: run(given)


@compiled_by_numba
def library(angle: float) -> tuple[float, float]:
    """Return the cosine and sine by the C library."""
    return math.cos(angle), math.sin(angle)


def main() -> None:
    """Print a line for each operation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    hidden, logits = torch.randn(3, 512, 64), torch.randn(3, 512, 5)
    weight, bias = torch.randn(3, 64, 5), torch.randn(3, 5)
    pairs: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "tanh": (lambda: ops.tanh(hidden), lambda: torch.tanh(hidden)),
        "log_softmax": (lambda: ops.log_softmax(logits, -1), lambda: torch.log_softmax(logits, -1)),
        "linear": (
            lambda: ops.linear(hidden, weight, bias),
            lambda: torch.baddbmm(bias.unsqueeze(1), hidden, weight),
        ),
        "act": (act("compiled"), act("tensors")),
        "act in numpy": (act("numpy"), act("tensors")),
        "cosine and sine": (angles(cos_sin), angles(library)),
    }
    for name, (ours, torchs) in pairs.items():
        times = [(microseconds(ours), microseconds(torchs)) for _ in range(args.rounds + 1)][1:]  # without the warm-up
        mine, its = (statistics.median(column) for column in zip(*times, strict=True))
        print(f"{name}: {mine:.1f} us, otherwise {its:.1f} us ({its / mine:.1f} times)")


if __name__ == "__main__":
    main()
