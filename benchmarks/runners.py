"""Rates of training with runners beside one process, and learning with a lag beside learning without one.

    python benchmarks/runners.py [--jit-compile] [--envs 8] [--updates 6] [--repeats 5] [--only one two uneven]
    python benchmarks/runners.py --learn [--seeds 5] [--only "PPO, lag 4"] [--lag-kl 0.1]

Rates: PPO; env steps per second from the end of the first update to the end of the last one, by the wall clock. Runs of
the two sides alternate, and the ratio is the median of those of neighboring runs; other programs disturb them all.

one     mpe2/simple_spread_v3, one synchronous runner beside one process; also the processor time of the driver and the
        runner beside that of one process
two     the same, two synchronous runners beside one process
uneven  CartPole, two runners, asynchronous beside synchronous; one of the environments sleeps 2 ms in each step

Learning: CartPole with the settings of `mt.tuned`, and simple_spread ("spread", the native game). A greedy test of 20
episodes each 5,000 env steps (20,000 on simple_spread) gives a curve; the weights at the end play 100 other episodes.
Means over seeds with 95 % bootstrap intervals, and the mean variance of the importance ratios of rollouts.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Iterable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv

import marltrain as mt
from marltrain.core.seeds import child_seed
from marltrain.processes.ray_actors import Cluster
from marltrain.trainer.evaluating.evaluation import bootstrap

SPREAD, NATIVE_SPREAD, CARTPOLE = "mpe2/simple_spread_v3", "marltrain/simple_spread_v3", "marltrain/CartPole-v1"
ROLLOUT, EPISODES = 2_048, 20
EVERY = {CARTPOLE: 5_000, NATIVE_SPREAD: 20_000}
"""Env steps between two tests."""
TICK = os.sysconf("SC_CLK_TCK")


class Uneven(CartPoleEnv):
    """CartPole; the environment whose first episode has the seed `sleeper` sleeps 2 ms in each step."""

    def __init__(self, sleeper: int) -> None:
        super().__init__()
        self.sleeper = sleeper
        self.sleeps: bool | None = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Decide in the first reset whether this is the environment that sleeps."""
        if self.sleeps is None:
            self.sleeps = seed == self.sleeper
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        """Sleep, or do not."""
        if self.sleeps:
            time.sleep(0.002)
        return super().step(action)  # type: ignore[no-untyped-call]


class Rate(mt.Callback):
    """Notes env steps, time and processor time at the end of every update."""

    only_watches = True

    def __init__(self) -> None:
        self.notes: list[tuple[int, float, float]] = []
        self.pids: list[int] = []

    def on_update_end(self, moment: Any) -> None:
        """Note the numbers; the runners are asked for their processes once."""
        pool = getattr(moment.trainer.run.context.envs, "pool", None)
        if pool is not None and not self.pids:
            calls = [actor._handle.__ray_call__.remote(lambda self: os.getpid()) for actor in pool._actors]
            self.pids = pool._cluster.ray.get(calls)
        self.notes.append((moment.env_steps, time.perf_counter(), time.process_time() + sum(map(cpu, self.pids))))

    def per_second(self, clock: int) -> float:
        """Return env steps per second of a clock: 1, time; 2, processor time."""
        first, last = self.notes[0], self.notes[-1]
        return (last[0] - first[0]) / (last[clock] - first[clock])


def cpu(pid: int) -> float:
    """Return the processor time of a process in seconds."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def rate(env: Any, envs: int, updates: int, jit_compile: bool, **settings: Any) -> Rate:
    """Train PPO for a number of updates; return what was noted."""
    env_args = {"sleeper": child_seed(0, "episode", "train", 0, 0)} if env is Uneven else None
    agents = mt.make_agents("ppo", env, env_args=env_args, seed=0, jit_compile=jit_compile)
    noted = Rate()
    trainer = mt.DecentralizedTrainer(
        env, env_args, seed=0, num_train_envs=envs, update_freq=ROLLOUT, updates_per_train=updates, test_freq=None,
        run_dir=False, progress=False, callbacks=[noted], **settings,
    )  # fmt: skip
    trainer.train(agents, [1] * len(agents), plot=False)
    return noted


RATES: dict[str, tuple[str, Any, dict[str, Any], dict[str, Any]]] = {
    "one": ("one runner / one process", SPREAD, {"runners": 1}, {}),
    "two": ("two runners / one process", SPREAD, {"runners": 2}, {}),
    "uneven": ("asynchronous / synchronous", Uneven, {"runners": 2, "sync": False}, {"runners": 2}),
}


def print_rates(names: Iterable[str], repeats: int, **given: Any) -> None:
    """Print the rates of both sides and the median ratio; given: envs, updates and jit_compile of `rate`."""
    for name in names:
        what, env, *sides = RATES[name]
        noted = [tuple(rate(env, **given, **side) for side in sides) for _ in range(repeats)]
        for clock, unit in ((1, "second"), (2, "second of processor time")):
            pairs = [tuple(each.per_second(clock) for each in pair) for pair in noted]
            ratios = [a / b for a, b in pairs]
            ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
            print(
                f"{what}: {ours:,.0f} / {theirs:,.0f} env steps per {unit}, {statistics.median(ratios):.2f} x "
                f"({min(ratios):.2f} to {max(ratios):.2f})",
                flush=True,
            )


LAGS: dict[str, tuple[str, str, dict[str, Any], int | None]] = {
    "PPO": (CARTPOLE, "ppo", {}, None),
    "PPO, lag 4": (CARTPOLE, "ppo", {}, 4),
    "PPO, lag 4, not corrected": (CARTPOLE, "ppo", {"lag_correction": False}, 4),
    "PPO, lag 16": (CARTPOLE, "ppo", {}, 16),
    "PPO, lag 16, not corrected": (CARTPOLE, "ppo", {"lag_correction": False}, 16),
    "DQN": (CARTPOLE, "dqn", {}, None),
    "DQN, lag 4": (CARTPOLE, "dqn", {}, 4),
    "PPO, spread": (NATIVE_SPREAD, "ppo", {}, None),
    "PPO, spread, lag 1": (NATIVE_SPREAD, "ppo", {}, 1),
    "PPO, spread, lag 4": (NATIVE_SPREAD, "ppo", {}, 4),
    "PPO, spread, lag 4, not corrected": (NATIVE_SPREAD, "ppo", {"lag_correction": False}, 4),
    "DQN, spread": (NATIVE_SPREAD, "dqn", {}, None),
    "DQN, spread, lag 4": (NATIVE_SPREAD, "dqn", {}, 4),
}
"""(Environment, algorithm, settings of the agents, lag); None: one process."""


def settings_of(env: str, algorithm: str) -> dict[str, Any]:
    """Return the settings of agents and trainer: the tuned ones where there are some."""
    if env == CARTPOLE:
        return mt.tuned(algorithm, "gymnasium/CartPole-v1")
    if algorithm == "ppo":
        return mt.tuned(algorithm, SPREAD)
    steps = 200_000
    return {
        "agents": {
            "learning_rate": 5e-4, "gamma": 0.95, "epsilon": mt.linear(1.0, 0.05, steps // 2), "capacity": 100_000,
            "learning_starts": 2_000, "update_per_step": 0.125, "target_sync": 200,
        },
        "trainer": {"num_train_envs": 16, "update_freq": 256, "steps_per_train": steps},
    }  # fmt: skip


def learned(name: str, seed: int, lag_kl: float | None) -> tuple[float, float, float]:
    """Train; return the mean return of the curve, that of the final test, and the mean variance of the ratios.

    lag_kl: setting of PPO where the lag is corrected; None: its default.
    """
    env, algorithm, settings, lag = LAGS[name]
    known = settings_of(env, algorithm)
    if lag_kl is not None and algorithm == "ppo" and "lag_correction" not in settings:
        settings = {**settings, "lag_kl": lag_kl}
    agents = mt.make_agents(algorithm, env, seed=seed, jit_compile=True, **known["agents"], **settings)
    own = known["trainer"] | {"test_freq": None, "test_freq_steps": EVERY[env]}
    own |= {"episodes_per_test": EPISODES, "num_test_envs": EPISODES}
    own |= {} if lag is None else {"runners": 1, "sync": False, "max_lag": lag}
    result = mt.DecentralizedTrainer(env, seed=seed, run_dir=False, progress=False, **own).train(
        agents, [1] * len(agents), plot=False
    )
    history = result["history"].iloc[1:]  # the first test is before training
    variances = [history[name].mean() for name in history.columns if name.endswith("/ratio_variance")]
    final = mt.DecentralizedTrainer(env, num_test_envs=EPISODES, seed=10**6 + seed, run_dir=False, progress=False)
    last = final.test(agents, episodes=100).returns.mean()
    return float(history["metric"].mean()), float(last), float(np.mean(variances)) if variances else 0.0


def print_learning(names: Iterable[str], seeds: int, lag_kl: float | None) -> None:
    """Print a line of a table for each variant."""
    print(
        "| agent | mean of the curve | 95 % interval | at the end, seeds | mean | 95 % interval | variance of ratios |"
    )
    print("|---|---|---|---|---|---|---|")
    for name in names:
        curves, finals, variances = np.array([learned(name, seed, lag_kl) for seed in range(seeds)]).T
        spans = [f"{m.mean():.1f} | {' to '.join(f'{end:.1f}' for end in bootstrap(m))}" for m in (curves, finals)]
        each = " ".join(f"{value:.1f}" for value in finals)
        print(f"| {name} | {spans[0]} | {each} | {spans[1]} | {variances.mean():.3f} |", flush=True)


def main() -> None:
    """Print rates or learning."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--learn", action="store_true")
    parser.add_argument("--jit-compile", action="store_true", help="rates of compiled agents")
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--updates", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--lag-kl", type=float, help="another lag_kl of PPO where the lag is corrected")
    parser.add_argument("--only", nargs="+", choices=[*RATES, *LAGS])
    given = parser.parse_args()
    cluster = Cluster("local")  # for all runs
    if given.learn:
        print_learning([name for name in LAGS if name in (given.only or LAGS)], given.seeds, given.lag_kl)
    else:
        names = [name for name in RATES if name in (given.only or RATES)]
        sides = {"envs": given.envs, "updates": given.updates, "jit_compile": given.jit_compile}
        print_rates(names, given.repeats, **sides)
    cluster.close()


if __name__ == "__main__":
    main()
