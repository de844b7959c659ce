"""Speed on Python environments: training on simple_spread against the floor, and two workers against one process.

    python benchmarks/python_envs.py [--seconds 10] [--rounds 3]

Floor: 16 environments step with random actions and nothing else. Training: PPO, 3 separate agents, 16 environments x
128 steps, 4 epochs x 4 minibatches, 2x64 networks, learning included, tests and progress left out. Everything runs in
turn, several rounds, and ratios are of neighbours in time; torch uses one thread.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import marltrain as mt
from marltrain.trainer.hooks import Callback, Moment

ENV, ENV_ARGS, NUM_ENVS, STEPS = "mpe2/simple_spread_v3", {"N": 3}, 16, 128


def floor(seconds: float) -> float:
    """Return env steps a second of the bare environments under random actions."""
    from mpe2 import simple_spread_v3

    envs = [simple_spread_v3.parallel_env(**ENV_ARGS) for _ in range(NUM_ENVS)]
    for i, env in enumerate(envs):
        env.reset(seed=i)
        for player in env.agents:
            env.action_space(player).seed(i)
    steps, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        for env in envs:
            env.step({player: env.action_space(player).sample() for player in env.agents})
            if not env.agents:
                env.reset()
            steps += 1
    return steps / (time.perf_counter() - start)


class Stopwatch(Callback):
    """Measures env steps a second from the end of the first update on, for so many seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.rate = seconds, 0.0
        self.start: tuple[float, int] | None = None

    def on_update_end(self, moment: Moment) -> None:
        """Start after the first update; stop when the time is over."""
        now = time.perf_counter()
        if self.start is None:
            self.start = (now, moment.env_steps)
        elif now - self.start[0] >= self.seconds:
            self.rate = (moment.env_steps - self.start[1]) / (now - self.start[0])
            moment.stop("measured")


def training(seconds: float, vector: str, workers: int | None = None) -> float:
    """Return env steps a second of training, learning included."""
    agents = mt.make_agents(
        "ppo", ENV, env_args=ENV_ARGS, seed=0, epochs=4, minibatches=4, update_freq=NUM_ENVS * STEPS,
        network=mt.MLP((64, 64)),
    )  # fmt: skip
    watch = Stopwatch(seconds)
    with tempfile.TemporaryDirectory() as folder:
        trainer = mt.DecentralizedTrainer(
            ENV, ENV_ARGS, num_train_envs=NUM_ENVS, num_test_envs=1, episodes_per_test=1, test_freq=10**9,
            steps_per_train=10**9, vector=vector, num_workers=workers, seed=0, callbacks=[watch],
            run_dir=Path(folder) / "run", progress=False,
        )  # fmt: skip
        trainer.train(agents, [1, 1, 1], plot=False)
    return watch.rate


def main() -> None:
    """Measure in turn and print rates and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    rows = []
    for number in range(args.rounds):
        bare, one = floor(args.seconds), training(args.seconds, "dummy")
        two = training(args.seconds, "subproc", 2)
        rows.append((bare, one, two))
        print(f"round {number + 1}: floor {bare:,.0f}, training {one:,.0f} ({one / bare:.2f} of the floor), "
              f"two workers {two:,.0f} ({two / one:.2f} x one process) env steps/s", flush=True)  # fmt: skip
    for name, ratios, wanted in (
        ("training / floor", [one / bare for bare, one, _ in rows], 0.75),
        ("two workers / one process", [two / one for _, one, two in rows], 1.5),
    ):
        low, middle, high = min(ratios), statistics.median(ratios), max(ratios)
        print(f"{name}: median {middle:.2f} (from {low:.2f} to {high:.2f}); wanted at least {wanted}")


if __name__ == "__main__":
    main()
