"""The device of agents that are made with device="auto": a GPU for large networks only."""

from __future__ import annotations

from dataclasses import dataclass

from marltrain.policies.backends import first_gpu, make_backend
from marltrain.policies.backends.base import REQUIRE
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner

AUTO, CPU = "auto", "cpu"
LARGE = 200_000
"""Multiplications per row of a network from which "auto" takes a GPU, see docs/devices.md and `benchmarks/devices.py`.

The rates of both devices cross at about 60,000 for PPO, whose minibatches have many rows, and at about 500,000 for DQN.
"""


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
    most = largest(learner)
    sizes = f"multiplications per row of its largest network: {most:,}"
    if most < LARGE:
        return Placement(CPU, f"{sizes}; a CPU is faster below {LARGE:,}")
    return Placement(gpu, f"{sizes}; a GPU is faster from {LARGE:,}")


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
