"""TrainerSetup: the checked arguments of a trainer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marltrain.envs import Source, VectorEnv, make_vector
from marltrain.envs.faults import FaultPolicy
from marltrain.trainer.callbacks import Callback
from marltrain.trainer.hooks import FunctionHooks
from marltrain.trainer.reporting.built_in import Display
from marltrain.trainer.saving.checkpoint import Checkpoint
from marltrain.trainer.saving.run_folder import RunDir
from marltrain.trainer.settings import RewardMetric, TrainerSettings
from marltrain.trainer.team_reward import TeamReward


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
    only_checkpoints: bool = False

    def vector_env(self, num_envs: int, role: str, *, with_state: bool = False) -> VectorEnv:
        """Return `num_envs` environments; role: "train" or "test".  with_state: see `make_vector`."""
        settings = self.settings
        if settings.runners is not None and role == "train":
            from marltrain.trainer.cluster.elastic import ElasticVectorEnv  # loads learners
            from marltrain.trainer.cluster.runners import RunnerVectorEnv

            arguments: dict[str, Any] = {
                "num_workers": settings.runners, "resources": settings.resources, "address": settings.address,
                "timeout": settings.timeout, "with_state": with_state, "recording": True,
                "handling": FaultPolicy(settings.on_fault, settings.max_env_restarts), "record": settings.record,
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
