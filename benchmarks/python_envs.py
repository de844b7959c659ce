"""Speed on Python environments: training compared with bare environments, and two workers compared with one process.

    python benchmarks/python_envs.py [--seconds 10] [--rounds 3] [--overlap | --halves]

The environment is simple_spread. Floor: 16 environments step with random actions, without training. Training: PPO, 3
separate agents, 16 environments x 128 steps, 4 epochs x 4 minibatches, 2x64 networks; with learning, without tests and
progress. Measurements alternate over several rounds, so that ratios compare runs that are adjacent in time. Torch uses
one thread.
--overlap: collect="overlap" compared with "serial", in this process, with one worker and with two.
--halves: double_buffer=True compared with False, on simple_spread with two and four workers, and on environments whose
step only waits for WAIT seconds, like a simulator on another machine, with two, eight and 16 workers.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, ClassVar

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

import marltrain as mt
from marltrain.trainer.callbacks import Callback, Moment

ENV, ENV_ARGS, NUM_ENVS, STEPS = "mpe2/simple_spread_v3", {"N": 3}, 16, 128
PLACES: dict[str, tuple[str, int | None]] = {
    "one process": ("dummy", None), "one worker": ("subproc", 1), "two workers": ("subproc", 2),
}  # fmt: skip
"""Kind of vector environment and number of workers, by name."""
WAIT = 1e-3
"""Duration of a step of `Waiting` in seconds."""


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


class Waiting(ParallelEnv):  # type: ignore[misc]
    """An environment with the spaces and the length of simple_spread, whose steps only wait."""

    metadata: ClassVar[dict[str, Any]] = {"name": "waiting"}

    def __init__(self, N: int = 3) -> None:
        self.possible_agents = [f"agent_{i}" for i in range(N)]
        self._shown, self._choices = spaces.Box(-1, 1, (18,), np.float32), spaces.Discrete(5)

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """Return a box of 18 numbers."""
        return self._shown

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """Return five discrete actions."""
        return self._choices

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        """Begin an episode, without waiting."""
        self.agents, self._t = list(self.possible_agents), 0
        return self._seen(), {agent: {} for agent in self.agents}

    def step(self, actions: Any) -> Any:
        """Wait for WAIT seconds; every reward is 1."""
        time.sleep(WAIT)
        self._t += 1
        names, over = self.agents, self._t == 25
        self.agents = [] if over else names
        rewards, never = dict.fromkeys(names, 1.0), dict.fromkeys(names, False)
        return self._seen(), rewards, never, dict.fromkeys(names, over), {agent: {} for agent in names}

    def _seen(self) -> dict[str, Any]:
        return {agent: np.full(18, self._t / 25, np.float32) for agent in self.possible_agents}


def training(seconds: float, vector: str, workers: int | None = None, env: Any = ENV, **more: Any) -> float:
    """Return environment steps per second of training, including learning."""
    agents = mt.make_agents(
        "ppo", env, env_args=ENV_ARGS, seed=0, epochs=4, minibatches=4, update_freq=NUM_ENVS * STEPS,
        network=mt.MLP((64, 64)),
    )  # fmt: skip
    watch = Stopwatch(seconds)
    with tempfile.TemporaryDirectory() as folder:
        trainer = mt.DecentralizedTrainer(
            env, ENV_ARGS, num_train_envs=NUM_ENVS, num_test_envs=1, episodes_per_test=1, test_freq=10**9,
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


def compare_halves(seconds: float, rounds: int) -> None:
    """Print the speed of training with all environments stepped together, and with two halves stepped in turn."""
    cases = {("simple_spread", ENV): (2, 4), (f"waiting {WAIT * 1000:g} ms", Waiting): (2, 8, NUM_ENVS)}
    found: dict[str, list[float]] = {}
    for number in range(rounds):
        for (name, env), workers in ((case, workers) for case, counts in cases.items() for workers in counts):
            one, two = (training(seconds, "subproc", workers, env, double_buffer=half) for half in (False, True))
            place = f"{name}, {workers} workers"
            found.setdefault(place, []).append(two / one)
            print(f"round {number + 1}, {place}: together {one:,.0f}, in halves {two:,.0f} env steps/s", flush=True)
    for place, ratios in found.items():
        print(f"in halves / together, {place}: {spoken(ratios)}")


def spoken(ratios: list[float]) -> str:
    """Return a text with the median and the range."""
    return f"median {statistics.median(ratios):.2f} (from {min(ratios):.2f} to {max(ratios):.2f})"


def main() -> None:
    """Run the chosen comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--overlap", action="store_true", help='compare collect="overlap" with "serial" instead')
    instead.add_argument("--halves", action="store_true", help="compare double_buffer=True with False instead")
    args = parser.parse_args()
    compare = compare_collecting if args.overlap else compare_halves if args.halves else compare_places
    compare(args.seconds, args.rounds)


if __name__ == "__main__":
    main()
