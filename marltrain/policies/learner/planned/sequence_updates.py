"""Planned updates of agents that learn alone, with recurrent networks, from sequences of a replay buffer."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeGuard

import numpy as np

from marltrain.core.layout import Array
from marltrain.jit.compiling import compiled, program
from marltrain.jit.views import address_of, record_at
from marltrain.policies.compiled.reward_kernel import SCALING
from marltrain.policies.interface.recurrence import carries_of, column_of
from marltrain.policies.learner.planned.planned_updates import PlannedLearner, PlannedUpdates
from marltrain.policies.learner.planned.rounds_kernel import ROUNDS, of_round, rounds_at, scale_drawn
from marltrain.policies.learner.programs.program_steps import ProgramSteps
from marltrain.policies.learner.reward_scaling import RewardScaling
from marltrain.policies.learner.trained_team import ALONE, Columns
from marltrain.policies.memory.compiled.replay_kernel import READING, Draws, read, reading_at, reads
from marltrain.policies.memory.compiled.sequence_kernel import (
    EXTRAS,
    SEQUENCES,
    Extras,
    draw_sequences,
    read_extras,
)
from marltrain.policies.memory.readers import Reader
from marltrain.policies.memory.sequences import SequenceTransitionReader

DRAWING = np.dtype([(name, np.int64) for name in ("reading", "sequences", "extras", "extra")])
"""Arguments of `draw_and_read`, beside ROUNDS: addresses of a READING and SEQUENCES; EXTRAS: number, and address."""


def reads_sequences(reader: Reader) -> TypeGuard[SequenceTransitionReader]:
    """Return whether compiled code supports the sequences of a reader: vectors, and carries beside them."""
    plain = replace(reader.needs, columns={})
    return type(reader) is SequenceTransitionReader and reads(reader.ring, plain)


class SequenceUpdates(PlannedUpdates):
    """The updates of agents alone with a SequenceTransitionReader."""

    def __init__(
        self, learner: PlannedLearner, steps: ProgramSteps, reader: SequenceTransitionReader, rewards: RewardScaling,
        batch_size: int,
    ) -> None:  # fmt: skip
        """Write the constant fields of the arguments."""
        self._needs, self._drawing, self._sequences = reader.needs, np.zeros(1, DRAWING), np.zeros(1, SEQUENCES)
        carries = carries_of(learner.algorithm.networks())
        self._carried = {name: column_of(name, column) for name, column in carries.items()}
        super().__init__(learner, steps, reader, rewards, batch_size, draw_program)
        self._draws = Draws(reader, self._reading)
        self._record["drawing"] = address_of(self._drawing)
        self._drawing["reading"], self._drawing["sequences"] = self._reading.address, address_of(self._sequences)

    def resize(self, batch_size: int) -> None:
        """See `PlannedUpdates`."""
        super().resize(batch_size)
        length, burn_in, agents = self._needs.sequence, self._needs.burn_in, self.learner.num_agents
        count = -(-batch_size // (length - burn_in))
        shape = agents, count * length
        self._rows = self._reading.new_transitions(*shape)
        self._extras = Extras(self._ring, list(self._carried.values()), shape)
        kinds = {"present": bool, "begins": bool, "weight": np.float32, "share": np.float32}
        self._written: dict[str, Array] = {name: np.zeros(shape, kind) for name, kind in kinds.items()}
        self._written["first"] = np.zeros((agents, count), np.int64)
        record = self._sequences[0]
        record["count"], record["length"], record["burn_in"] = count, length, burn_in
        for name, array in self._written.items():
            record[name] = address_of(array)
        self._drawing["extras"], self._drawing["extra"] = len(self._extras.record), address_of(self._extras.record)
        columns = {name: getattr(self._rows, name) for name in self._rows.loss_columns}
        carry = {name: self._extras.columns[column] for name, column in self._carried.items()}
        own = {**columns, "weight": self._written["share"], "begins": self._written["begins"], "carry": carry}
        self._given = {ALONE: own}

    def can_draw(self, learn: Array) -> bool:
        """See `PlannedUpdates`."""
        return self._draws.can_draw(learn)

    def _columns(self, learn: Array) -> Columns:
        """See `PlannedUpdates`."""
        return self._given

    def _set_rows(self, rngs: Sequence[np.random.Generator | None], gamma: Array, env_steps: Sequence[int]) -> None:
        """See `PlannedUpdates`."""
        self._reading.set_outputs(self._rows, gamma)
        self._draws.set_generators(rngs)

    def _weight(self) -> Array | None:
        """See `PlannedUpdates`."""
        return self._written["weight"]

    def prepare_call(self, steps: int) -> None:
        """See `PlannedUpdates`."""
        super().prepare_call(steps)
        self._draws.refresh()
        self._extras.refresh()
        self._sequences["oldest"], self._sequences["acted"] = self._ring.oldest, address_of(self._ring.acted)


@compiled
def draw_and_read(address: int, now: int) -> int:
    """Draw and read sequences for the ROUNDS at an address; return 1."""
    u = rounds_at(address)
    d = record_at(u.drawing, DRAWING)
    r, q = reading_at(d.reading), record_at(d.sequences, SEQUENCES)
    r.gamma = of_round(u, u.gamma, 8 * u.agents)
    draw_sequences(q, r, now)
    read(r)
    read_extras(d.extra, d.extras, r.cells, r.agents * r.rows)
    scale_drawn(u, r.to_reward, q.weight, u.learns, r.rows)
    return 1


@functools.cache
def draw_program() -> Any:
    """Return the compiled `draw_and_read`, from the disk cache if it is there."""
    return program(draw_and_read, DRAWING, EXTRAS, READING, ROUNDS, SCALING, SEQUENCES)
