"""One process of a strategy, which makes gradient steps on its part of the rows together with the others."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from typing import Any

import cloudpickle
import numpy as np

from marltrain.core.layout import Array
from marltrain.policies.backends.base import Backend
from marltrain.policies.backends.strategies import Member
from marltrain.policies.interface.algorithm import Algorithm
from marltrain.policies.learner.gradient_step import PartialGradientStep
from marltrain.policies.learner.trained_team import Columns, TrainedTeam
from marltrain.policies.learner.weights import Weights


class Replica:
    """Message handler of a member of a strategy: (order) -> answer."""

    def __init__(self, member: Member) -> None:
        """Connect to the other members; make what the member learns with, if it learns."""
        with _quiet(until_the_end=not member.learns):
            joined = import_module(f"marltrain.policies.backends.{member.backend}.replicas").joined(member)
        self.index = member.index
        if not member.learns:
            self.lent = joined
            return
        self.backend = joined
        self.hold(member.held)

    def __call__(self, order: tuple[Any, ...]) -> Any:
        """Execute an order (method name, *arguments) of what it holds, or ("hold", bytes); return the result."""
        name, *arguments = order
        return self.hold(*arguments) if name == "hold" else getattr(self.held, name)(*arguments)

    def hold(self, held: bytes) -> None:
        """Hold a replica of a learner; held: a function (backend, index of the member) -> its methods, pickled."""
        self.held = unpickled(held)(self.backend, self.index)


class AlgorithmReplica:
    """A replica of the learner of an algorithm."""

    def __init__(self, made_of: tuple[Any, ...], num_agents: int, backend: Backend, index: int) -> None:
        """Create the weights of `num_agents` agents, with zeros until `assign` is called.

        made_of: class, settings, layout and action space of the algorithm.
        """
        kind, *arguments = made_of
        self.algorithm: Algorithm = kind(*arguments)
        self.backend, self.index, self.num_agents = backend, index, num_agents
        self.weights = Weights(self.algorithm, backend, num_agents, None)
        team = TrainedTeam([self])
        self.steps = [PartialGradientStep(number, team) for number in range(len(self.algorithm.phases))]

    def assign(self, arrays: Mapping[str, Array]) -> None:
        """Set weights, moments and step counts."""
        self.weights.assign(arrays)

    def make(
        self, phase: int, columns: Columns, numbers: Mapping[str, Array], due: Array, seed: int | None = None
    ) -> Any:  # fmt: skip
        """Make one gradient step with the other members.

        seed: of the random numbers that a user's model draws; each member draws others. None: there is no such model.
        Returns (metric names, values [M, K]) on member 0, None on the others.
        """
        step, backend = self.steps[phase], self.backend
        with drawing(backend, seed, self.index):
            measured = step(backend.tensor(columns), backend.tensor(dict(numbers)), due)
        return (step.metrics, backend.numpy(measured)) if self.index == 0 else None

    def trained(self) -> dict[str, Array]:
        """Return weights, moments and step counts."""
        return self.weights.trained()

    def update_targets(self, share: Array) -> None:
        """Move the target networks by `share` [K]."""
        self.weights.update_targets(share)


def unpickled(held: bytes) -> Any:
    """Return what a member holds; held: bytes that the parent process has made in `Team`."""
    return cloudpickle.loads(held)


def drawing(backend: Backend, seed: int | None, index: int) -> AbstractContextManager[Any]:
    """Return a context in which a member's global random generators are seeded, unless `seed` is None."""
    return nullcontext() if seed is None else backend.seeded(np.random.default_rng([seed, index]))


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
