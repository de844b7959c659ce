"""RunContext: the parts of a run, and EarlierRun: the results that it continues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from marltrain.core.layout import Array
from marltrain.envs import VectorEnv
from marltrain.policies.memory.streams import Storage, Streams
from marltrain.storage.state import State
from marltrain.trainer.callbacks import CallbackList
from marltrain.trainer.counters import Counters
from marltrain.trainer.due import Budgets
from marltrain.trainer.evaluating.evaluation import Evaluation
from marltrain.trainer.reporting.faults import FaultTable
from marltrain.trainer.reporting.history import History
from marltrain.trainer.saving.run_folder import RunFolder
from marltrain.trainer.seats import Seating
from marltrain.trainer.setup import TrainerSetup
from marltrain.trainer.updating.scheduler import UpdateScheduler

if TYPE_CHECKING:
    from marltrain.trainer.cluster.learners import LearnerActors
    from marltrain.trainer.jobs.job import Job


@dataclass(frozen=True)
class EarlierRun:
    """Results of an earlier call of `train`, which a new call continues.

    selection, callbacks: their state.  seconds: the duration.  schedulers: those of the earlier call.
    comparable: whether new tests can be compared with the earlier ones: same trainer, line-up and learning mask.
    tested_at: (episodes, env steps) of the last test; (-1, -1) if it is not comparable.
    """

    counters: Counters
    history: History
    faults: FaultTable
    selection: State
    seconds: float
    schedulers: Sequence[UpdateScheduler]
    callbacks: State
    comparable: bool
    tested_at: tuple[int, int]


@dataclass(frozen=True)
class RunContext:
    """Parts of a run, built and checked before it starts.

    setup: the trainer's arguments.  evaluation: plays the tests; None without tests.
    seating: the agents that train.  line_up: the agents that play the tests.  rotate: whether they change seats.
    learning, exploring: masks given to `train`, each [P] bool.
    streams: recorded data.  storage: the rows and columns that the streams keep, by group.
    schedulers: schedulers of the learners.  folder: the run's folder; None if no files are written but checkpoints.
    checkpoints: the folder of checkpoints, that of the run if it has one; None without.
    call_number: number of the call of `train`, from 1.  env_seed: seed of its episodes.
    learner_actors: the actors in which agents learn; None: they learn in this process.
    callbacks: built-in ones and the user's.  manifest: facts of the run for its checkpoints.
    earlier: results of the earlier call that this one continues, or None.
    job: the connection of a named run to attached processes, or None.
    """

    setup: TrainerSetup
    envs: VectorEnv
    evaluation: Evaluation | None
    seating: Seating
    line_up: Seating
    rotate: bool
    learning: Array
    exploring: Array
    streams: Streams
    storage: Mapping[int, Storage]
    schedulers: list[UpdateScheduler]
    learner_actors: LearnerActors | None
    folder: RunFolder | None
    checkpoints: RunFolder | None
    call_number: int
    env_seed: int
    budgets: Budgets
    callbacks: CallbackList
    manifest: dict[str, Any]
    earlier: EarlierRun | None
    job: Job | None
