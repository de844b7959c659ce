"""Env steps per processor second of agents that learn together, and of independent agents on the same path.

    python benchmarks/together.py [--steps 200000] [--rounds 3] [--plain]

The work is W1 of `benchmarks/speed_tables.py`: 3 players on marltrain/simple_spread_v3, 16 environments x 128 steps,
4 epochs x 4 minibatches, 2x64 tanh, one thread, `jit_compile=True` unless `--plain`. The algorithms run in turn, and
the table shows the median of the rounds and its ratio to independent PPO. The recurrent networks have 64 units and
learn from sequences of 16; `jit_compile=True` takes minutes to compile them, so `--plain` is meant for these.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import marltrain as mt

ENV = "marltrain/simple_spread_v3"
WORK: dict[str, Any] = {"epochs": 4, "minibatches": 4, "network": mt.MLP((64, 64))}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "ppo": ("ppo", {}),
    "ppo, values normalised": ("ppo", {"normalize_values": "valuenorm"}),
    "ppo, GRU": ("ppo", {"network": mt.GRU()}),
    "ppo, GRU, shared trunk": ("ppo", {"network": mt.GRU(), "shared_trunk": True}),
    "mappo, state": ("mappo", {"critic_input": "state"}),
    "mappo, joint observations": ("mappo", {"critic_input": "joint"}),
    "mappo, agent-specific": ("mappo", {"critic_input": "agent_specific"}),
}


def rate(case: str, steps: int, *, compiled: bool) -> float:
    """Return env steps per processor second of one run, without its first rollouts."""
    algo, settings = CASES[case]
    agents = mt.make_agents(algo, ENV, seed=0, jit_compile=compiled, **{**WORK, **settings})

    def train(env_steps: int) -> float:
        trainer = mt.DecentralizedTrainer(
            ENV, num_train_envs=16, update_freq=2_048, steps_per_train=env_steps, test_freq=None, seed=0,
            progress=False, run_dir=False,
        )  # fmt: skip
        start = time.process_time()
        trainer.train(agents, [1] * len(agents), plot=False)
        return time.process_time() - start

    train(4_096)
    return steps / train(steps)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--plain", action="store_true")
    given = parser.parse_args()
    rates: dict[str, list[float]] = {case: [] for case in CASES}
    for _ in range(given.rounds):
        for case, found in rates.items():
            found.append(rate(case, given.steps, compiled=not given.plain))
    medians = {case: statistics.median(found) for case, found in rates.items()}
    print("| algorithm | env steps per processor second | ratio to ppo |\n| --- | --- | --- |")
    for case, median in medians.items():
        print(f"| {case} | {median:,.0f} | {median / medians['ppo']:.2f} |")


if __name__ == "__main__":
    main()
