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
from marltrain.policies.learner.minibatches import shares_of
from marltrain.policies.learner.update_plan import DueUpdates, MadeUpdates


class PlannedLearner(Protocol):
    """Interface of a learner whose updates can be planned; see `AlgorithmLearner`.

    updates, gradient_steps: [K] int64, counts so far.
    reported: the hyperparameters reported with the metrics, reported name -> name of the hyperparameter.
    """

    algorithm: Algorithm
    hyper: StackedHyperparameters
    updates: Array
    gradient_steps: Array
    reported: dict[str, str]


class CompiledUpdates:
    """The updates of a learner with a CompiledReader and a QStep.

    `plan` writes the rounds of updates; compiled code makes them one after another; `take` returns their metrics.

    learn: [K] bool, the agents that learn.  rounds: the planned rounds.
    """

    def __init__(self, learner: PlannedLearner, moves: QStep, reader: CompiledReader, batch_size: int) -> None:
        """Write the constant fields of the arguments."""
        self.learner, self.moves, self.batch_size = learner, moves, batch_size
        self._ring = reader.ring
        self._reading = Reading(reader.ring)
        self._draws = Draws(reader, self._reading)
        self._rows: Any = self._reading.room(moves.agents, batch_size)
        self._rows.weight = np.ascontiguousarray(shares_of(self._rows.weight))
        self.learn = np.zeros(moves.agents, bool)
        self.rounds: Sequence[DueUpdates] = ()
        self._taken = (0, 0)  # rounds and updates
        self._version = 0  # of the hyperparameters when the rounds were planned
        self._hyper = np.zeros((0, 0, 0))
        self._measured = np.zeros((0, 0, 0), np.float32)
        self._counts = np.zeros(0, np.int64)
        self._names = (*moves.metrics, *learner.reported)
        self._reported = [moves.names.index(name) for name in learner.reported.values()]
        self._kept: tuple[Array, ...] = ()
        self._told = np.zeros(1, UPDATE)
        told, names = self._told[0], moves.names
        self._gamma = names.index("gamma")
        told["step"], told["reading"] = moves.address, self._reading.address
        told["agents"], told["settings"] = moves.agents, len(names)
        told["limit"], told["rate"] = moves.limit, moves.rate
        told["epsilon_index"] = names.index("epsilon") if "epsilon" in names else -1
        self.address = address_of(self._told)

    def possible(self, learn: Array) -> bool:
        """Return whether compiled code can already draw rows for the agents that `learn`, [K] bool."""
        return self._draws.possible(self.batch_size, learn)

    @property
    def pending(self) -> bool:
        """Whether planned rounds are left and no hyperparameter has been set since `plan`."""
        return self._taken[0] < len(self.rounds) and self._version == self.learner.hyper.version

    def drop(self) -> None:
        """Drop the planned rounds that are left."""
        self.rounds = ()

    def plan(
        self, rounds: Sequence[DueUpdates], learn: Array, rngs: Sequence[np.random.Generator | None], act: int
    ) -> None:
        """Write the next rounds of updates, for the agents that `learn` [K] bool.

        rngs: K random generators for drawing rows; None for an agent that does not learn.
        act: the address of the agents' ACT record.
        """
        learner, rows, told = self.learner, self._rows, self._told[0]
        counts = self._counts = np.array([each.updates for each in rounds])
        self.learn, self.rounds, self._taken, self._version = learn, rounds, (0, 0), learner.hyper.version
        self._hyper = learner.hyper.values_at([each.env_steps for each in rounds])
        settings = np.repeat(self._hyper, counts, 0)
        updates = learner.updates + learn * np.arange(1, len(settings) + 1)[:, None]
        share = learner.algorithm.target_share(
            updates, dict(zip(self.moves.names, settings.swapaxes(0, 1), strict=True))
        )
        self._measured = np.zeros((counts.sum(), len(self.moves.metrics), self.moves.agents), np.float32)
        arrays = {
            "after": np.array([each.after for each in rounds]), "updates": counts, "metrics": self._measured,
            "hyper": self._hyper.astype(np.float32), "gamma": np.ascontiguousarray(self._hyper[:, self._gamma]),
            "share": np.ascontiguousarray(np.broadcast_to(learn * share, updates.shape), np.float32),
        }  # fmt: skip
        for name, array in arrays.items():
            told[name] = address_of(array)
        self._kept = tuple(arrays.values())
        told["rounds"], told["act"] = len(rounds), act
        told["round"] = told["made"] = told["broken"] = 0
        self._reading.place(rows, arrays["gamma"])
        self._draws.place(rngs)
        self.moves.place(
            learn, obs=rows.obs, action=rows.action, reward=rows.reward, discount=rows.discount, weight=rows.weight,
            next_obs=rows.next_obs, next_legal=rows.next_legal,
        )  # fmt: skip

    def begin(self, steps: int) -> None:
        """Prepare a call of compiled code; steps: batch steps made since `plan`."""
        self._told["begun"] = steps
        self._reading.lay()
        self._draws.lay()

    def make(self) -> None:
        """Make the next round of updates."""
        update_program()(self.address, self._ring.now)

    def take(self) -> MadeUpdates:
        """Count the updates made since the last call on the learner, and return them."""
        (first, start), told = self._taken, self._told[0]
        last, stop = self._taken = int(told["round"]), int(told["made"])
        for count in (self.learner.updates, self.learner.gradient_steps):
            count += self.learn * (stop - start)
        return MadeUpdates(
            self.rounds[first:last], self._counts[first:last], self._names,
            self._measured[start:stop].astype(np.float64), self._hyper[first:last, self._reported],
            bool(told["broken"]),
        )  # fmt: skip
