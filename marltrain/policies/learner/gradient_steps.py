"""GradientSteps: the gradient steps of agents that are trained together, one per phase."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.policies.backends.base import Forward, Network
from marltrain.policies.interface.algorithm import Phase
from marltrain.policies.learner.gradient_pass import GradientPass
from marltrain.policies.learner.trained_team import TrainedTeam

if TYPE_CHECKING:  # loads numba
    from marltrain.policies.learner.programs.rollout_steps import RolloutSteps


class GradientSteps:
    """The gradient steps of a team in order, in the learner's process; see also `Replicas`.

    team: the agents that they train.
    plannable: whether compiled code can make updates with them between batch steps; see `PlannedUpdates`.
    solving: the steps of the phases that solve for a natural gradient; iteration leaves them out.
    over_rollouts: makes all gradient steps over a rollout in a single call, or None.
    whole: makes all gradient steps of an off-policy pass and moves the target networks in a single call, or None.
    """

    plannable = False
    over_rollouts: RolloutSteps | None = None
    whole: GradientPass | None = None

    def __init__(self, team: TrainedTeam, steps: Sequence[Any], solving: Sequence[Any] = ()) -> None:
        """Store the function of each phase, (columns, numbers, due) -> metrics [M, K]."""
        self.team, self.steps, self.solving = team, list(steps), list(solving)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the functions of the phases that follow a gradient."""
        return iter(self.steps)

    def measure_noise(self, *, on: bool) -> None:
        """Measure the gradient noise in all phases from now on, or no longer; see `GradientStep.measure_noise`."""
        for step in self:
            step.measure_noise(on=on)
        if self.whole is not None:
            self.whole.retrace()

    @property
    def read_once(self) -> bool:
        """Whether one call reads the rows of an off-policy pass, which it can then take as arrays."""
        return self.whole is not None or len(self.steps) + len(self.solving) == 1

    def errors(self) -> Array | None:
        """Return the rows' errors [K, B] of the update's gradient pass, from the first due phase that gives any.

        None if there is none, or without a prioritized memory.
        """
        return next((step.errors for step in self.steps if step.errors is not None), None)

    def due(self, active: Array, counts: Array) -> Array:
        """Return the agents for which each phase is due in passes, [..., F, K] bool; see `Phase.every`.

        active: [..., K] bool, the agents that make the passes.  counts: [..., K] int64, their passes before.
        """
        counts = self.team.counts_of(active, counts)
        return np.stack([due_of(step.phase, active, counts) for step in self.steps], -2)

    def begin(self) -> None:
        """Prepare the gradient steps of an update; errors of earlier rows are forgotten."""
        for step in self.steps:
            step.errors = None

    def networks(self, nets: Mapping[str, Network]) -> Mapping[str, Forward]:
        """Return the networks that `Algorithm.prepare` uses."""
        return nets

    def end(self) -> None:
        """Copy the results of an update's gradient steps into the weights of the agents."""

    def update_targets(self, share: Array, of_team: float = 0.0) -> None:
        """Move the target networks towards the online networks by `share` [K]; those of the team by `of_team`."""
        for key, own in self.team.by_member(share).items():
            weights = self.team.members[key].weights
            if weights.target and np.count_nonzero(own):
                weights.update_targets(own)
        if self.team.weights is not None and self.team.weights.target and of_team:
            self.team.weights.update_targets(np.array([of_team]))

    def outdated(self) -> None:
        """Mark the state of the gradient steps as outdated, because the learner has loaded an agent."""

    def close(self) -> None:
        """End the started processes or threads; a later update starts them again."""
        if "threads" in vars(self.team):
            self.team.threads.close()


def due_of(phase: Phase, active: Array, counts: Array) -> Array:
    """Return the agents that are `active` and whose pass a phase runs in, [..., K] bool; see `Phase.every`."""
    due: Array = active if phase.every == 1 else active & (counts % phase.every == 0)
    return due
