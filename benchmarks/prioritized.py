"""Times of prioritized replay: a sample of 256 rows with its columns, the update of their priorities, and a batch step.

    python benchmarks/prioritized.py [--entries 100000 1000000] [--python PYTHON --peer SCRIPT]
    python benchmarks/prioritized.py --training [--steps 100000]

Observations of 18 numbers; medians on one thread. The batch step is one of 16 environments and 3 players with a
prioritized agent each: the time that the trees take to follow the ring. SCRIPT prints the same of another library in
the environment of PYTHON; it gets the numbers of entries as arguments, and runs right after each of ours.

`--training`: env steps per processor second of compiled DQN in native games with uniform draws and with priorities, in
turn: 16 environments, 2x64 tanh, batches of 64 rows, an update of each agent every 4 env steps. Medians of 5 rounds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import time
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from gymnasium import spaces

import marltrain as mt
from marltrain.core.layout import Layout
from marltrain.core.spec import EnvSpec, PlayerSpec, Step
from marltrain.policies.memory import Storage, Streams
from marltrain.policies.memory.compiled.replay_kernel import CompiledReader, reader_of
from marltrain.policies.memory.needs import Needs

ROWS, SEEN = 256, spaces.Box(-1, 1, (18,), np.float32)
REPLAY = mt.Replay(10**9, 1, mt.Prioritized())
GAMES, ROUNDS = ("marltrain/CartPole-v1", "marltrain/simple_spread_v3"), 5


class Game:
    """Streams of a simultaneous game whose episodes do not end, full of rows."""

    def __init__(self, players: int, envs: int, entries: int) -> None:
        """Play until the ring of `entries` env steps is full."""
        seats = [PlayerSpec(str(p), SEEN, spaces.Discrete(5), Layout(SEEN), False) for p in range(players)]
        self.spec, self.rng = EnvSpec.of("benchmark", seats), np.random.default_rng(0)
        self.streams = Streams(self.spec, envs, {0: Storage(entries // envs)})
        self.step, self.action = Step.empty(self.spec, envs), np.zeros((players, envs), np.int64)
        self.step.turn[0][:] = True
        seen = self.step.obs[0]
        assert isinstance(seen, np.ndarray)
        seen[:] = self.rng.standard_normal((players, envs, 18))
        self.streams.record_step(self.step)
        for _ in range(entries // envs):
            self.go_on()

    def go_on(self) -> None:
        """Make a batch step."""
        self.streams.record_actions(0, self.action, {})
        self.streams.record_step(self.step)

    def reader(self, replay: mt.Replay | None) -> CompiledReader:
        """Return a reader with an agent for each player."""
        seats = [[p] for p in range(len(self.spec.players))]
        result = self.streams.reader(seats, Needs(False, replay=replay), reader_of)
        assert isinstance(result, CompiledReader)
        return result


def micros(work: Callable[[], object], times: int = 300) -> float:
    """Return the median time of a call, in microseconds."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return statistics.median(found) * 1e6


def sample_and_update(entries: int) -> None:
    """Print the times of one agent's samples and updates."""
    game, gamma = Game(1, 100, entries), np.array([0.99])
    reader, rngs = game.reader(REPLAY), [np.random.default_rng(1)]
    for _ in range(20):  # priorities of all sizes
        batch = reader.sample(rngs, gamma, entries // 20)
        batch.errors = game.rng.exponential(size=batch.weight.shape).astype(np.float32)
        reader.learned(batch)
    batch = reader.sample(rngs, gamma, ROWS)
    batch.errors = np.ones(batch.weight.shape, np.float32)
    sample = micros(lambda: reader.sample(rngs, gamma, ROWS))
    update = micros(lambda: reader.learned(batch))
    print(f"ours: {entries:,} entries: sample {sample:.0f} us, update {update:.0f} us", flush=True)


def batch_step() -> None:
    """Print the time that the trees take to follow a batch step."""
    game = Game(3, 16, 100_000)
    reader, found = game.reader(REPLAY), []
    for _ in range(500):
        game.go_on()
        start = time.perf_counter()
        reader.choice.size()
        found.append(time.perf_counter() - start)
    again = micros(reader.choice.size)  # the part that a uniform memory has, too
    print(f"ours: batch step of 16 environments x 3 players: {statistics.median(found) * 1e6 - again:.1f} us")


def training_rate(env: str, prioritized: mt.Prioritized | None, steps: int) -> float:
    """Return env steps per processor second of compiled DQN, without its first updates."""
    agents = mt.make_agents(
        "dqn", env, seed=0, network=mt.MLP((64, 64)), batch_size=64, update_per_step=0.25,
        memory=mt.Replay(50_000, prioritized=prioritized), jit_compile=True,
    )  # fmt: skip

    def train(env_steps: int) -> float:
        trainer = mt.DecentralizedTrainer(
            env, num_train_envs=16, update_freq=256, steps_per_train=env_steps, test_freq=None, seed=0, progress=False,
            run_dir=False,
        )  # fmt: skip
        start = time.process_time()
        trainer.train(agents, [1] * len(agents), plot=False)
        return time.process_time() - start

    train(5_000)
    return steps / train(steps)


def training(steps: int) -> None:
    """Print the rates of DQN with uniform draws and with priorities."""
    for env in GAMES:
        rates: dict[mt.Prioritized | None, list[float]] = {None: [], mt.Prioritized(): []}
        for _ in range(ROUNDS):
            for prioritized, found in rates.items():
                found.append(training_rate(env, prioritized, steps))
        uniform, ours = map(statistics.median, rates.values())
        print(
            f"{env}: uniform {uniform:,.0f} env steps/s, priorities {ours:,.0f}, ratio {ours / uniform:.2f}", flush=True
        )


def main() -> None:
    """Measure all sizes, or the training."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--python", help="the other library's Python")
    parser.add_argument("--peer", help="a script that prints the same of the other library")
    parser.add_argument("--training", action="store_true", help="rates of DQN")
    parser.add_argument("--steps", type=int, default=100_000, help="env steps of each training")
    arguments = parser.parse_args()
    if arguments.training:
        training(arguments.steps)
        return
    for entries in arguments.entries:
        sample_and_update(entries)
        if arguments.python and arguments.peer:
            subprocess.run([arguments.python, arguments.peer, str(entries)], check=True)
    batch_step()


if __name__ == "__main__":
    main()
