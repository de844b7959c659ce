"""Planned updates of Q-values from a replay buffer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.policies.compiled.replay_update_kernel import UPDATE, update_program
from marltrain.policies.learner.compiled.planned_updates import CompiledUpdates, PlannedLearner
from marltrain.policies.learner.compiled.q_update import QStep
from marltrain.policies.learner.minibatches import shares_of
from marltrain.policies.learner.reward_scaling import RewardScaling
from marltrain.policies.memory.compiled.replay_kernel import CompiledReader, Draws
from marltrain.policies.memory.priorities import PrioritizedChoice


class ReplayUpdates(CompiledUpdates):
    """The updates of a learner with a CompiledReader and a QStep."""

    def __init__(
        self, learner: PlannedLearner, step: QStep, reader: CompiledReader, rewards: RewardScaling, batch_size: int
    ) -> None:
        """Write the constant fields of the arguments."""
        self.q_step, self._choice = step, reader.choice
        super().__init__(learner, step, reader.ring, rewards, batch_size, UPDATE, update_program)
        self._draws = Draws(reader, self._reading)
        self._record["reading"] = self._reading.address
        if isinstance(self._choice, PrioritizedChoice):
            self._record["trees"] = self._choice.address

    def resize(self, batch_size: int) -> None:
        """See `CompiledUpdates`."""
        self.batch_size = batch_size
        self._rows: Any = self._reading.new_transitions(self.q_step.agents, batch_size)
        self._rows.weight = np.ascontiguousarray(shares_of(self._rows.weight))
        shape = self.q_step.agents, batch_size
        kinds = {"random": np.float64, "numbers": np.int64, "importance": np.float32}
        self._drawn = {name: np.zeros(shape, kind) for name, kind in kinds.items()}  # work arrays of prioritized draws

    def can_draw(self, learn: Array) -> bool:
        """See `CompiledUpdates`."""
        return self._draws.can_draw(self.batch_size, learn)

    def _arrays(self, env_steps: Sequence[int], share: Array) -> Mapping[str, Array]:
        """Return the work arrays of draws, and the agents' powers of the importance weights in each round, [R, K]."""
        memory, betas = self.learner.memory, np.zeros((len(env_steps), self.q_step.agents))
        if memory is not None and self.q_step.prioritized:
            betas = np.ascontiguousarray(memory.values_at("beta", env_steps))
        return {**self._drawn, "beta": betas}

    def _set_rows(self, rngs: Sequence[np.random.Generator | None], gamma: Array) -> None:
        """See `CompiledUpdates`."""
        rows = self._rows
        self._reading.set_outputs(rows, gamma)
        self._draws.set_generators(rngs)
        self.q_step.set_batch(
            self.learn, obs=rows.obs, action=rows.action, reward=rows.reward, discount=rows.discount,
            weight=rows.weight, next_obs=rows.next_obs, next_legal=rows.next_legal,
        )  # fmt: skip
        if self.q_step.prioritized:
            self.q_step.set_errors(np.ones(len(self.learn), np.float32), np.zeros(rows.reward.shape, np.float32))

    def prepare_call(self, steps: int) -> None:
        """See `CompiledUpdates`."""
        super().prepare_call(steps)
        self._draws.refresh()
        if isinstance(self._choice, PrioritizedChoice):
            self._choice.follow()
