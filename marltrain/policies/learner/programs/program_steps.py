"""ProgramSteps: the gradient steps of a team by programs, and the moves of its target networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.policies.backends.base import Forward, Network
from marltrain.policies.learner.gradient_steps import GradientSteps
from marltrain.policies.learner.programs.program_step import ProgramStep
from marltrain.policies.learner.programs.rollout_steps import rollout_steps
from marltrain.policies.learner.programs.target_moves import TargetMoves
from marltrain.policies.learner.trained_team import TrainedTeam


class ProgramSteps(GradientSteps):
    """The gradient steps of a team on a CPU with `jit_compile`; see `ProgramStep`."""

    steps: list[ProgramStep]

    def __init__(self, team: TrainedTeam, steps: Sequence[ProgramStep], solving: Sequence[Any] = ()) -> None:
        """Store the steps of the phases; see `GradientSteps`."""
        super().__init__(team, steps, solving)
        self.over_rollouts = rollout_steps(self.steps)

    @property
    def plannable(self) -> bool:  # type: ignore[override]
        """Whether compiled code can make the steps of all phases, see `ProgramStep.plannable`."""
        return not self.solving and all(step.plannable for step in self.steps)

    @cached_property
    def moves(self) -> TargetMoves:
        """The program that moves the target networks."""
        return TargetMoves(self.team)

    def networks(self, nets: Mapping[str, Network]) -> Mapping[str, Forward]:
        """See `GradientSteps`."""
        return nets if self.over_rollouts is None else self.over_rollouts.networks(nets)

    def update_targets(self, share: Array, of_team: float = 0.0) -> None:
        """See `GradientSteps`; those of a team with models of the user are moved by the framework."""
        if not all(hasattr(self.team.nets[target], "plan") for target, _ in self.team.targets()):
            super().update_targets(share, of_team)
        elif np.count_nonzero(share) or of_team:
            self.team.fetch()
            self.moves.run(share, of_team)
            self._targets_moved()

    def moved(self) -> None:
        """Note that programs may have changed all numbers of the team."""
        for step in self.steps:
            step.moved()
        self._targets_moved()

    def _targets_moved(self) -> None:
        for target, _ in self.team.targets():
            self.team.nets[target].numbers_changed()
