"""Env steps a processor second of a run against a pool of 16 versions, beside a run against one agent, in turn.

    python benchmarks/pool_rates.py [connect-four] [rock-paper-scissors] [--envs 16 64] [--rounds 5] [--steps 300000]

PPO with `jit_compile=True` in native games, one thread. A learner trains against an `mt.OpponentPool` whose members are
drawn by priorities, and against a second agent that does not learn. The first third of the steps fills the pool and is
not counted. The ratio is the pool's rate by that of the other run of its round: median, lowest and highest.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

import marltrain as mt

GAMES = {"connect-four": "marltrain/connect_four_v3", "rock-paper-scissors": "marltrain/rock_paper_scissors_v1"}
SIZE = 16
"""Versions in the pool."""


class Clock(mt.Callback):
    """Notes env steps and processor time after each update behind the first env steps."""

    only_watches = True  # batch steps stay in compiled calls

    def __init__(self, first: int) -> None:
        """Count from the env step `first` on."""
        self.first, self.laps = first, list[tuple[int, float]]()

    def on_update_end(self, moment: mt.Moment) -> None:
        """See `mt.Callback`."""
        if moment.env_steps >= self.first:
            self.laps.append((moment.env_steps, time.process_time()))

    @property
    def rate(self) -> float:
        """Env steps a processor second between the first and the last update."""
        (begin, start), (end, stop) = self.laps[0], self.laps[-1]
        return (end - begin) / (stop - start)


def rate(env: str, envs: int, steps: int, *, pool: bool) -> float:
    """Train, and return the env steps a processor second of the last two thirds."""
    learner, other = mt.make_agents("ppo", env, seed=0, jit_compile=True)
    opponent: Any = mt.OpponentPool(learner, every_steps=steps // 3 // SIZE, size=SIZE) if pool else other
    clock = Clock(steps // 3)
    trainer = mt.DecentralizedTrainer(
        env, num_train_envs=envs, steps_per_train=steps, test_freq=None, seed=0, run_dir=False, progress=False,
        callbacks=[clock],
    )  # fmt: skip
    trainer.train([learner, opponent], [1, 0], plot=False)
    return clock.rate


def main() -> None:
    """Print a line for each game and number of environments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("games", nargs="*", choices=[[], *GAMES], help="all, if none is named")
    parser.add_argument("--envs", nargs="+", type=int, default=[16, 64])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300_000)
    given = parser.parse_args()
    for name in given.games or GAMES:
        for envs in given.envs:
            pairs = [
                [rate(GAMES[name], envs, given.steps, pool=pool) for pool in (False, True)] for _ in range(given.rounds)
            ]
            one, several = (statistics.median(column) for column in zip(*pairs, strict=True))
            ratios = sorted(pool / alone for alone, pool in pairs)
            print(
                f"{name}, {envs} environments: one agent {one:,.0f}, pool {several:,.0f} env steps a processor second, "
                f"ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})",
                flush=True,
            )


if __name__ == "__main__":
    main()
