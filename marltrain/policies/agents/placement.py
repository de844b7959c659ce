"""The device of agents that are made with device="auto": a GPU for large networks, or many rows, only."""

from __future__ import annotations

import math
from dataclasses import dataclass

from marltrain.policies.backends import first_gpu, make_backend
from marltrain.policies.backends.base import REQUIRE
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner

AUTO, CPU = "auto", "cpu"
LARGE, ROWS = 200_000, 256
"""Multiplications per row of a network from which "auto" takes a GPU, for batches of so many rows, see `limit`."""


@dataclass(frozen=True)
class Placement:
    """The device that was chosen for an agent, and the reason."""

    device: str
    reason: str


def placement(learner: AlgorithmLearner) -> Placement:
    """Choose the device of a new learner's agent by its largest network."""
    name = learner.backend.name
    gpu = first_gpu(name)
    if gpu is None:
        return Placement(CPU, f"{name} finds no GPU")
    if learner.backend.jit_compile == REQUIRE:
        return Placement(CPU, f"jit_compile={REQUIRE!r} computes on a CPU")
    rows = learner.algorithm.settings.batch_size or ROWS
    most, least = largest(learner), limit(rows)
    sizes = f"multiplications per row of its largest network: {most:,}, batches of {rows:,} rows"
    if most < least:
        return Placement(CPU, f"{sizes}; a CPU is faster below {least:,}")
    return Placement(gpu, f"{sizes}; a GPU is faster from {least:,}")


def limit(rows: int) -> int:
    """Return the multiplications per row of a network from which "auto" takes a GPU, for batches of some rows.

    It falls with the square root of the rows: the rates of both devices cross at about 500,000 for DQN with batches of
    32 rows and at about 60,000 for PPO with minibatches of 512, see docs/devices.md and `benchmarks/devices.py`.
    """
    return round(LARGE * math.sqrt(ROWS / rows))


def moved(learner: AlgorithmLearner, row: int, device: str) -> AlgorithmLearner:
    """Return a learner on a device that holds one agent of another; weights, moments and random streams are equal."""
    backend = make_backend(learner.backend.name, device, jit_compile=learner.backend.jit_compile)
    result = AlgorithmLearner(learner.algorithm, backend, [learner.seeds[row]], draw=False)
    result.load(0, learner.export(row))
    return result


def largest(learner: AlgorithmLearner) -> int:
    """Return the multiplications per row of the largest network that is trained, those of a team included."""
    team = () if learner.team is None else learner.team.online.values()
    return max((network.multiply_adds() for network in (*learner.weights.online.values(), *team)), default=0)
