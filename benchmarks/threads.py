"""One run with several threads beside as many runs with one thread each at the same time, in turn.

    python benchmarks/threads.py [--threads 2] [--rounds 5] [--seconds 5] [--works W1x16 W1x1024 cartpole] [--setup 25]

The sum of the runs with one thread is the limit that the machine sets. A share of 1 means that a single run uses all of
it. W1xE: PPO, 3 players, 2x64 tanh, 128 steps in each of E environments of marltrain/simple_spread_v3, 4 epochs of 4
minibatches. cartpole: one PPO agent, marltrain/CartPole-v1, 1,024 environments x 32 steps. All with `jit_compile=True`.
Each run trains for a while, then its env steps between the updates of the same seconds are counted, of two at least.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

WORKS: dict[str, tuple[str, int, int]] = {
    "W1x16": ("marltrain/simple_spread_v3", 16, 128),
    "W1x1024": ("marltrain/simple_spread_v3", 1_024, 128),
    "cartpole": ("marltrain/CartPole-v1", 1_024, 32),
}
"""Work -> environment, number of environments, steps of a rollout in each."""


def measured(work: str, begin: float, end: float) -> float:
    """Train until the time `end`; return the env steps a second between the updates from `begin` on."""
    import marltrain as mt

    class Laps(mt.Callback):
        only_watches = True

        def __init__(self) -> None:
            self.laps: list[tuple[float, int]] = []

        def on_update_end(self, moment: Any) -> None:
            if (now := time.time()) >= begin:
                self.laps.append((now, moment.env_steps))
            if now >= end and len(self.laps) > 2:
                moment.stop("measured")

    env, envs, steps = WORKS[work]
    laps = Laps()
    agents = mt.make_agents(
        "ppo", env, seed=0, jit_compile="require", network=mt.MLP((64, 64), "tanh"), epochs=4, minibatches=4
    )
    trainer = mt.DecentralizedTrainer(
        env, num_train_envs=envs, update_freq=envs * steps, steps_per_train=10**10, test_freq=10**9, seed=0,
        progress=False, callbacks=[laps], run_dir=False,
    )  # fmt: skip
    if time.time() > begin:
        raise RuntimeError(f"the set-up ended {time.time() - begin:.1f} s too late: give a larger --setup")
    trainer.train(agents, [True] * len(agents), plot=False)
    (first, at), (last, to) = laps.laps[0], laps.laps[-1]
    return (to - at) / (last - first)


def rate(work: str, threads: int, processes: int, seconds: float, setup: float) -> float:
    """Return the sum of the rates of processes that train at the same time."""
    begin = time.time() + setup
    command = [sys.executable, __file__, "--measure", work, str(begin), str(begin + seconds)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    started = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    answers = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        raise RuntimeError(f"a run of {work} failed; its error is above")
    return sum(json.loads(answer.splitlines()[-1]) for answer in answers)


def main() -> None:
    """Measure all works, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--setup", type=float, default=25.0, help="seconds from a start to the measurement")
    parser.add_argument("--works", nargs="+", default=list(WORKS), choices=WORKS)
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        work, begin, end = args.measure
        print(json.dumps(measured(work, float(begin), float(end))))
        return
    n = args.threads
    print(f"| work | one run, {n} threads | {n} runs, 1 thread each, together | one run, 1 thread | share |")
    print("| --- | --- | --- | --- | --- |")
    for work in args.works:
        rounds = [
            [rate(work, threads, runs, args.seconds, args.setup) for threads, runs in ((n, 1), (1, n), (1, 1))]
            for _ in range(args.rounds)
        ]
        one, several, alone = (statistics.median(column) for column in zip(*rounds, strict=True))
        shares = sorted(one / several for one, several, _ in rounds)
        print(
            f"| {work} | {one:,.0f} | {several:,.0f} | {alone:,.0f} | {statistics.median(shares):.2f} "
            f"({shares[0]:.2f} to {shares[-1]:.2f}) |",
            flush=True,
        )


if __name__ == "__main__":
    main()
