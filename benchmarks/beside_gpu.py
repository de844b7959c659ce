"""PPO in native simple_spread whose agents act on a GPU: games stepped beside it, in one part, in two, or after it.

    OMP_NUM_THREADS=16 python -m benchmarks.beside_gpu [--device cuda] [--envs 1024 8192] [--parts 0 1 2] [--seconds 4]

0 parts: the acts first, then the games; 1: the batch step is recorded while the GPU computes; 2: one half of the
environments is stepped while the GPU computes the acts of the other. Prints env steps per second of wall time, with
learning, and the milliseconds of a batch step without it. `--device cpu` lets the CPU stand for a GPU: its captured
calls are made twice, with checks, so its rates say nothing.
"""

from __future__ import annotations

import argparse
import time
from contextlib import nullcontext
from functools import partial
from typing import Any

from marltrain.trainer.training import run as training_run
from marltrain.trainer.training.make_collector import make_collector

ENV = "marltrain/simple_spread_v3"
STEPS = 128
"""Batch steps between two updates."""


def measured(device: str, envs: int, parts: int, seconds: float) -> tuple[float, float]:
    """Return env steps per second, and the milliseconds of a batch step without updates."""
    import marltrain as mt
    from marltrain.policies.backends.torch.places import cpu_as_gpu
    from marltrain.policies.backends.torch.recorded_capture import RecordedCapture

    # The trainer has no setting for the parts: they change no result.
    training_run.make_collector = partial(make_collector, parts=parts)  # type: ignore[attr-defined]
    marks: list[tuple[float, int]] = []
    updating: list[float] = []

    def begin(moment: Any) -> None:
        updating.append(-time.perf_counter())

    def end(moment: Any) -> None:
        marks.append((time.perf_counter(), moment.env_steps))
        updating[-1] += marks[-1][0]
        if len(marks) > 3 and marks[-1][0] - marks[2][0] > seconds:
            moment.stop("measured")

    with cpu_as_gpu(RecordedCapture()) if device == "cpu" else nullcontext():
        agents = mt.make_agents("ppo", ENV, seed=0, device=device, jit_compile=True, epochs=4, minibatches=4)
        callback = mt.LambdaCallback(on_update_start=begin, on_update_end=end)
        trainer = mt.DecentralizedTrainer(
            ENV, num_train_envs=envs, update_freq=STEPS * envs, test_freq=None, steps_per_train=10**9, seed=0,
            run_dir=False, progress=False, callbacks=[callback],
        )  # fmt: skip
        trainer.train(agents, [1] * len(agents), plot=False)
    passed, done = marks[-1][0] - marks[2][0], marks[-1][1] - marks[2][1]
    return done / passed, 1000 * (passed - sum(updating[3:])) * envs / done


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, or cpu")
    parser.add_argument("--envs", type=int, nargs="+", default=[1024, 8192])
    parser.add_argument("--parts", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--seconds", type=float, default=4.0, help="of each rate")
    asked = parser.parse_args()
    print("| environments | parts | env steps/s | ms of a batch step |\n|---|---|---|---|")
    for envs in asked.envs:
        for parts in asked.parts:
            rate, spent = measured(asked.device, envs, parts, asked.seconds)
            print(f"| {envs:,} | {parts} | {rate:,.0f} | {spent:.3f} |", flush=True)


if __name__ == "__main__":
    main()
