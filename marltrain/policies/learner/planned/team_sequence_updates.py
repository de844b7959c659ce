"""Planned updates of a team with recurrent networks, from sequences of a replay buffer."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.jit.compiling import compiled, program
from marltrain.jit.views import address_of, record_at
from marltrain.policies.compiled.reward_kernel import SCALING
from marltrain.policies.interface.recurrence import carries_of, column_of
from marltrain.policies.learner.planned.planned_updates import PlannedLearner
from marltrain.policies.learner.planned.rounds_kernel import ROUNDS, of_round, rounds_at, scale_drawn
from marltrain.policies.learner.planned.team_updates import TeamUpdates
from marltrain.policies.learner.programs.program_steps import ProgramSteps
from marltrain.policies.learner.reward_scaling import RewardScaling
from marltrain.policies.learner.trained_team import ALONE, OF_TEAM, Columns
from marltrain.policies.memory.compiled.replay_kernel import READING, reading_at
from marltrain.policies.memory.compiled.sequence_kernel import EXTRAS, Extras
from marltrain.policies.memory.compiled.team_replay_kernel import TEAM_READING, team_reading_at
from marltrain.policies.memory.compiled.team_sequence_kernel import (
    TEAM_SEQUENCES,
    draw_team_sequences,
    read_team_sequences,
    team_sequences_at,
)
from marltrain.policies.memory.team_reader import TeamReader

DRAWING = np.dtype([(name, np.int64) for name in ("drawn", "sequences")])
"""Arguments of `draw_and_read`, beside ROUNDS: addresses of a TEAM_READING and of TEAM_SEQUENCES."""


class TeamSequenceUpdates(TeamUpdates):
    """The updates of a team with one member, whose networks are recurrent; see `TeamUpdates`."""

    def __init__(
        self, learner: PlannedLearner, steps: ProgramSteps, reader: TeamReader, rewards: RewardScaling, batch_size: int
    ) -> None:
        """See `TeamUpdates`."""
        self._drawing, self._sequences = np.zeros(1, DRAWING), np.zeros(1, TEAM_SEQUENCES)
        carries = carries_of(learner.algorithm.networks())
        self._carried = {name: column_of(name, column) for name, column in carries.items()}
        super().__init__(learner, steps, reader, rewards, batch_size, draw_program)

    def _batch_steps(self, batch_size: int) -> int:
        """See `TeamUpdates`; those of whole sequences."""
        needs = self._reader.needs
        return needs.block * -(-batch_size // (needs.block - needs.burn_in))

    def resize(self, batch_size: int) -> None:
        """See `PlannedUpdates`."""
        super().resize(batch_size)
        rows, needs, record = self._present.shape, self._reader.needs, self._sequences[0]
        self._extras = Extras(self._ring, list(self._carried.values()), rows)
        kinds = {"begins": bool, "learned": bool, "weight": np.float32, "share": np.float32}
        arrays: dict[str, Array] = {name: np.zeros(rows, kind) for name, kind in kinds.items()}
        arrays |= {name: np.zeros((1, self.batch_steps), np.float32) for name in ("team_weight", "team_share")}
        arrays["valid"] = np.zeros(self.batch_steps, bool)
        self._arrays = arrays | {"present": self._present, "extra": self._extras.record}
        record["count"], record["length"] = self.batch_steps // needs.block, needs.block
        record["burn_in"], record["extras"] = needs.burn_in, len(self._carried)
        for name, array in self._arrays.items():
            record[name] = address_of(array)
        self._drawing["drawn"], self._drawing["sequences"] = self._drawn.address, address_of(self._sequences)
        self._record["drawing"] = address_of(self._drawing)

    def _columns(self, learn: Array) -> Columns:
        """See `PlannedUpdates`."""
        if (columns := super()._columns(learn)) is self._read:
            return columns
        learned, carried = columns[ALONE]["learned"], self._extras.columns
        self._arrays["learned"][...] = True if learned is None else learned
        own = {"begins": self._arrays["begins"], "weight": self._arrays["share"]}
        own["carry"] = {name: carried[column] for name, column in self._carried.items()}
        of_team = {"weight": self._arrays["team_share"]}
        return {ALONE: {**columns[ALONE], **own}, OF_TEAM: {**columns[OF_TEAM], **of_team}}

    def _weight(self) -> Array | None:
        """See `PlannedUpdates`."""
        return self._arrays["weight"]

    def prepare_call(self, steps: int) -> None:
        """See `PlannedUpdates`."""
        super().prepare_call(steps)
        self._extras.refresh()


@compiled
def draw_and_read(address: int, now: int) -> int:
    """Draw and read sequences for the ROUNDS at an address; return 0 if rewards or discounts differ."""
    u = rounds_at(address)
    drawing = record_at(u.drawing, DRAWING)
    d, t = team_reading_at(drawing.drawn), team_sequences_at(drawing.sequences)
    r = reading_at(d.reading)
    r.gamma = of_round(u, u.gamma, 8 * u.agents)
    draw_team_sequences(t, d, r, now)
    read_team_sequences(t, d, r)
    if d.differs:
        return 0
    if d.one_reward:
        scale_drawn(u, d.reward, t.team_weight, 0, d.batch)
    else:
        scale_drawn(u, r.to_reward, t.weight, u.learns, r.rows)
    return 1


@functools.cache
def draw_program() -> Any:
    """Return the compiled `draw_and_read`, from the disk cache if it is there."""
    return program(draw_and_read, DRAWING, EXTRAS, READING, ROUNDS, SCALING, TEAM_READING, TEAM_SEQUENCES)
