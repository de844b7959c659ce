"""The planned updates that fit the reader of agents that learn alone."""

from __future__ import annotations

from marltrain.policies.learner.gradient_steps import GradientSteps
from marltrain.policies.learner.planned.planned_updates import PlannedLearner, PlannedUpdates
from marltrain.policies.learner.planned.replay_updates import ReplayUpdates
from marltrain.policies.learner.planned.reservoir_updates import ReservoirUpdates, reads_reservoir
from marltrain.policies.learner.planned.sequence_updates import SequenceUpdates, reads_sequences
from marltrain.policies.learner.programs.program_steps import ProgramSteps
from marltrain.policies.learner.reward_scaling import RewardScaling
from marltrain.policies.memory.compiled.replay_kernel import CompiledReader
from marltrain.policies.memory.readers import Reader


def updates_of(
    learner: PlannedLearner, steps: GradientSteps, reader: Reader, rewards: RewardScaling, batch_size: int
) -> PlannedUpdates | None:
    """Return the updates by programs of the learner's steps; None if compiled code does not read for the reader."""
    if not isinstance(steps, ProgramSteps):
        return None
    if isinstance(reader, CompiledReader):
        return ReplayUpdates(learner, steps, reader, rewards, batch_size)
    if reads_reservoir(reader):
        return ReservoirUpdates(learner, steps, reader, rewards, batch_size)
    if reads_sequences(reader):
        return SequenceUpdates(learner, steps, reader, rewards, batch_size)
    return None
