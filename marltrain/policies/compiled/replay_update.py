"""Arguments and results of planned updates, which compiled code makes between batch steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from marltrain.addresses import address_of
from marltrain.layout import Array
from marltrain.policies.algorithms.base import Algorithm
from marltrain.policies.compiled.q_update import QStep
from marltrain.policies.compiled.replay_kernel import CompiledReader, Draws, Reading
from marltrain.policies.compiled.replay_update_kernel import UPDATE, update_program
from marltrain.policies.learner.hyperparameters import StackedHyperparameters
from marltrain.policies.learner.memory_numbers import MemoryNumbers
from marltrain.policies.learner.minibatches import shares_of
from marltrain.policies.learner.update_plan import DueUpdates, MadeUpdates
from marltrain.policies.memory.priorities import PrioritisedChoice


class PlannedLearner(Protocol):
    """Interface of a learner whose updates can be planned; see `AlgorithmLearner`.

    updates, gradient_steps: [K] int64, counts so far.
    reported: the hyperparameters reported with the metrics, reported name -> name of the hyperparameter.
    """

    algorithm: Algorithm
    hyper: StackedHyperparameters
    memory: MemoryNumbers | None
    updates: Array
    gradient_steps: Array
    reported: dict[str, str]


class CompiledUpdates:
    """The updates of a learner with a CompiledReader and a QStep.

    `set_plan` writes the rounds of updates; compiled code makes them one after another; `take_results` returns their
    metrics.

    learn: [K] bool, the agents that learn.  plan: the planned rounds.
    """

    def __init__(self, learner: PlannedLearner, q_step: QStep, reader: CompiledReader, batch_size: int) -> None:
        """Write the constant fields of the arguments."""
        self.learner, self.q_step = learner, q_step
        self._ring = reader.ring
        self._reading = Reading(reader.ring)
        self._draws = Draws(reader, self._reading)
        self._choice = reader.choice
        self.resize(batch_size)
        self.learn = np.zeros(q_step.agents, bool)
        self.plan: Sequence[DueUpdates] = ()
        self._taken = (0, 0)  # rounds and updates
        self._version = (0, 0)  # of the hyperparameters and the memory's numbers when the rounds were planned
        self._hyper = np.zeros((0, 0, 0))
        self._measured = np.zeros((0, 0, 0), np.float32)
        self._counts = np.zeros(0, np.int64)
        self._names = (*q_step.metrics, *learner.reported)
        self._reported = [q_step.names.index(name) for name in learner.reported.values()]
        self._kept: tuple[Array, ...] = ()
        self._record = np.zeros(1, UPDATE)
        record, names = self._record[0], q_step.names
        self._gamma = names.index("gamma")
        record["step"], record["reading"] = q_step.address, self._reading.address
        record["agents"], record["settings"] = q_step.agents, len(names)
        for field, index in q_step.indices.items():
            record[f"{field}_index"] = index
        record["epsilon_index"] = names.index("epsilon") if "epsilon" in names else -1
        if isinstance(self._choice, PrioritisedChoice):
            record["trees"] = self._choice.address
        self.address = address_of(self._record)

    def resize(self, batch_size: int) -> None:
        """Set the number of rows of a batch, for the next plan."""
        self.batch_size = batch_size
        self._rows: Any = self._reading.new_transitions(self.q_step.agents, batch_size)
        self._rows.weight = np.ascontiguousarray(shares_of(self._rows.weight))
        shape = self.q_step.agents, batch_size
        kinds = {"random": np.float64, "numbers": np.int64, "importance": np.float32}
        self._drawn = {name: np.zeros(shape, kind) for name, kind in kinds.items()}  # work arrays of prioritised draws

    def can_draw(self, learn: Array) -> bool:
        """Return whether compiled code can already draw rows for the agents that `learn`, [K] bool."""
        return self._draws.can_draw(self.batch_size, learn)

    @property
    def pending(self) -> bool:
        """Whether planned rounds are left and no hyperparameter has been set since `set_plan`."""
        return self._taken[0] < len(self.plan) and self._version == self._current_version()

    def drop_plan(self) -> None:
        """Drop the planned rounds that are left."""
        self.plan = ()

    def set_plan(
        self, plan: Sequence[DueUpdates], learn: Array, rngs: Sequence[np.random.Generator | None], act: int
    ) -> None:
        """Write the next rounds of updates, for the agents that `learn` [K] bool.

        rngs: K random generators for drawing rows; None for an agent that does not learn.
        act: the address of the agents' ACT record.
        """
        learner, rows, record = self.learner, self._rows, self._record[0]
        counts = self._counts = np.array([each.updates for each in plan])
        self.learn, self.plan, self._taken, self._version = learn, plan, (0, 0), self._current_version()
        self._hyper = learner.hyper.values_at([each.env_steps for each in plan])
        settings = np.repeat(self._hyper, counts, 0)
        updates = learner.updates + learn * np.arange(1, len(settings) + 1)[:, None]
        share = learner.algorithm.target_share(
            updates, dict(zip(self.q_step.names, settings.swapaxes(0, 1), strict=True))
        )
        self._measured = np.zeros((counts.sum(), len(self.q_step.metrics), self.q_step.agents), np.float32)
        arrays = {
            **self._drawn,
            "after": np.array([each.after for each in plan]), "updates": counts, "metrics": self._measured,
            "hyper": self._hyper.astype(np.float32), "gamma": np.ascontiguousarray(self._hyper[:, self._gamma]),
            "share": np.ascontiguousarray(np.broadcast_to(learn * share, updates.shape), np.float32),
            "beta": self._betas([each.env_steps for each in plan]),
        }  # fmt: skip
        for name, array in arrays.items():
            record[name] = address_of(array)
        self._kept = tuple(arrays.values())
        record["rounds"], record["act"] = len(plan), act
        record["round"] = record["made"] = record["broken"] = 0
        self._reading.set_outputs(rows, arrays["gamma"])
        self._draws.set_generators(rngs)
        self.q_step.set_batch(
            learn, obs=rows.obs, action=rows.action, reward=rows.reward, discount=rows.discount, weight=rows.weight,
            next_obs=rows.next_obs, next_legal=rows.next_legal,
        )  # fmt: skip
        if self.q_step.prioritised:
            self.q_step.set_errors(np.ones(len(learn), np.float32), np.zeros(rows.reward.shape, np.float32))

    def _betas(self, env_steps: Sequence[int]) -> Array:
        """Return the agents' powers of the importance weights in each round [R], [R, K]; zeros without priorities."""
        memory = self.learner.memory
        if memory is None or not self.q_step.prioritised:
            return np.zeros((len(env_steps), self.q_step.agents))
        return np.ascontiguousarray(memory.values_at("beta", env_steps))

    def _current_version(self) -> tuple[int, int]:
        memory = self.learner.memory
        return self.learner.hyper.version, 0 if memory is None else memory.version

    def prepare_call(self, steps: int) -> None:
        """Prepare a call of compiled code; steps: batch steps made since `set_plan`."""
        self._record["begun"] = steps
        self._reading.refresh()
        self._draws.refresh()
        if isinstance(self._choice, PrioritisedChoice):
            self._choice.follow()

    def make_round(self) -> None:
        """Make the next round of updates."""
        update_program()(self.address, self._ring.now)

    def take_results(self) -> MadeUpdates:
        """Count the updates made since the last call on the learner, and return them."""
        (first, start), record = self._taken, self._record[0]
        last, stop = self._taken = int(record["round"]), int(record["made"])
        for count in (self.learner.updates, self.learner.gradient_steps):
            count += self.learn * (stop - start)
        return MadeUpdates(
            self.plan[first:last], self._counts[first:last], self._names,
            self._measured[start:stop].astype(np.float64), self._hyper[first:last, self._reported],
            bool(record["broken"]),
        )  # fmt: skip
