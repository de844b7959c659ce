"""Priorities of new rows: the largest so far, or by the rows' own errors, as in Ape-X (`Prioritized(initial="error")`).

    python benchmarks/initial_priorities.py [--seeds 5] [--only few] [--lag 4]

DQN with priorities on CartPole. The cases differ in how often a row is drawn on average: 32 times, 2 times, or every
fourth row once. A greedy test of 20 episodes, 20 times in a run, gives a curve; means over seeds with 95 % bootstrap
intervals. "time": processor time of a run with errors divided by that of the other, medians over the seeds. Without
--lag, the errors are computed in one process, before each update. With --lag, two asynchronous runners compute them, by
weights that lag by so many updates at most; the time is then that of the driver alone.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import marltrain as mt
from marltrain.trainer.evaluating.evaluation import bootstrap

GAME, EPISODES, TESTS = "marltrain/CartPole-v1", 20, 20
CASES: dict[str, tuple[float, int, int]] = {
    "many": (1 / 2, 50_000, 128), "some": (1 / 32, 100_000, 32), "few": (1 / 256, 400_000, 32),
}  # fmt: skip
"""(Updates of 64 rows per env step, env steps, updates between two copies of the target network)."""


def curve(case: str, seed: int, initial: str | None, lag: int | None) -> tuple[float, float]:
    """Return the mean return of the curve of a run, and its processor time in seconds."""
    per_step, steps, sync = CASES[case]
    agents = mt.make_agents(
        "dqn", GAME, seed=seed, jit_compile=True, memory=mt.Replay(100_000, 3, mt.Prioritized(initial=initial)),
        batch_size=64, learning_rate=mt.linear(1e-3, 1e-5, steps), epsilon=mt.linear(1.0, 0.04, steps // 6),
        learning_starts=1_000, update_per_step=per_step, target_sync=sync, network=mt.MLP((128, 128), "relu"),
    )  # fmt: skip
    runners: dict[str, Any] = {} if lag is None else {"runners": 2, "sync": False, "max_lag": lag}
    start = time.process_time()
    result = mt.DecentralizedTrainer(
        GAME, seed=seed, num_train_envs=8, num_test_envs=EPISODES, update_freq=256, steps_per_train=steps,
        test_freq=None, test_freq_steps=steps // TESTS, episodes_per_test=EPISODES, run_dir=False, progress=False,
        **runners,
    ).train(agents, [1], plot=False)  # fmt: skip
    return float(result["history"]["metric"].iloc[1:].mean()), time.process_time() - start


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--lag", type=int)
    given = parser.parse_args()
    curve("many", 0, "error", None)  # loads and compiles
    print("| draws of a row | largest so far | own errors | time |\n|---|---|---|---|")
    for case in given.only:
        pairs = [[curve(case, seed, initial, given.lag) for initial in (None, "error")] for seed in range(given.seeds)]
        metrics, seconds = np.array(pairs).transpose(2, 1, 0)
        spans = [f"{m.mean():.0f} ({' to '.join(f'{end:.0f}' for end in bootstrap(m))})" for m in metrics]
        ratio = np.median(seconds[1] / seconds[0])
        print(f"| {64 * CASES[case][0]:g} | {spans[0]} | {spans[1]} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
