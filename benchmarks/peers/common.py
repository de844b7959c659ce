"""Code common to all runs of the comparison: the work, the stopwatch and the line of JSON.

W1: PPO, 3 players on simple_spread_v3, 16 environments x 128 steps, 4 epochs x 4 minibatches, actor and critic of 2x64
    tanh each.
W4: the same with 8 players.
W2: independent double DQN, 3 players, one environment, a gradient step of 64 rows per player every 4 environment
    steps, 2x64 relu.
W3: PPO on CartPole-v1, 8 environments, until the last 100 training episodes have a mean return of 475.
W5: MAPPO: W1 with central critics, which read the global state (the observations of all players, 54 numbers). Values
    are not normalized.
W6: QMIX: W2 with one reward, the mean of the players', and a mixing network of 32 units, whose weights are made from
    the global state by networks with a hidden layer of 64 units.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import time
from dataclasses import dataclass
from typing import Any

PLAYERS = {"W1": 3, "W2": 3, "W3": 1, "W4": 8, "W5": 3, "W6": 3}
ENVS = {"W1": 16, "W2": 1, "W3": 8, "W4": 16, "W5": 16, "W6": 1}
OF_Q_LEARNING = ("W2", "W6")

GAMMA, WIDTH = 0.99, 64
STEPS, EPOCHS, MINIBATCHES = 128, 4, 4
PPO_RATE, LAMBDA, CLIP, ENTROPY, VALUE, MAX_NORM = 3e-4, 0.95, 0.2, 0.01, 0.5, 0.5
DQN_RATE, REPLAY, ROWS, EVERY, LEARNING_STARTS, TARGET_EVERY = 1e-3, 50_000, 64, 4, 1_000, 500
EPSILON, EPSILON_STEPS = 0.05, 10_000
MIXING_UNITS, HYPER_UNITS = 32, 64
CARTPOLE_STEPS, CARTPOLE_RETURN = 200_000, 475.0
CARTPOLE = {
    "steps": 32, "epochs": 20, "rows": 256, "learning_rate": 1e-3, "gamma": 0.98, "gae_lambda": 0.8, "clip": 0.2,
    "entropy": 0.0, "decay_steps": 100_000,
}  # fmt: skip
"""RL Zoo's settings for PPO on CartPole-v1; learning rate and clip decay to zero over decay_steps."""


@dataclass(frozen=True)
class Task:
    """The work of a run. seconds: duration of the measurement, after the first update. runners: see `add_runners`."""

    work: str
    players: int
    envs: int
    seconds: float
    seed: int
    runners: int = 0


def parser_of(about: str | None, works: tuple[str, ...]) -> argparse.ArgumentParser:
    """Return the parser of the command line common to all runs."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", choices=works)
    parser.add_argument("--seconds", type=float, default=30.0, help="of measuring, after the first update")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processor", action="store_true", help="processor time of this process, not of the clock")
    return parser


def add_runners(parser: argparse.ArgumentParser) -> None:
    """Add the option of W1 with environments in other processes."""
    parser.add_argument("--runners", type=int, default=0, help="Ray actors that collect; 0: this process")


def task_of(about: str | None, *works: str, parser: argparse.ArgumentParser | None = None) -> Task:
    """Read the task from the command line.  parser: with more options; None: the common ones."""
    args = (parser or parser_of(about, works)).parse_args()
    WATCH.start_clock(processor=args.processor)
    return Task(args.work, PLAYERS[args.work], ENVS[args.work], args.seconds, args.seed, getattr(args, "runners", 0))


class Over(Exception):  # noqa: N818
    """Raised when the time is over, to leave a peer's training loop that offers no other way to stop."""


class Stopwatch:
    """Counts environment steps and finished episodes, and measures the time between the ends of updates.

    The time before the end of the first update (building, compiling, filling a replay buffer) is the set-up time.
    """

    def __init__(self) -> None:
        self.start_clock(processor=False)
        self.steps = 0
        self.returns: list[float] = []
        self.first: tuple[float, int] | None = None
        self.last: tuple[float, int] | None = None

    def start_clock(self, *, processor: bool) -> None:
        """Start the set-up time.  processor: measure processor time, which other programs disturb less."""
        self.clock = time.process_time if processor else time.perf_counter
        self.made = self.clock()

    def start(self) -> None:
        """Start the measurement now and discard earlier counts."""
        self.steps, self.returns = 0, []
        self.first = (self.clock(), 0)

    def lap(self, seconds: float) -> bool:
        """Record the end of an update; return whether the measurement has lasted for `seconds`."""
        now = self.clock()
        if self.first is None:
            self.first = (now, self.steps)
            return False
        self.last = (now, self.steps)
        return now - self.first[0] >= seconds

    def recent(self) -> float:
        """Return the mean return of the last 100 episodes; nan before the first episode."""
        last = self.returns[-100:]
        return sum(last) / len(last) if last else float("nan")

    def solved(self) -> bool:
        """Return whether cart-pole is solved."""
        return len(self.returns) >= 100 and self.recent() >= CARTPOLE_RETURN

    def spent(self) -> bool:
        """Record the current time of a run on cart-pole; return whether it is solved or out of steps."""
        self.lap(0.0)
        return self.solved() or self.steps >= CARTPOLE_STEPS


WATCH = Stopwatch()
"""The stopwatch of this process; environments report to it even after a peer has pickled them."""


def report(peer: str, task: Task, packages: tuple[str, ...], **more: Any) -> None:
    """Print one line of JSON.

    env_steps_per_s: measured between updates.  setup_s: from the start of building to the end of the first update.
    return_mean: mean return of a player, over the last 100 training episodes.
    """
    if WATCH.first is None or WATCH.last is None:
        raise RuntimeError(f"{peer}: no second update ended, so there is nothing to measure")
    steps, seconds = WATCH.last[1] - WATCH.first[1], WATCH.last[0] - WATCH.first[0]
    line = {
        "peer": peer, "work": task.work, "agents": task.players, "envs": task.envs, "seed": task.seed,
        "env_steps": steps, "seconds": round(seconds, 2), "env_steps_per_s": round(steps / seconds, 1),
        "setup_s": round(WATCH.first[0] - WATCH.made, 2), "episodes": len(WATCH.returns),
        "return_mean": round(WATCH.recent(), 2) if WATCH.returns else None,
        **({"solved": WATCH.solved()} if task.work == "W3" else {}), **more,
        "versions": {name: importlib.metadata.version(name) for name in packages},
    }  # fmt: skip
    print(json.dumps(line), flush=True)
