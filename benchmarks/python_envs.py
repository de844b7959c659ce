"""Speed on Python environments: training compared with bare environments, and two workers compared with one process.

    python benchmarks/python_envs.py [--seconds 10] [--rounds 3] [--overlap]

The environment is simple_spread. Floor: 16 environments step with random actions, without training. Training: PPO, 3
separate agents, 16 environments x 128 steps, 4 epochs x 4 minibatches, 2x64 networks; with learning, without tests and
progress. Measurements alternate over several rounds, so that ratios compare runs that are adjacent in time. Torch uses
one thread.
--overlap: collect="overlap" compared with "serial", in this process, with one worker and with two.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import marltrain as mt
from marltrain.trainer.events.callbacks import Callback, Moment

ENV, ENV_ARGS, NUM_ENVS, STEPS = "mpe2/simple_spread_v3", {"N": 3}, 16, 128
PLACES: dict[str, tuple[str, int | None]] = {
    "one process": ("dummy", None), "one worker": ("subproc", 1), "two workers": ("subproc", 2),
}  # fmt: skip
"""Kind of vector environment and number of workers, by name."""


def floor(seconds: float) -> float:
    """Return environment steps per second of the bare environments with random actions."""
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
    """Measures environment steps per second for a number of seconds after the first update."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.rate = seconds, 0.0
        self.start: tuple[float, int] | None = None

    def on_update_end(self, moment: Moment) -> None:
        """Start the clock after the first update; stop training when the time is over."""
        now = time.perf_counter()
        if self.start is None:
            self.start = (now, moment.env_steps)
        elif now - self.start[0] >= self.seconds:
            self.rate = (moment.env_steps - self.start[1]) / (now - self.start[0])
            moment.stop("measured")


def training(seconds: float, vector: str, workers: int | None = None, **more: Any) -> float:
    """Return environment steps per second of training, including learning."""
    agents = mt.make_agents(
        "ppo", ENV, env_args=ENV_ARGS, seed=0, epochs=4, minibatches=4, update_freq=NUM_ENVS * STEPS,
        network=mt.MLP((64, 64)),
    )  # fmt: skip
    watch = Stopwatch(seconds)
    with tempfile.TemporaryDirectory() as folder:
        trainer = mt.DecentralizedTrainer(
            ENV, ENV_ARGS, num_train_envs=NUM_ENVS, num_test_envs=1, episodes_per_test=1, test_freq=10**9,
            steps_per_train=10**9, vector=vector, num_workers=workers, seed=0, callbacks=[watch],
            run_dir=Path(folder) / "run", progress=False, **more,
        )  # fmt: skip
        trainer.train(agents, [1, 1, 1], plot=False)
    return watch.rate


def compare_places(seconds: float, rounds: int) -> None:
    """Print the speed of bare environments, of training in this process, and of training with two workers."""
    rows = []
    for number in range(rounds):
        bare, one = floor(seconds), training(seconds, "dummy")
        two = training(seconds, "subproc", 2)
        rows.append((bare, one, two))
        print(f"round {number + 1}: floor {bare:,.0f}, training {one:,.0f} ({one / bare:.2f} of the floor), "
              f"two workers {two:,.0f} ({two / one:.2f} x one process) env steps/s", flush=True)  # fmt: skip
    for name, ratios, wanted in (
        ("training / floor", [one / bare for bare, one, _ in rows], 0.75),
        ("two workers / one process", [two / one for _, one, two in rows], 1.5),
    ):
        print(f"{name}: {spoken(ratios)}; wanted at least {wanted}")


def compare_collecting(seconds: float, rounds: int) -> None:
    """Print the speed of training with learning after collecting ("serial") and during collecting ("overlap")."""
    found: dict[str, list[float]] = {place: [] for place in PLACES}
    for number in range(rounds):
        for place, where in PLACES.items():
            serial, overlap = (training(seconds, *where, collect=collect) for collect in ("serial", "overlap"))
            found[place].append(overlap / serial)
            print(f"round {number + 1}, {place}: serial {serial:,.0f}, overlap {overlap:,.0f} env steps/s", flush=True)
    for place, ratios in found.items():
        print(f"overlap / serial, {place}: {spoken(ratios)}")


def spoken(ratios: list[float]) -> str:
    """Return a text with the median and the range."""
    return f"median {statistics.median(ratios):.2f} (from {min(ratios):.2f} to {max(ratios):.2f})"


def main() -> None:
    """Run the chosen comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--overlap", action="store_true", help='compare collect="overlap" with "serial" instead')
    args = parser.parse_args()
    compare = compare_collecting if args.overlap else compare_places
    compare(args.seconds, args.rounds)


if __name__ == "__main__":
    main()
