"""RunContext: the parts of a run."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from marltrain.envs import VectorEnv
from marltrain.policies.memory.streams import Streams
from marltrain.trainer.budgets import Budgets
from marltrain.trainer.callbacks import CallbackList, FunctionHooks
from marltrain.trainer.evaluating.evaluation import Evaluation
from marltrain.trainer.evaluating.schedule import TestSchedule, left
from marltrain.trainer.saving.checkpoint import Checkpoint
from marltrain.trainer.saving.run_folder import RunFolder
from marltrain.trainer.seats import Seating
from marltrain.trainer.updating.scheduler import UpdateScheduler

if TYPE_CHECKING:
    from marltrain.trainer.saving.continuation import EarlierRun


@dataclass
class RunContext:
    """Parts of a run, built and checked before it starts.

    evaluation: plays the tests; None without tests.  folder: the run's folder; None if no files are written.
    line_up: the agents that play the tests.  rotate: whether they change seats.
    told: facts of the run for the manifest of its checkpoints.
    closing: closes environments and releases the folder at the end.
    past: the earlier run, if this run continues one.
    """

    envs: VectorEnv
    evaluation: Evaluation | None
    seating: Seating
    line_up: Seating
    rotate: bool
    streams: Streams
    schedulers: list[UpdateScheduler]
    folder: RunFolder | None
    env_seed: int
    budgets: Budgets
    hooks: FunctionHooks
    callbacks: CallbackList
    checkpoint: Checkpoint | None
    told: dict[str, Any]
    closing: ExitStack
    past: EarlierRun | None = None

    def steps_left(self, env_steps: int, timing: TestSchedule) -> list[int]:
        """Return the batch steps left until the end of the budget, a test and a checkpoint, as far as they are set."""
        budget, checkpoint = self.budgets.env_steps, self.checkpoint
        until = [None if budget is None else budget - env_steps, left(env_steps, timing.every_steps)]
        until.append(None if checkpoint is None else checkpoint.steps_left(env_steps))
        return [-(-steps // self.envs.num_envs) for steps in until if steps is not None]

    def episodes_left(self, episodes: int, timing: TestSchedule) -> int:
        """Return the number of episodes until a test, `train_fn`, a checkpoint or the end of a budget is due."""
        train_fn, checkpoint = self.hooks.train, self.checkpoint
        every = (
            timing.every_episodes, self.budgets.episodes, train_fn.every if train_fn.function else None,
            checkpoint.settings.every_episodes if checkpoint else None,
        )  # fmt: skip
        until = (left(episodes, number) for number in every)
        return min((number for number in until if number is not None), default=sys.maxsize)
