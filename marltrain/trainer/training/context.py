"""TrainerSetup, the arguments of a trainer; RunContext, with the parts of a run; EarlierRun, which a run continues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marltrain.core.layout import Array
from marltrain.envs import Source, VectorEnv, make_vector
from marltrain.envs.faults import FaultPolicy
from marltrain.envs.rotation import Rotation
from marltrain.policies.memory.streams import Storage, Streams
from marltrain.storage.state import State
from marltrain.trainer.evaluating.evaluation import Evaluation
from marltrain.trainer.events.callbacks import Callback, CallbackList
from marltrain.trainer.events.counters import Counters
from marltrain.trainer.events.due import Budgets
from marltrain.trainer.events.hooks import FunctionHooks
from marltrain.trainer.reporting.dashboard import Display
from marltrain.trainer.reporting.faults import FaultTable
from marltrain.trainer.reporting.history import History
from marltrain.trainer.saving.checkpoint import Checkpoint
from marltrain.trainer.saving.run_folder import RunDir, RunFolder
from marltrain.trainer.seats.seats import Seating
from marltrain.trainer.seats.team_reward import TeamReward
from marltrain.trainer.settings import RewardMetric, TrainerSettings
from marltrain.trainer.updating.scheduler import UpdateScheduler

if TYPE_CHECKING:
    from marltrain.trainer.cluster.learners import LearnerActors
    from marltrain.trainer.jobs.job import Job


@dataclass(frozen=True)
class TrainerSetup:
    """The arguments of a trainer, from which its runs are built.

    source: the environment.  seed: the run's seed; a resumed run has the seed of its checkpoint.
    checkpoint: the Checkpoint among the callbacks.  run_dir: the argument.  runs: folder for the folders of new runs.
    display: kind of the progress display.
    only_checkpoints: write checkpoints into `run_dir`, and no other files.
    """

    source: Source
    settings: TrainerSettings
    seed: int
    reward_metric: RewardMetric
    team_reward: TeamReward
    hooks: FunctionHooks
    callbacks: tuple[Callback, ...]
    checkpoint: Checkpoint | None
    run_dir: RunDir
    runs: Path
    display: Display
    only_checkpoints: bool

    def vector_env(
        self, num_envs: int, role: str, *, with_state: bool = False, replaces: bool = True
    ) -> VectorEnv:  # fmt: skip
        """Return `num_envs` environments; role: "train" or "test".

        with_state: see `make_vector`.  replaces: see `RunnerVectorEnv`.
        """
        settings = self.settings
        if settings.runners is not None and role == "train":
            from marltrain.trainer.cluster.elastic import ElasticVectorEnv  # loads learners
            from marltrain.trainer.cluster.runners import RunnerVectorEnv

            arguments: dict[str, Any] = {
                "num_workers": settings.runners, "resources": settings.resources, "address": settings.address,
                "timeout": settings.timeout, "with_state": with_state, "recording": True,
                "handling": FaultPolicy(settings.on_fault, settings.max_env_restarts), "record": settings.record,
                "replaces": replaces,
            }  # fmt: skip
            if (least := settings.least_runners) is not None:
                return ElasticVectorEnv(self.source, num_envs, least=least, **arguments)
            return RunnerVectorEnv(self.source, num_envs, **arguments)
        remote = settings.vector == "ray"
        return make_vector(
            self.source, None, num_envs, vector=settings.vector, role=role, with_state=with_state,
            recording=role == "train" and self.checkpoint is not None,
            num_workers=None if settings.num_workers is None else min(settings.num_workers, num_envs),
            on_fault=settings.on_fault, max_env_restarts=settings.max_env_restarts, env_timeout=settings.env_timeout,
            record=settings.record,
            resources=settings.resources if remote else None, address=settings.address if remote else None,
            timeout=settings.timeout,
        )  # fmt: skip


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
class RunContext(TrainerSetup):
    """The trainer's arguments and the parts of a run, built and checked before it starts.

    envs: the environments as the agents see them, with the players of all matches.
    evaluation: plays the tests; None without tests.
    seating: the agents that train.  line_up: the agents that play the tests.  rotation: their seats in tests; None:
      they keep them.
    learning, exploring: masks given to `train`, each [P] bool.
    streams: recorded data.  storage: the rows and columns that the streams keep, by group.
    schedulers: schedulers of the learners.  folder: the run's folder; None if no files are written but checkpoints.
    checkpoints: the folder of checkpoints, that of the run if it has one; None without.
    call_number: number of the call of `train`, from 1.  env_seed: seed of its episodes.
    learner_actors: the actors in which agents learn; None: they learn in this process.
    all_callbacks: built-in ones and the user's.  manifest: facts of the run for its checkpoints.
    earlier: results of the earlier call that this one continues, or None.
    job: the connection of a named run to attached processes, or None.
    """

    envs: VectorEnv
    evaluation: Evaluation | None
    seating: Seating
    line_up: Seating
    rotation: Rotation | None
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
    all_callbacks: CallbackList
    manifest: dict[str, Any]
    earlier: EarlierRun | None
    job: Job | None
