"""Planned updates of agents that learn alone, from a replay buffer and from reservoirs beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeGuard

import numpy as np

from marltrain.core.layout import Array
from marltrain.jit.views import address_of, entry
from marltrain.policies.batches.batch import ReservoirTransitions, Transitions
from marltrain.policies.learner.planned.planned_updates import PlannedLearner
from marltrain.policies.learner.planned.replay_updates import ReplayUpdates
from marltrain.policies.learner.programs.program_steps import ProgramSteps
from marltrain.policies.learner.reward_scaling import RewardScaling
from marltrain.policies.memory.compiled.replay_kernel import reads
from marltrain.policies.memory.compiled.reservoir_kernel import KEPT, kept_program
from marltrain.policies.memory.readers import Reader
from marltrain.policies.memory.reservoir import LEGAL
from marltrain.policies.memory.reservoir_reader import HELD, ReservoirReader


def reads_reservoir(reader: Reader) -> TypeGuard[ReservoirReader]:
    """Return whether compiled code supports a reader's transitions and decisions: vectors, and keys beside them."""
    return type(reader) is ReservoirReader and reads(reader.ring, replace(reader.needs, columns={}))


class ReservoirUpdates(ReplayUpdates):
    """The updates of agents alone with a ReservoirReader."""

    def __init__(
        self, learner: PlannedLearner, steps: ProgramSteps, reader: ReservoirReader, rewards: RewardScaling,
        batch_size: int,
    ) -> None:  # fmt: skip
        """Write the constant fields of the arguments."""
        self._kept_record, self._sizes = np.zeros(1, KEPT), np.zeros((0, learner.num_agents))
        kept, record = reader.reservoir, self._kept_record[0]
        (obs,) = (column for name, column in kept.columns.items() if name.startswith("obs/"))
        arrays = {"held": kept.held, "offered": kept.offered, "obs": obs, "action": kept.columns["action"]}
        if LEGAL in kept.columns:
            arrays["legal"] = kept.columns[LEGAL]
        for name, array in arrays.items():
            record[name] = address_of(array)
        record["capacity"] = kept.capacity
        super().__init__(learner, steps, reader, rewards, batch_size)
        self._drawing["kept"] = address_of(self._kept_record)

    def _new_rows(self, agents: int, rows: int) -> Transitions:
        """See `ReplayUpdates`; with decisions of reservoirs."""
        made, record = super()._new_rows(agents, rows), self._kept_record[0]
        legal = None if made.legal is None else np.ones_like(made.legal)
        obs = np.zeros_like(made.obs)
        result = ReservoirTransitions(
            **vars(made), kept_obs=obs, kept_legal=legal, kept_action=np.zeros_like(made.action),
            kept_weight=np.zeros((agents, rows), np.float32),
        )  # fmt: skip
        self._players = np.zeros((agents, rows), np.int64)
        arrays = {"to_obs": obs, "to_action": result.kept_action, "to_weight": result.kept_weight}
        for name, array in arrays.items():
            record[name] = address_of(array)
        record["player"], record["to_legal"] = address_of(self._players), 0 if legal is None else address_of(legal)
        return result

    def _set_rows(self, rngs: Sequence[np.random.Generator | None], gamma: Array, env_steps: Sequence[int]) -> None:
        """See `PlannedUpdates`."""
        super()._set_rows(rngs, gamma, env_steps)
        self._sizes = np.zeros(gamma.shape)
        self._kept_record["sizes"] = address_of(self._sizes)

    def _of_rows(self, first: int, last: int) -> dict[str, Array]:
        """See `PlannedUpdates`."""
        return {HELD: self._sizes[first:last]}

    def prepare_call(self, steps: int) -> None:
        """See `PlannedUpdates`."""
        super().prepare_call(steps)
        if not self._drawing["draw_kept"][0]:
            self._drawing["draw_kept"] = entry(kept_program(), 3)
