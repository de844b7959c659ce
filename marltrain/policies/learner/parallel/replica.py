"""One replica process: a learner that makes passes over its part of the rows, in step with the others."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import cloudpickle

from marltrain.layout import Array
from marltrain.policies.learner.gradient_step import PartialGradientStep
from marltrain.policies.learner.learner import AlgorithmLearner
from marltrain.policies.learner.parallel.strategies import Member


class Replica:
    """What a member of a strategy does: called with an order, it returns the answer."""

    def __init__(self, member: Member) -> None:
        """Join the other members; hold a learner, unless the member only lends itself to them."""
        with _quiet(until_the_end=not member.learns):
            joined = import_module(f"marltrain.policies.backends.{member.backend}.replicas").joined(member)
        self.speaks = member.index == 0
        if not member.learns:
            self.lent = joined
            return
        self.backend = joined
        self.hold(member.algorithm, member.num_agents)

    def __call__(self, order: tuple[Any, ...]) -> Any:
        """Carry out an order: the name of a method, and its arguments."""
        name, *arguments = order
        return getattr(self, name)(*arguments)

    def hold(self, algorithm: bytes, num_agents: int) -> None:
        """Hold a learner of so many agents, zero until it is told to `become` another."""
        kind, *made_of = cloudpickle.loads(algorithm)  # bytes of the process that started this one
        self.learner = AlgorithmLearner(kind(*made_of), self.backend, range(num_agents), draw=False)
        parts = self.learner.algorithm, self.backend, self.learner.nets, self.learner.optimisers
        self.passes = [PartialGradientStep(phase, *parts) for phase in self.learner.algorithm.phases]

    def become(self, arrays: Mapping[str, Array]) -> None:
        """Take over weights, moments and step counts."""
        self.learner.become(arrays)

    def make(self, phase: int, columns: Mapping[str, Any], numbers: Array, due: Array) -> Any:
        """Make one pass together with the others; the first member tells (names of metrics, their values [M, K])."""
        one, backend = self.passes[phase], self.learner.backend
        measured = one(backend.tensor(columns), backend.tensor(numbers), due)
        return (one.metrics, backend.numpy(measured)) if self.speaks else None

    def moved(self) -> dict[str, Array]:
        """Return weights, moments and step counts."""
        return self.learner.moved()

    def follow(self, share: Array) -> None:
        """Move the targets."""
        self.learner.follow(share)


@contextmanager
def _quiet(*, until_the_end: bool) -> Iterator[None]:
    """Keep what a framework prints when it starts off the user's terminal: each process would print it again.

    until_the_end: keep later words off, too: those of a helper tell who connected to it.
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
