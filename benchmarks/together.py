"""Env steps per processor second of agents that learn together, and of independent agents on the same path.

    python benchmarks/together.py [W1 or W2] [--steps 200000] [--rounds 3] [--plain] [--cases ppo mappo]

The works are W1 and W2 of `benchmarks/speed_tables.py`, with 3 players on marltrain/simple_spread_v3 and one thread.
W1: PPO, 16 environments x 128 steps, 4 epochs x 4 minibatches, 2x64 tanh. W2: double DQN, one environment, a gradient
step of 64 rows per player every 4 env steps, 2x64 relu; the agents that learn together get the mean reward of the
players, and so do the independent ones. `jit_compile=True` unless `--plain`. --cases leaves out cases of other names.
The cases run in turn, and the table shows the median of the rounds and its ratio to the first case. The recurrent
networks have 64 units and learn from sequences of 16; `jit_compile=True` takes minutes to compile them, so `--plain` is
meant for these.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import marltrain as mt
from marltrain.trainer.events.callbacks import Callback, Moment

ENV = "marltrain/simple_spread_v3"


@dataclass(frozen=True)
class Work:
    """Cases by name, each an algorithm and its settings; the first is the independent one.

    trainer, agents: settings of all cases.  warmup: env steps before the measurement.
    """

    cases: dict[str, tuple[str, dict[str, Any]]]
    trainer: dict[str, Any]
    agents: dict[str, Any]
    warmup: int


WORKS = {
    "W1": Work(
        {
            "ppo": ("ppo", {}),
            "ppo, values normalized": ("ppo", {"normalize_values": "valuenorm"}),
            "ppo, GRU": ("ppo", {"network": mt.GRU()}),
            "ppo, GRU, shared trunk": ("ppo", {"network": mt.GRU(), "shared_trunk": True}),
            "mappo, state": ("mappo", {"critic_input": "state"}),
            "mappo, joint observations": ("mappo", {"critic_input": "joint"}),
            "mappo, agent-specific": ("mappo", {"critic_input": "agent_specific"}),
        },
        {"num_train_envs": 16, "update_freq": 2_048},
        {"epochs": 4, "minibatches": 4, "network": mt.MLP((64, 64))}, 4_096,
    ),
    "W2": Work(
        {"dqn": ("dqn", {}), "vdn": ("vdn", {}), "qmix": ("qmix", {})},
        {"num_train_envs": 1, "update_freq": 4, "batch_size": 64, "team_reward": "mean"},
        {"network": mt.MLP((64, 64), "relu"), "learning_rate": 1e-3, "learning_starts": 1_000}, 1_500,
    ),
}  # fmt: skip


class Clock(Callback):
    """Counts env steps and processor time from the end of the first update of a run, which may compile code."""

    only_watches = True

    def __init__(self) -> None:
        self.laps: list[tuple[int, float]] = []

    def on_update_end(self, moment: Moment) -> None:
        """Record the first and the last update."""
        self.laps = [*self.laps[:1], (moment.env_steps, time.process_time())]

    def rate(self) -> float:
        """Return env steps per second."""
        (first, start), (last, end) = self.laps
        return (last - first) / (end - start)


def rate(work: Work, case: str, steps: int, *, compiled: bool) -> float:
    """Return env steps per processor second of one run, without its first updates."""
    algo, settings = work.cases[case]
    agents = mt.make_agents(algo, ENV, seed=0, jit_compile=compiled, **{**work.agents, **settings})
    for env_steps in (work.warmup, steps):
        clock = Clock()
        trainer = mt.DecentralizedTrainer(
            ENV, steps_per_train=env_steps, test_freq=None, seed=0, progress=False, run_dir=False, callbacks=[clock],
            **work.trainer,
        )  # fmt: skip
        trainer.train(agents, [1] * len(agents), plot=False)
    return clock.rate()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", choices=WORKS, nargs="?", default="W1")
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--cases", nargs="+", help="cases whose names begin with one of these")
    given = parser.parse_args()
    work = WORKS[given.work]
    cases = [case for case in work.cases if given.cases is None or case.startswith(tuple(given.cases))]
    rates: dict[str, list[float]] = {case: [] for case in cases}
    for _ in range(given.rounds):
        for case, found in rates.items():
            found.append(rate(work, case, given.steps, compiled=not given.plain))
    medians = {case: statistics.median(found) for case, found in rates.items()}
    first = next(iter(medians))
    print(f"| algorithm | env steps per processor second | ratio to {first} |\n| --- | --- | --- |")
    for case, median in medians.items():
        print(f"| {case} | {median:,.0f} | {median / medians[first]:.2f} |")


if __name__ == "__main__":
    main()
