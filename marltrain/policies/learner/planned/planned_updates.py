"""Planned updates, which compiled code makes between batch steps: the plan of their rounds, and their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from marltrain.core.layout import Array
from marltrain.jit.views import address_of, entry
from marltrain.policies.batches.batch import Transitions
from marltrain.policies.hyperparameters.stacked import StackedHyperparameters
from marltrain.policies.interface.algorithm import OBSERVATION, Algorithm
from marltrain.policies.learner.phase_draws import PhaseDraws
from marltrain.policies.learner.planned.observing import Observing
from marltrain.policies.learner.planned.planned_phases import Draws, PlannedPhases, planned_phases
from marltrain.policies.learner.planned.rounds_kernel import ROUNDS, rounds_program
from marltrain.policies.learner.programs.program_step import rows_of
from marltrain.policies.learner.programs.program_steps import ProgramSteps
from marltrain.policies.learner.programs.recorded_step import COLUMNS, arrays_in
from marltrain.policies.learner.reward_scaling import RewardScaling, of_team
from marltrain.policies.learner.trained_team import Columns
from marltrain.policies.learner.update_plan import DueUpdates, MadeUpdates
from marltrain.policies.learner.weights import Weights
from marltrain.policies.memory.compiled.replay_kernel import Reading
from marltrain.policies.memory.memory_numbers import MemoryNumbers
from marltrain.policies.memory.readers import Reader
from marltrain.policies.tape.interpreter.runs import run_program

MOST_NUMBERS = 2**20
"""Random numbers that several rounds may need: those of a plan are drawn at once."""


class PlannedLearner(Protocol):
    """Interface of a learner whose updates can be planned; see `AlgorithmLearner`.

    updates, gradient_steps: [K] int64, counts so far.
    draws: the random numbers of the phases.
    reported: the hyperparameters reported with the metrics, reported name -> name of the hyperparameter.
    """

    algorithm: Algorithm
    hyper: StackedHyperparameters
    memory: MemoryNumbers | None
    draws: PhaseDraws
    weights: Weights
    num_agents: int
    updates: Array
    gradient_steps: Array
    reported: dict[str, str]


class PlannedUpdates:
    """The updates of a learner whose rows are drawn from one ring, by the programs of its gradient steps.

    `set_plan` writes the rounds of updates; compiled code makes them one after another; `take_results` returns their
    metrics. A subclass defines what depends on the rows: `resize`, `can_draw`, `_columns`, `_set_rows`, `_weight`.

    batch_size: rows of a batch.  learn: [K] bool, the agents that learn.  plan: the planned rounds.
    """

    batch_size: int
    _rows: Transitions

    def __init__(
        self, learner: PlannedLearner, steps: ProgramSteps, reader: Reader, rewards: RewardScaling, batch_size: int,
        draw: Callable[[], Any],
    ) -> None:  # fmt: skip
        """Write the constant fields of the arguments.

        learner: the agents; of a team, its only member.  rewards: scales the rewards of the batches.
        draw: returns the program that draws rows, compiled.
        """
        self.learner, self.steps, self._ring, self._draw = learner, steps, reader.ring, draw
        self._reading, self._rewards = Reading(reader), rewards
        self.learn = np.zeros(learner.num_agents, bool)
        self.plan: Sequence[DueUpdates] = ()
        self._taken = (0, 0)  # rounds and updates
        self._version = (0, 0, 0)  # of hyperparameters, the memory's numbers and draws when the rounds were planned
        self._hyper = np.zeros((0, 0, 0))
        self._measured = np.zeros((0, 0, 0), np.float32)
        self._counts, self._due = np.zeros(0, np.int64), np.zeros((0, 0, 0), bool)
        self._names = learner.algorithm.numbers()
        self._numbers = np.zeros((len(self._names), learner.num_agents, 1), np.float32)
        self._made: dict[Any, PlannedPhases] = {}  # by the names of columns, and whether noise is measured
        self._phases: PlannedPhases
        self._read: Columns | None = None  # those that the programs read
        self._reported = [self._names.index(name) for name in learner.reported.values()]
        self._kept: tuple[Array, ...] = ()
        observed = learner.weights.statistics.get(OBSERVATION)
        self._observing = None if observed is None else Observing(observed)
        self._record = np.zeros(1, ROUNDS)
        record = self._record[0]
        record["agents"], record["settings"] = learner.num_agents, len(self._names)
        record["numbers"] = address_of(self._numbers)
        record["observing"] = 0 if self._observing is None else self._observing.address
        self.address = address_of(self._record)
        self.resize(batch_size)

    def resize(self, batch_size: int) -> None:
        """Set the number of rows of a batch, `batch_size`, for the next plan."""
        self.batch_size, self._read = batch_size, None
        self._example: Draws = {}
        self._made.clear()

    def can_draw(self, learn: Array) -> bool:
        """Return whether compiled code can already draw rows for the agents that `learn`, [K] bool."""
        raise TypeError(f"{type(self).__name__} must define can_draw")

    def _columns(self, learn: Array) -> Columns:
        """Return the arrays of a batch as the losses get them, the same object as long as the arrays are the same.

        Compiled code writes them.  learn: [K] bool, the agents that learn.
        """
        raise TypeError(f"{type(self).__name__} must define _columns")

    def _shares(self, updates: Array, hyper: Mapping[str, Array]) -> Array:
        """Return the shares by which the target networks move after each update, [U, K + 1]; 0 without learning.

        The last is that of the networks of a team.
        updates: [U, K], the agents' numbers of updates.  hyper: name -> [U, K].
        """
        share = self.learn * self.learner.algorithm.target_share(updates, hyper)
        return np.column_stack([np.broadcast_to(share, updates.shape), np.zeros(len(updates))])

    def _set_rows(self, rngs: Sequence[np.random.Generator | None], gamma: Array, env_steps: Sequence[int]) -> None:
        """Write how rows are drawn for the agents that learn, and where.

        gamma: [R, K].  env_steps: [R], those of the run at each round.
        """
        raise TypeError(f"{type(self).__name__} must define _set_rows")

    def _weight(self) -> Array | None:
        """Return the weights of the rows, [K, B] float32, which compiled code writes; None: all are 1."""
        raise TypeError(f"{type(self).__name__} must define _weight")

    def _of_rows(self, first: int, last: int) -> dict[str, Array]:
        """Return the metrics of the rows of rounds from `first` to `last`, name -> [R, K] float64; none by default.

        See `Reader.metrics`; all updates of a round have the same ones.
        """
        return {}

    @property
    def pending(self) -> bool:
        """Whether planned rounds are left and no hyperparameter has been set since `set_plan`."""
        return self._taken[0] < len(self.plan) and self._version == self._current_version()

    def drop_plan(self) -> None:
        """Drop the planned rounds that are left."""
        self.plan = ()

    def set_plan(
        self, plan: Sequence[DueUpdates], learn: Array, rngs: Sequence[np.random.Generator | None], acting: int
    ) -> bool:
        """Write the next rounds of updates, for the agents that `learn` [K] bool; return whether they can be made.

        They cannot if a phase has no program.
        rngs: K random generators for drawing rows; None for an agent that does not learn.
        acting: the address of the hyperparameters that the agents' acts read, see `Actor.settings`, or 0.
        """
        learner, record, columns = self.learner, self._record[0], self._columns(learn)
        if columns is not self._read and not self._set_programs(columns, learn):
            return False
        self.learn = learn
        plan = self._drawable(plan)
        env_steps, counts = [each.env_steps for each in plan], np.array([each.updates for each in plan])
        self._draw_ahead(int(counts.sum()), rows_of(columns))
        self.plan, self._counts, self._taken, self._version = plan, counts, (0, 0), self._current_version()
        self._hyper = learner.hyper.values_at(env_steps)
        settings = np.repeat(self._hyper, counts, 0)
        updates = learner.updates + learn * np.arange(1, len(settings) + 1)[:, None]
        share = self._shares(updates, dict(zip(self._names, settings.swapaxes(0, 1), strict=True)))
        self._measured = np.zeros((counts.sum(), record["measured"], learner.num_agents), np.float32)
        gamma, scale = np.ascontiguousarray(self._hyper[:, self._names.index("gamma")]), self._reward_scales()
        arrays = {
            "after": np.array([each.after for each in plan]), "updates": counts, "metrics": self._measured,
            "hyper": self._hyper.astype(np.float32), "gamma": gamma, "share": np.ascontiguousarray(share, np.float32),
            "reward_scale": scale, "learns": learn, "due": self._due,
        }  # fmt: skip
        for name, array in arrays.items():
            record[name] = address_of(array)
        self._kept = tuple(arrays.values())
        record["scaling"] = address_of(self._rewards.record) if self._rewards.changes(scale) else 0
        record["rounds"], record["acting"] = len(plan), acting
        record["round"] = record["made"] = record["broken"] = 0
        self._set_rows(rngs, gamma, env_steps)
        if self._observing is not None:
            self._observing.set_rows(self._rows, self._weight())
        return True

    def _set_programs(self, columns: Columns, learn: Array) -> bool:
        """Write the programs of all phases for columns of these arrays; return False if they cannot be planned."""
        names = tuple(arrays_in(columns, COLUMNS)), self.steps.steps[0].measures
        if names not in self._made:
            self._example = self.learner.draws.example(rows_of(columns))
            if (made := planned_phases(self.steps, columns, self._example)) is None:
                return False
            self._made[names] = made
        phases = self._phases = self._made[names]
        phases.bind(columns, self._numbers, learn)
        self._read = columns  # kept alive, as others: compiled code has only addresses
        record = self._record[0]
        record["phases"], record["phase"] = len(phases.record), address_of(phases.record)
        record["measured"] = phases.measured
        return True

    def _drawable(self, plan: Sequence[DueUpdates]) -> Sequence[DueUpdates]:
        """Return the first rounds of a plan, whose updates need at most `MOST_NUMBERS` random numbers; at least one."""
        numbers = sum(array.size for array in arrays_in(self._example, "").values())
        updates = np.cumsum([each.updates for each in plan])
        return plan[: max(1, int(np.count_nonzero(updates * numbers <= MOST_NUMBERS)))]

    def _draw_ahead(self, updates: int, rows: int) -> None:
        """Set the phases that are due in each update, and draw their random numbers."""
        learn, made = self.learn, self.learn * np.arange(updates)[:, None]
        due = self.steps.due(np.broadcast_to(learn, made.shape), self.learner.gradient_steps + made)
        self._due = np.ascontiguousarray(due)
        joint = self.steps.team.is_joint  # the rows of a team are drawn for together
        making = np.broadcast_to(due.any(-1, keepdims=True), due.shape) if joint else due
        self._phases.set_draws(self.learner.draws.ahead(making, rows))

    def _reward_scales(self) -> Array:
        """Return the factors of the rewards in each round, [R, rows of rewards] float64."""
        if "reward_scale" not in self._names:
            return np.ones((len(self._hyper), self._rewards.agents))
        scale = self._hyper[:, self._names.index("reward_scale")]
        return np.ascontiguousarray(of_team(scale) if self._rewards.agents < self.learner.num_agents else scale)

    def _current_version(self) -> tuple[int, int, int]:
        memory = self.learner.memory
        return self.learner.hyper.version, 0 if memory is None else memory.version, self.learner.draws.version

    def prepare_call(self, steps: int) -> None:
        """Prepare a call of compiled code; steps: batch steps made since `set_plan`."""
        record, moves = self._record[0], self.steps.moves
        if not record["program"]:
            record["program"], record["draw"] = entry(rounds_program(), 2), entry(self._draw(), 2)
            record["run"] = entry(run_program(), 1)
            record["moves"], record["shares"] = moves.execution.prepare(), address_of(moves.shares)
        record["begun"] = steps
        self._reading.refresh()
        self.steps.team.fetch()
        self.steps.moved()  # by the call

    def make_round(self) -> None:
        """Make the next round of updates."""
        rounds_program()(self.address, self._ring.now)

    def take_results(self) -> MadeUpdates:
        """Count the updates made since the last call on the learner, and return them."""
        (first, start), record = self._taken, self._record[0]
        last, stop = self._taken = int(record["round"]), int(record["made"])
        for count in (self.learner.updates, self.learner.gradient_steps):
            count += self.learn * (stop - start)
        self.learner.draws.use(stop - start)
        phases, due = self._phases, self._due[start:stop]
        of_rows = self._of_rows(first, last)
        reported = [self._hyper[first:last, self._reported], *(values[:, None] for values in of_rows.values())]
        return MadeUpdates(
            self.plan[first:last], self._counts[first:last], (*phases.names, *self.learner.reported, *of_rows),
            phases.results(self._measured[start:stop], due), np.concatenate(reported, 1),
            phases.skipped(due[-1], self.learn) if len(due) else {}, bool(record["broken"]),
        )  # fmt: skip
