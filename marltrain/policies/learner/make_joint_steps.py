"""The choice of the gradient steps of a team: in compiled code, or by the backend."""

from __future__ import annotations

from collections.abc import Sequence

from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.policies.learner.joint_step import JointStep, JointSteps
from marltrain.policies.learner.weights import Weights


def make_joint_steps(
    parts: Sequence[AlgorithmLearner], team: Weights, seats: Sequence[int], order: Sequence[int]
) -> JointSteps:
    """Return the gradient steps of a team, in compiled code or by the backend; see `JointLearner`."""
    if parts[0].backend.jit_compile:
        from marltrain.policies.learner.compiled.team_steps import compiled_team_steps  # loads numba

        if (steps := compiled_team_steps(parts, team, seats, order)) is not None:
            return steps
    phases = range(len(parts[0].algorithm.phases))
    return JointSteps([JointStep(number, parts, team, seats, order) for number in phases])
