"""How training scales with the number of runners: measured costs, a simulation, and its check at 1 to 3 runners.

    python benchmarks/scaling.py [--repeats 3] [--sleep 0.003] [--bandwidth 1.25e9] [--latency 2e-4]

The costs are measured with one runner and with two numbers of environments: seconds of acting and stepping, of an
update, of what the driver does besides, and bytes. Environments sleep, so that runners do not take each other's
processor. The simulation follows every fragment: its order, its collection, its way over the driver's link, its
processing, the update. It is compared with real runs at 1 to 3 runners, then it tells the rates of 8 to 1,024 runners
on 1 to 128 nodes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv

import marltrain as mt

STEPS, UPDATES = 64, 6
"""Batch steps of a rollout; updates of a measured run."""
SMALL, LARGE, CHECKED = 2, 8, 4
"""Environments of the runner in the two measurements, and of each runner in the comparison."""
PER_NODE, ENVS = 8, 8
"""Runners on a node, and environments of a runner, in the table."""
RUNNERS = (8, 16, 32, 64, 128, 256, 512, 1024)


class Sleeping(CartPoleEnv):
    """CartPole whose steps take a known time and no processor."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def step(self, action: Any) -> Any:
        """Sleep, then make the step."""
        time.sleep(self.seconds)
        return super().step(action)  # type: ignore[no-untyped-call]


class Clock(mt.Callback):
    """Measures the parts of each cycle, without the first one."""

    only_watches = True

    def __init__(self) -> None:
        self.cycles: list[tuple[float, float, float]] = []  # collecting, updating, all
        self.ended = self.began = 0.0

    def on_update_start(self, moment: Any) -> None:
        """Note the time."""
        self.began = time.perf_counter()

    def on_update_end(self, moment: Any) -> None:
        """Note the parts of the cycle that ends."""
        now, pace = time.perf_counter(), moment.trainer.run.collector._orders.seconds_per_step
        if self.ended:
            self.cycles.append((pace * STEPS, now - self.began, now - self.ended))
        self.ended = now

    def medians(self) -> tuple[float, float, float]:
        """Return the median seconds of collecting, of the update, and of whole cycles."""
        collect, update, cycle = (statistics.median(part) for part in zip(*self.cycles, strict=True))
        return collect, update, cycle


def measured(runners: int, envs: int, seconds: float) -> tuple[tuple[float, float, float], float, float]:
    """Train; return the medians of a cycle, the bytes that each env step takes, and the bytes of the weights.

    envs: environments of each runner.  seconds: of a step of an environment.
    """
    agents, clock, total = (
        mt.make_agents("ppo", Sleeping, env_args={"seconds": seconds}, seed=0),
        Clock(),
        runners * envs,
    )
    result = mt.DecentralizedTrainer(
        Sleeping, {"seconds": seconds}, seed=0, num_train_envs=total, update_freq=STEPS * total, runners=runners,
        updates_per_train=UPDATES, test_freq=None, run_dir=False, progress=False, callbacks=[clock],
    ).train(agents, [1], plot=False)  # fmt: skip
    received = result["bytes_from_runners"] / result["num_collected_steps"]
    return clock.medians(), received, result["bytes_to_runners"] / UPDATES


@dataclass(frozen=True)
class Costs:
    """Costs in seconds and bytes.

    act, step: of a batch step in a runner, and in addition of each of its environments.
    update, row: of an update, and in addition of each of its rows.
    order, record: of the driver for a rollout, and in addition for each env step.
    message: of the driver for one more runner.  received, weights: bytes of an env step, and of the weights.
    """

    act: float
    step: float
    update: float
    row: float
    order: float
    record: float
    message: float
    received: float
    weights: float

    @classmethod
    def measure(cls, seconds: float, repeats: int) -> Costs:
        """Measure with one runner; `message` is the time of a call of Ray."""
        small = [measured(1, SMALL, seconds) for _ in range(repeats)]
        large = [measured(1, LARGE, seconds) for _ in range(repeats)]

        def parts(runs: list[Any]) -> tuple[float, float, float]:
            collect, update, cycle = (statistics.median(run[0][i] for run in runs) for i in range(3))
            return collect, update, cycle - collect - update

        (collect, update, rest), (collects, updates, rests) = parts(small), parts(large)
        more = STEPS * (LARGE - SMALL)
        step, row, record = (max(b - a, 0.0) / more for a, b in ((collect, collects), (update, updates), (rest, rests)))
        return cls(
            collect / STEPS - SMALL * step, step, update - row * STEPS * SMALL, row,
            max(rest - record * STEPS * SMALL, 0.0), record, _call(), large[0][1], large[0][2],
        )  # fmt: skip


def _call() -> float:
    """Return the seconds of a call of a Ray actor that does nothing."""
    import ray

    from marltrain.processes.ray_token import ensure_token_file

    ensure_token_file()  # Ray would write it so that all users can read it
    ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False, _system_config={"worker_niceness": 0})
    actor = ray.remote(_Nothing).remote()
    ray.get(actor.nothing.remote())
    begun = time.perf_counter()
    for _ in range(200):
        ray.get(actor.nothing.remote())
    seconds = (time.perf_counter() - begun) / 200
    ray.shutdown()
    return seconds


class _Nothing:
    def nothing(self) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class Network:
    """The link of the driver: bytes per second, and seconds of a message; without limits by default."""

    bandwidth: float = float("inf")
    latency: float = 0.0


def simulate(costs: Costs, network: Network, runners: int, envs: int, lag: int, cycles: int = 40) -> float:
    """Return the env steps per second of training with a number of runners with `envs` environments each.

    lag: updates between the weights of a fragment and its use; 0: synchronous.
    """
    collect, rows = STEPS * (costs.act + envs * costs.step), STEPS * envs * runners
    learn = costs.update + costs.row * rows
    free = np.zeros(runners)  # when each runner has sent its last fragment
    done = [0.0]  # when each update ended
    sent = network.latency + costs.weights / network.bandwidth  # to one runner; the driver's link is busy
    size = costs.received * STEPS * envs / network.bandwidth
    for k in range(cycles):
        ordered = done[max(k - lag, 0)] + (costs.message + sent) * np.arange(1, runners + 1)
        free = np.maximum(ordered, free) + collect
        arrived = 0.0
        for ready in np.sort(free) + network.latency:  # one after another over the driver's link
            arrived = max(arrived, ready) + size
        used = max(arrived, done[-1])
        done.append(used + costs.order + costs.record * rows + learn)
    half = cycles // 2
    return rows * (cycles - half) / (done[-1] - done[half])


def check(costs: Costs, seconds: float, repeats: int) -> None:
    """Print the simulated and the real rates at 1 to 3 runners."""
    for runners in (1, 2, 3):
        cycle = statistics.median(measured(runners, CHECKED, seconds)[0][2] for _ in range(repeats))
        real, data = STEPS * CHECKED * runners / cycle, simulate(costs, Network(), runners, CHECKED, 0)
        print(f"{runners} runners: {real:,.0f} env steps/s, simulated {data:,.0f} ({data / real - 1:+.1%})", flush=True)


def table(costs: Costs, network: Network) -> None:
    """Print the simulated rates of many runners, and the share of time in which runners work."""
    alone = simulate(costs, network, 1, ENVS, 0)
    print("| runners | nodes | synchronous, env steps/s | of ideal | max_lag=1 | of ideal |\n|---|---|---|---|---|---|")
    for runners in RUNNERS:
        rates = [simulate(costs, network, runners, ENVS, lag) for lag in (0, 1)]
        cells = [f"{rate:,.0f} | {rate / (alone * runners):.2f}" for rate in rates]
        print(f"| {runners:,} | {-(-runners // PER_NODE)} | {' | '.join(cells)} |")


def main() -> None:
    """Measure, compare, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sleep", type=float, default=0.003, help="seconds of a step of an environment")
    parser.add_argument("--bandwidth", type=float, default=1.25e9, help="bytes per second of the driver's link")
    parser.add_argument("--latency", type=float, default=2e-4, help="seconds of a message between nodes")
    args = parser.parse_args()
    costs = Costs.measure(args.sleep, args.repeats)
    print(costs, flush=True)
    check(costs, args.sleep, args.repeats)
    table(costs, Network(args.bandwidth, args.latency))


if __name__ == "__main__":
    main()
