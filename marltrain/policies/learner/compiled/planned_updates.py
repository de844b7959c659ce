"""Planned updates, which compiled code makes between batch steps: the plan of their rounds, and their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from marltrain.core.layout import Array
from marltrain.jit.views import address_of, entry
from marltrain.policies.hyperparameters.stacked import StackedHyperparameters
from marltrain.policies.interface.algorithm import Algorithm
from marltrain.policies.learner.reward_scaling import RewardScaling, of_team
from marltrain.policies.learner.update_plan import DueUpdates, MadeUpdates
from marltrain.policies.memory.compiled.replay_kernel import Reading
from marltrain.policies.memory.memory_numbers import MemoryNumbers
from marltrain.policies.memory.ring import Ring


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


class PlannedStep(Protocol):
    """Interface of a gradient step in compiled code; see `QStep`.

    names: the hyperparameters' names.  metrics: the names of the metrics.  address: of the arguments of the kernel.
    indices: field of the arguments -> index of the hyperparameter that it holds.
    """

    names: tuple[str, ...]
    metrics: tuple[str, ...]
    indices: dict[str, int]
    agents: int
    address: int


class CompiledUpdates:
    """The updates of a learner whose rows are drawn from one ring.

    `set_plan` writes the rounds of updates; compiled code makes them one after another; `take_results` returns their
    metrics. A subclass defines what depends on the rows and the kernel: `resize`, `can_draw`, `_arrays`, `_set_rows`.

    batch_size: rows of a batch.  learn: [K] bool, the agents that learn.  plan: the planned rounds.
    """

    batch_size: int

    def __init__(
        self, learner: PlannedLearner, step: PlannedStep, ring: Ring, rewards: RewardScaling, batch_size: int,
        kind: np.dtype[Any], program: Callable[[], Any],
    ) -> None:  # fmt: skip
        """Write the constant fields of the arguments.

        rewards: scales the rewards of the batches.
        kind: dtype of the kernel's arguments, which begin with `ROUNDS`.  program: returns the kernel, compiled.
        """
        self.learner, self.step, self._ring, self._program = learner, step, ring, program
        self._reading, self._rewards = Reading(ring), rewards
        self.learn = np.zeros(step.agents, bool)
        self.plan: Sequence[DueUpdates] = ()
        self._taken = (0, 0)  # rounds and updates
        self._version = (0, 0)  # of the hyperparameters and the memory's numbers when the rounds were planned
        self._hyper = np.zeros((0, 0, 0))
        self._measured = np.zeros((0, 0, 0), np.float32)
        self._counts = np.zeros(0, np.int64)
        self._names = (*step.metrics, *learner.reported)
        self._reported = [step.names.index(name) for name in learner.reported.values()]
        self._kept: tuple[Array, ...] = ()
        self._record = np.zeros(1, kind)
        record, names = self._record[0], step.names
        self._gamma = names.index("gamma")
        record["step"], record["agents"], record["settings"] = step.address, step.agents, len(names)
        record["measured"] = len(step.metrics)
        for field, index in step.indices.items():
            record[f"{field}_index"] = index
        record["epsilon_index"] = names.index("epsilon") if "epsilon" in names else -1
        self.address = address_of(self._record)
        self.resize(batch_size)

    def resize(self, batch_size: int) -> None:
        """Set the number of rows of a batch, `batch_size`, for the next plan."""
        raise TypeError(f"{type(self).__name__} must define resize")

    def can_draw(self, learn: Array) -> bool:
        """Return whether compiled code can already draw rows for the agents that `learn`, [K] bool."""
        raise TypeError(f"{type(self).__name__} must define can_draw")

    def _shares(self, updates: Array, hyper: Mapping[str, Array]) -> Array:
        """Return the shares by which the target networks move after each update, [U, K]; 0 without learning.

        updates: [U, K], the agents' numbers of updates.  hyper: name -> [U, K].
        """
        share: Array = self.learn * self.learner.algorithm.target_share(updates, hyper)
        return share

    def _arrays(self, env_steps: Sequence[int], share: Array) -> Mapping[str, Array]:
        """Return further arrays of the plan by the fields that hold their addresses.

        env_steps: [R], those of the run at each round.  share: [U, K], by which the target networks move.
        """
        raise TypeError(f"{type(self).__name__} must define _arrays")

    def _set_rows(self, rngs: Sequence[np.random.Generator | None], gamma: Array) -> None:
        """Write how rows are drawn for the agents that learn, and where; gamma: [R, K]."""
        raise TypeError(f"{type(self).__name__} must define _set_rows")

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
        learner, record, env_steps = self.learner, self._record[0], [each.env_steps for each in plan]
        counts = self._counts = np.array([each.updates for each in plan])
        self.learn, self.plan, self._taken, self._version = learn, plan, (0, 0), self._current_version()
        self._hyper = learner.hyper.values_at(env_steps)
        settings = np.repeat(self._hyper, counts, 0)
        updates = learner.updates + learn * np.arange(1, len(settings) + 1)[:, None]
        share = self._shares(updates, dict(zip(self.step.names, settings.swapaxes(0, 1), strict=True)))
        share = np.ascontiguousarray(np.broadcast_to(share, updates.shape), np.float32)
        self._measured = np.zeros((counts.sum(), len(self.step.metrics), self.step.agents), np.float32)
        gamma, scale = np.ascontiguousarray(self._hyper[:, self._gamma]), self._reward_scales()
        arrays = {
            "after": np.array([each.after for each in plan]), "updates": counts, "metrics": self._measured,
            "hyper": self._hyper.astype(np.float32), "gamma": gamma, "share": share, "reward_scale": scale,
            **self._arrays(env_steps, share),
        }  # fmt: skip
        for name, array in arrays.items():
            record[name] = address_of(array)
        self._kept = tuple(arrays.values())
        record["scaling"] = address_of(self._rewards.record) if self._rewards.changes(scale) else 0
        record["rounds"], record["act"] = len(plan), act
        record["round"] = record["made"] = record["broken"] = 0
        self._set_rows(rngs, gamma)

    def _reward_scales(self) -> Array:
        """Return the factors of the rewards in each round, [R, rows of rewards] float64."""
        names = self.step.names
        if "reward_scale" not in names:
            return np.ones((len(self._hyper), self._rewards.agents))
        scale = self._hyper[:, names.index("reward_scale")]
        return np.ascontiguousarray(of_team(scale) if self._rewards.agents < self.step.agents else scale)

    def _current_version(self) -> tuple[int, int]:
        memory = self.learner.memory
        return self.learner.hyper.version, 0 if memory is None else memory.version

    def prepare_call(self, steps: int) -> None:
        """Prepare a call of compiled code; steps: batch steps made since `set_plan`."""
        record = self._record[0]
        if not record["program"]:
            record["program"] = entry(self._program(), 2)
        record["begun"] = steps
        self._reading.refresh()

    def make_round(self) -> None:
        """Make the next round of updates."""
        self._program()(self.address, self._ring.now)

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
