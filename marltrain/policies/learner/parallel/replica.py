"""One replica process, which makes gradient steps on its part of the rows together with the other replicas."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import cloudpickle

from marltrain.layout import Array
from marltrain.policies.learner.gradient_step import PartialGradientStep
from marltrain.policies.learner.parallel.strategies import Member
from marltrain.policies.learner.weights import Weights


class Replica:
    """Message handler of a member of a strategy: (order) -> answer."""

    def __init__(self, member: Member) -> None:
        """Connect to the other members; create the agents' weights if the member holds a learner."""
        with _quiet(until_the_end=not member.learns):
            joined = import_module(f"marltrain.policies.backends.{member.backend}.replicas").joined(member)
        self.speaks = member.index == 0
        if not member.learns:
            self.lent = joined
            return
        self.backend = joined
        self.hold(member.algorithm, member.num_agents)

    def __call__(self, order: tuple[Any, ...]) -> Any:
        """Execute an order (method name, *arguments) and return the result."""
        name, *arguments = order
        return getattr(self, name)(*arguments)

    def hold(self, algorithm: bytes, num_agents: int) -> None:
        """Create the weights of `num_agents` agents, with zeros until `assign` is called."""
        kind, *made_of = cloudpickle.loads(algorithm)  # bytes from the parent process
        held = kind(*made_of)
        self.weights = Weights(held, self.backend, num_agents, None)
        parts = held, self.backend, self.weights.nets, self.weights.optimizers
        self.steps = [PartialGradientStep(phase, *parts) for phase in held.phases]

    def assign(self, arrays: Mapping[str, Array]) -> None:
        """Set weights, moments and step counts."""
        self.weights.assign(arrays)

    def make(self, phase: int, columns: Mapping[str, Any], numbers: Array, due: Array) -> Any:
        """Make one gradient step with the other members.

        Returns (metric names, values [M, K]) on member 0, None on the others.
        """
        step, backend = self.steps[phase], self.backend
        measured = step(backend.tensor(columns), backend.tensor(numbers), due)
        return (step.metrics, backend.numpy(measured)) if self.speaks else None

    def trained(self) -> dict[str, Array]:
        """Return weights, moments and step counts."""
        return self.weights.trained()

    def follow(self, share: Array) -> None:
        """Move the target networks by `share` [K]."""
        self.weights.follow(share)


@contextmanager
def _quiet(*, until_the_end: bool) -> Iterator[None]:
    """Suppress the output of a framework's start, which each process would print again.

    until_the_end: also suppress later output; a helper prints each connection.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    kept = {stream: os.dup(stream) for stream in (1, 2)}
    for stream in kept:
        os.dup2(nowhere, stream)
    try:
        yield
    finally:
        os.close(nowhere)
        for stream, copy in kept.items():
            if not until_the_end:
                os.dup2(copy, stream)
            os.close(copy)
