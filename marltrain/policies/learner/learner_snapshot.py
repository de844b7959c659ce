"""Trained: the state that the updates of a learner change, as numpy arrays, cut by agents and sent to processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.policies.learner.joint_learner import JointLearner
from marltrain.policies.learner.learner import Learner
from marltrain.policies.learner.weights import Weights

Statistics = Mapping[str, Mapping[str, Array]]
"""name -> "mean", "variance" or "count" -> array."""


@dataclass(frozen=True)
class TrainedWeights:
    """Weights of K agents, or those of a team (K = 1).

    arrays: see `Weights.trained`, each [K, ...].  statistics: the running statistics, each [K, ...].
    """

    arrays: Mapping[str, Array]
    statistics: Statistics

    @classmethod
    def of(cls, weights: Weights, *, complete: bool = True) -> TrainedWeights:
        """Return copies; without `complete`, only the networks by which agents act."""
        if complete:
            arrays = weights.trained(targets=True)
        else:
            arrays = {f"net/{name}": weights.backend.numpy(net.flat) for name, net in weights.online.items()}
        return cls(
            {name: np.array(array) for name, array in arrays.items()},
            {name: {key: array.copy() for key, array in kept.values().items()}
             for name, kept in weights.statistics.items()},
        )  # fmt: skip

    def put(self, weights: Weights) -> None:
        """Copy the arrays into weights."""
        weights.assign({name: np.array(array) for name, array in self.arrays.items()})  # may be read-only
        for name, kept in self.statistics.items():
            for key, value in weights.statistics[name].values().items():
                value[...] = kept[key]

    def rows(self, rows: slice) -> TrainedWeights:
        """Return views of some agents."""
        return TrainedWeights(
            {name: array[rows] for name, array in self.arrays.items()},
            {name: {key: array[rows] for key, array in kept.items()} for name, kept in self.statistics.items()},
        )

    @classmethod
    def joined(cls, members: Sequence[TrainedWeights]) -> TrainedWeights:
        """Return the weights of all agents of the members."""
        first = members[0]
        return first if len(members) == 1 else cls(
            {name: np.concatenate([member.arrays[name] for member in members]) for name in first.arrays},
            {name: {key: np.concatenate([member.statistics[name][key] for member in members]) for key in kept}
             for name, kept in first.statistics.items()},
        )  # fmt: skip


@dataclass(frozen=True)
class TrainedRows:
    """The state of K agents, without hyperparameters and what only acting and sampling change.

    updates, gradient_steps: [K] int64.  rngs: K states of the generators for updates.
    """

    weights: TrainedWeights
    updates: Array
    gradient_steps: Array
    rngs: list[dict[str, Any]]

    @classmethod
    def of(cls, learner: AlgorithmLearner) -> TrainedRows:
        """Return a copy of the state of a learner."""
        return cls(
            TrainedWeights.of(learner.weights), learner.updates.copy(), learner.gradient_steps.copy(),
            [dict(rng.bit_generator.state) for rng in learner.rngs("update")],
        )  # fmt: skip

    def put(self, learner: AlgorithmLearner) -> None:
        """Copy the state into a learner."""
        self.weights.put(learner.weights)
        learner.updates[...], learner.gradient_steps[...] = self.updates, self.gradient_steps
        for rng, state in zip(learner.rngs("update"), self.rngs, strict=True):
            rng.bit_generator.state = state
        learner.steps.outdated()

    def rows(self, rows: slice) -> TrainedRows:
        """Return the state of some agents."""
        return TrainedRows(self.weights.rows(rows), self.updates[rows], self.gradient_steps[rows], self.rngs[rows])

    @classmethod
    def joined(cls, members: Sequence[TrainedRows]) -> TrainedRows:
        """Return the state of all agents of the members."""
        return cls(
            TrainedWeights.joined([member.weights for member in members]),
            np.concatenate([member.updates for member in members]),
            np.concatenate([member.gradient_steps for member in members]),
            [state for member in members for state in member.rngs],
        )  # fmt: skip


@dataclass(frozen=True)
class Trained:
    """The state of a learner: of its agents, and of the team of a `JointLearner`.

    members: one for an `AlgorithmLearner`, one for each member of a `JointLearner`.
    """

    members: tuple[TrainedRows, ...]
    team: TrainedWeights | None

    @classmethod
    def of(cls, learner: Learner) -> Trained:
        """Return a copy of the state of a learner."""
        team = TrainedWeights.of(learner.team) if isinstance(learner, JointLearner) else None
        return cls(tuple(TrainedRows.of(member) for member in members_of(learner)), team)

    def put(self, learner: Learner) -> None:
        """Copy the state into a learner."""
        for own, member in zip(self.members, members_of(learner), strict=True):
            own.put(member)
        if isinstance(learner, JointLearner) and self.team is not None:
            self.team.put(learner.team)

    def rows(self, rows: slice) -> Trained:
        """Return the state of some agents; those of a team stay together."""
        return Trained(tuple(member.rows(rows) for member in self.members), None) if self.team is None else self

    @classmethod
    def joined(cls, pieces: Sequence[Trained]) -> Trained:
        """Return the state of a learner from those of its agents."""
        if len(pieces) == 1:
            return pieces[0]
        return cls(
            tuple(TrainedRows.joined(members) for members in zip(*(p.members for p in pieces), strict=True)), None
        )


def members_of(learner: Learner) -> list[AlgorithmLearner]:
    """Return the members of a `JointLearner`, or the learner itself; raises TypeError for a learner of another kind."""
    if isinstance(learner, JointLearner):
        return learner.members
    if not isinstance(learner, AlgorithmLearner):
        raise TypeError(f"{type(learner).__name__} is no learner of an Algorithm")
    return [learner]
