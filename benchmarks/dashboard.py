"""Processor time of W1 with a dashboard, relative to W1 without a progress display.

    python benchmarks/dashboard.py [--steps 200000] [--rounds 5] [--size 200x50]

W1 is described in docs/benchmarks.md: PPO, 3 players on marltrain/simple_spread_v3, 16 environments x 128 steps, one
thread. Both kinds of runs write their files, with a test every 50,000 env steps. The dashboard is drawn into a pseudo
terminal, which a thread reads; its processor time counts too. The runs take turns, and each round gives a ratio, whose
noise is a few percent on a busy machine. The processor time inside the dashboard's own methods is measured directly.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import statistics
import struct
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import marltrain as mt
from marltrain.trainer.reporting.dashboard import Dashboard

ENV = "marltrain/simple_spread_v3"


@contextmanager
def terminal(columns: int, lines: int) -> Iterator[list[int]]:
    """Let stderr be a terminal of this size; yields a list that holds the number of bytes written to it."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    written = [0]

    def read() -> None:
        while data := os.read(ours, 65536):
            written[0] += len(data)
            if data.endswith(b"\x04"):
                return

    reader = threading.Thread(target=read)
    reader.start()
    before, sys.stderr = sys.stderr, os.fdopen(theirs, "w", encoding="utf-8")
    try:
        yield written
    finally:
        sys.stderr.write("\x04")
        sys.stderr.close()
        sys.stderr = before
        reader.join()
        os.close(ours)


def measure_methods() -> list[float]:
    """Let the dashboard's methods measure their processor time; return a list that holds the sum."""
    spent = [0.0]

    def measured(method: Callable[..., None]) -> Callable[..., None]:
        def call(*args: Any, **kwargs: Any) -> None:
            before = time.thread_time()
            method(*args, **kwargs)
            spent[0] += time.thread_time() - before

        return call

    for name in (
        "point",
        "on_train_start",
        "on_collect",
        "on_test_start",
        "on_test_step",
        "on_test_end",
        "on_train_end",
    ):
        setattr(Dashboard, name, measured(getattr(Dashboard, name)))
    return spent


def seconds(steps: int, *, dashboard: bool) -> float:
    """Return the processor seconds of a run."""
    agents = mt.make_agents(
        "ppo", ENV, seed=0, jit_compile=True, epochs=4, minibatches=4, network=mt.MLP((64, 64)), update_freq=2_048
    )
    with tempfile.TemporaryDirectory() as folder:
        trainer = mt.DecentralizedTrainer(
            ENV, num_train_envs=16, steps_per_train=steps, test_freq_steps=50_000, seed=0, run_dir=folder,
            progress="dashboard" if dashboard else False,
        )  # fmt: skip
        before = time.process_time()
        trainer.train(agents, [1, 1, 1], plot=False)
        return time.process_time() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", default="200x50")
    args = parser.parse_args()
    columns, lines = map(int, args.size.split("x"))
    seconds(8_192, dashboard=False)  # compiles
    ratios, shares, spent = [], [], measure_methods()
    for number in range(args.rounds):
        measured = {}
        for dashboard in (False, True) if number % 2 else (True, False):
            with terminal(columns, lines) as written:
                measured[dashboard] = seconds(args.steps, dashboard=dashboard)
            if dashboard:
                drawn, inside = written[0], spent[0]
        spent[0] = 0.0
        shares.append(inside / measured[True])
        ratios.append(measured[True] / measured[False])
        print(f"{measured[False]:.2f} s, with the dashboard {measured[True]:.2f} s ({ratios[-1] - 1:+.2%}), "
              f"{drawn:,} bytes drawn, {shares[-1]:.2%} in its methods", flush=True)  # fmt: skip
    print(f"{args.size}: median {statistics.median(ratios) - 1:+.2%} of {args.rounds} rounds; "
          f"{statistics.median(shares):.2%} in its methods")  # fmt: skip


if __name__ == "__main__":
    main()
