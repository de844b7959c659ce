"""Env steps/s of algorithms with continuous actions, in one thread.

    python benchmarks/continuous.py [--steps 3000] [--plain] [--python PATH] [--native]
    python benchmarks/continuous.py --ppo [--steps 400000] [--plain]

SAC and TD3 on gymnasium/Pendulum-v1: one environment, one update an env step. Two sizes: 2x64 relu networks with
batches of 64 rows, and 2x256 with 256. Compiled passes (`jit_compile=True`) after 600 env steps of warm-up, in which
the programs are recorded; `--plain` measures passes that are not compiled. In turn with them, Stable-Baselines3 (torch)
and SBX (JAX) with the same settings, as far as they are installed in the Python of `--python` (by default this one).
Rates by the clock, and by processor time, which other load disturbs less. What compiling has left behind is collected
before the clock starts, in each library: a single collection takes as long as hundreds of steps. `--native`: ours in
marltrain/Pendulum-v1, whose updates are made inside of the call that steps the environment; the peers as before.

`--ppo`: PPO in native games with continuous actions, in turn with the same in games with discrete ones: Pendulum beside
CartPole, and simple_spread with both kinds of actions. The first third of the steps is warm-up.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import subprocess
import sys
import time
from typing import Any, ClassVar

os.environ.setdefault("OMP_NUM_THREADS", "1")

ENV, FIRST, WARM = "Pendulum-v1", 300, 600
SIZES = ((64, 64), (256, 256))
GAMES: tuple[tuple[str, dict[str, bool]], ...] = (
    ("marltrain/CartPole-v1", {}),
    ("marltrain/Pendulum-v1", {}),
    ("marltrain/simple_spread_v3", {}),
    ("marltrain/simple_spread_v3", {"continuous_actions": True}),
)
MODULES = {"sb3": "stable_baselines3", "sbx": "sbx"}


def ours(env: str, algo: str, width: int, batch: int, steps: int, *, compiled: bool) -> tuple[float, float]:
    """Return seconds by the clock and of the processor for `steps` env steps of ours."""
    import marltrain as mt

    class Clock(mt.Callback):
        """Reads both clocks at the first end of an episode after the warm-up, and at the end of training."""

        only_watches = True  # batch steps stay in compiled calls
        moments: ClassVar[list[tuple[float, float]]] = []

        def on_episode_end(self, moment: mt.Moment) -> None:
            if not self.moments and moment.env_steps >= WARM:
                gc.collect()
                self.moments.append((time.perf_counter(), time.process_time()))

        def on_train_end(self, moment: mt.Moment) -> None:  # before the tables of the result, which load pandas
            self.moments.append((time.perf_counter(), time.process_time()))

    agents = mt.make_agents(
        algo, env, seed=0, network=mt.MLP((width, width), "relu"), batch_size=batch, learning_starts=FIRST,
        capacity=100_000, jit_compile=compiled,
    )  # fmt: skip
    trainer = mt.DecentralizedTrainer(
        env, num_train_envs=1, test_freq=None, steps_per_train=WARM + steps, run_dir=False, progress=False, seed=0,
        callbacks=[Clock()],
    )  # fmt: skip
    trainer.train(agents, [1], plot=False)
    (wall, processor), (wall_end, processor_end) = Clock.moments
    return wall_end - wall, processor_end - processor


def peer(library: str, algo: str, width: int, batch: int, steps: int) -> tuple[float, float]:
    """Return the same of a peer, which must be installed."""
    module: Any = importlib.import_module(MODULES[library])
    if library == "sb3":
        importlib.import_module("torch").set_num_threads(1)
    env = importlib.import_module("gymnasium").make(ENV)
    model = getattr(module, algo.upper())(
        "MlpPolicy", env, learning_starts=FIRST, batch_size=batch, buffer_size=100_000, train_freq=1, gradient_steps=1,
        policy_kwargs={"net_arch": [width, width]}, seed=0, verbose=0,
    )  # fmt: skip
    model.learn(WARM)
    gc.collect()
    wall, processor = time.perf_counter(), time.process_time()
    model.learn(steps, reset_num_timesteps=False)
    return time.perf_counter() - wall, time.process_time() - processor


def ppo(game: int, steps: int, *, compiled: bool) -> tuple[float, float]:
    """Return seconds by the clock and of the processor for two thirds of `steps` env steps of PPO in a native game."""
    import marltrain as mt

    started: list[tuple[float, float]] = []

    def start(moment: mt.Moment) -> None:
        if not started and moment.env_steps >= steps // 3:
            started.append((time.perf_counter(), time.process_time()))

    env, args = GAMES[game]
    agents = mt.make_agents("ppo", env, env_args=args, seed=0, network=mt.MLP((64, 64)), jit_compile=compiled)
    trainer = mt.DecentralizedTrainer(
        env, env_args=args, num_train_envs=64, update_freq=8192, batch_size=2048, test_freq=None, seed=0,
        steps_per_train=steps, run_dir=False, progress=False, callbacks=[mt.LambdaCallback(on_update_end=start)],
    )  # fmt: skip
    trainer.train(agents, [1] * len(agents), plot=False)
    wall, processor = started[0]
    return time.perf_counter() - wall, time.process_time() - processor


def measured(
    python: str, name: str, algo: str, width: int, batch: int, steps: int, *, native: bool = False
) -> tuple[float, float] | None:
    """Run one measurement in a process of its own; None if the library is not installed there."""
    if name in MODULES:
        probe = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({MODULES[name]!r}) is None)"
        if subprocess.run([python, "-c", probe], check=False).returncode:
            return None
    command = [python, __file__, "--one", name, algo, str(width), str(batch), "--steps", str(steps)]
    command += ["--native"] * native
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    wall, processor = json.loads(done.stdout.splitlines()[-1])
    return wall, processor


def print_rate(label: str, steps: int, seconds: tuple[float, float] | None) -> None:
    """Print the rates of a measurement of (seconds by the clock, seconds of the processor)."""
    if seconds is None:
        print(f"{label}: not installed")
        return
    wall, processor = seconds
    print(f"{label}: {steps / wall:.0f} env steps/s, {steps / processor:.0f} per processor second")


def main() -> None:
    """Print a line for each library, algorithm and size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--ppo", action="store_true")
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--native", action="store_true")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        name, algo, width, batch = given.one[0], given.one[1], int(given.one[2]), int(given.one[3])
        if algo == "ppo":
            print(json.dumps(ppo(width, given.steps, compiled=name == "compiled")))
        elif name in MODULES:
            print(json.dumps(peer(name, algo, width, batch, given.steps)))
        else:
            env = f"{'marltrain' if given.native else 'gymnasium'}/{ENV}"
            print(json.dumps(ours(env, algo, width, batch, given.steps, compiled=name != "plain")))
        return
    own = "plain" if given.plain else "compiled"
    steps = given.steps or (400_000 if given.ppo else 3000)
    if given.ppo:
        for game, (env, args) in enumerate(GAMES):
            seconds = measured(sys.executable, own, "ppo", game, 0, steps)
            label = f"ppo {own} {env}{' with continuous actions' if args else ''}"
            print_rate(label, 2 * steps // 3, seconds)
        return
    for algo in ("sac", "td3"):
        for width, batch in SIZES:
            for name in (own, *MODULES):
                python = given.python if name in MODULES else sys.executable
                seconds = measured(python, name, algo, width, batch, steps, native=given.native)
                print_rate(f"{algo} 2x{width} batch {batch} {name}", steps, seconds)


if __name__ == "__main__":
    main()
