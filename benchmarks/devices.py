"""Training rates on the CPU and on a GPU by the size of the network, beside the choice of device="auto".

    OMP_NUM_THREADS=1 python benchmarks/devices.py [--seconds 10] [--only dqn]

One agent in environments that return random observations: DQN with batches of 32 rows, one environment and a gradient
step every four env steps; PPO with 16 environments, rollouts of 2,048 rows, 4 epochs of 4 minibatches. A rate is env
steps per second of wall time with learning, after a warm-up of a fifth of the time. Without a GPU, the rates of the CPU
and the choice as if there were one are printed.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import gymnasium as gym
import numpy as np
import torch

import marltrain as mt
from marltrain.policies.agents.placement import ROWS, largest, limit

VECTOR, BOARD, SCREEN = (32,), (8, 8, 17), (84, 84, 4)
SMALL, NATURE = ((32, 3, 1), (32, 3, 1)), ((32, 8, 4), (64, 4, 2), (64, 3, 1))
NETWORKS: dict[str, tuple[tuple[int, ...], Any]] = {
    "2x64": (VECTOR, mt.MLP((64, 64), "relu")),
    "2x256": (VECTOR, mt.MLP((256, 256), "relu")),
    "2x512": (VECTOR, mt.MLP((512, 512), "relu")),
    "2x1024": (VECTOR, mt.MLP((1024, 1024), "relu")),
    "2x2048": (VECTOR, mt.MLP((2048, 2048), "relu")),
    "CNN() on 8x8x17": (BOARD, mt.CNN()),
    "2 convolutions of 3x3 on 8x8x17": (BOARD, mt.CNN((128,), filters=SMALL)),
    "3 convolutions on 84x84x4": (SCREEN, mt.CNN((512,), filters=NATURE)),
}
ALGORITHMS: dict[str, dict[str, Any]] = {
    "dqn": {"batch_size": 32, "learning_starts": 64, "capacity": 2_000, "update_per_step": 0.25},
    "ppo": {"epochs": 4, "minibatches": 4},
}


class Noise(gym.Env[Any, Any]):
    """Random observations and rewards; episodes of 200 steps."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        rng = np.random.default_rng(0)
        if len(shape) == 1:
            self.observation_space: gym.Space[Any] = gym.spaces.Box(-1, 1, shape, np.float32)
            self._pool: Any = rng.uniform(-1, 1, (64, *shape)).astype(np.float32)
        else:
            self.observation_space = gym.spaces.Box(0, 255, shape, np.uint8)
            self._pool = rng.integers(0, 256, (64, *shape), np.uint8)
        self.action_space = gym.spaces.Discrete(6)
        self._time = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """See Gymnasium."""
        super().reset(seed=seed)
        self._time = 0
        return self._pool[0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """See Gymnasium."""
        self._time += 1
        return self._pool[self._time % 64], float(action == self._time % 6), False, self._time >= 200, {}


def rate(algorithm: str, network: str, device: str, seconds: float) -> float:
    """Return env steps per second of training on a device."""
    shape, spec = NETWORKS[network]
    agents = mt.make_agents(algorithm, Noise, env_args={"shape": shape}, seed=0, network=spec, device=device,
                            **ALGORITHMS[algorithm])  # fmt: skip
    marks: list[tuple[float, int]] = []

    def mark(moment: Any) -> None:
        marks.append((time.perf_counter(), moment.env_steps))
        if marks[-1][0] - marks[0][0] > seconds and len(marks) > 3:
            moment.stop("measured")

    trainer = mt.DecentralizedTrainer(
        Noise, {"shape": shape}, num_train_envs=1 if algorithm == "dqn" else 16,
        update_freq=4 if algorithm == "dqn" else 2048, test_freq=None, steps_per_train=10**9, seed=0, run_dir=False,
        progress=False, callbacks=[mt.LambdaCallback(on_update_end=mark)],
    )  # fmt: skip
    trainer.train(agents, [1], plot=False)
    warm = next((mark for mark in marks[1:-1] if mark[0] - marks[0][0] > seconds / 5), marks[-2])
    return (marks[-1][1] - warm[1]) / (marks[-1][0] - warm[0])


def rows(asked: argparse.Namespace) -> Iterator[str]:
    """Yield a row of the table for each algorithm and network."""
    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    for algorithm in ALGORITHMS if asked.only is None else [asked.only]:
        for network, (shape, spec) in NETWORKS.items():
            agent: Any = mt.make_agents(
                algorithm, Noise, env_args={"shape": shape}, seed=0, network=spec, device="cpu"
            )[0]
            most = largest(agent.learner())
            chosen = "cuda" if most >= limit(ALGORITHMS[algorithm].get("batch_size", ROWS)) else "cpu"
            rates = [rate(algorithm, network, device, asked.seconds) for device in devices]
            figures = " | ".join(f"{value:,.0f}" for value in rates)
            yield f"| {algorithm} | {network} | {most:,} | {figures} | {chosen} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument("--only", choices=ALGORITHMS, help="this algorithm")
    asked = parser.parse_args()
    card = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "no GPU"
    print(f"{card}; torch {torch.__version__}, threads: {torch.get_num_threads()}")
    devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    columns = ["algorithm", "network", "multiplications per row", *devices]
    print(f"| {' | '.join(columns)} | auto |")
    for row in rows(asked):
        print(row, flush=True)


if __name__ == "__main__":
    main()
