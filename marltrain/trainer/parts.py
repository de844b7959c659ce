"""What a run is built of, and what it counts."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from marltrain.envs import VectorEnv
from marltrain.policies.memory.streams import Streams
from marltrain.trainer.budgets import Budgets
from marltrain.trainer.checkpoint import Checkpoint
from marltrain.trainer.course import Course
from marltrain.trainer.evaluation import Evaluation
from marltrain.trainer.folder import RunFolder
from marltrain.trainer.hooks import CallbackList, FunctionHooks
from marltrain.trainer.roster import Roster


@dataclass
class Counters:
    """What has been done so far in this run."""

    episodes: int = 0
    env_steps: int = 0
    updates: int = 0
    gradient_steps: int = 0
    dropped_steps: int = 0


@dataclass
class Parts:
    """What a run is built of, made and checked before it starts.

    evaluation: None where no tests are played.  folder: where it is written; None for nowhere.
    told: what its checkpoints say of the run as a whole.
    """

    envs: VectorEnv
    evaluation: Evaluation | None
    roster: Roster
    line_up: Roster
    rotate: bool
    streams: Streams
    courses: list[Course]
    folder: RunFolder | None
    env_seed: int
    budgets: Budgets
    hooks: FunctionHooks
    callbacks: CallbackList
    checkpoint: Checkpoint | None
    told: dict[str, Any]
    closing: ExitStack
