"""`train(..., go_on=...)`: a call that continues the run of an earlier call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marltrain.errors import ConfigError, shown
from marltrain.layout import Array
from marltrain.policies.agents.agent import Agent
from marltrain.spec import EnvSpec
from marltrain.state import State
from marltrain.trainer.counters import Counters
from marltrain.trainer.reporting.faults import FaultTable
from marltrain.trainer.reporting.history import History
from marltrain.trainer.updating.scheduler import UpdateScheduler

if TYPE_CHECKING:
    from marltrain.trainer.decentralized import DecentralizedTrainer
    from marltrain.trainer.run import Run


@dataclass(frozen=True)
class EarlierRun:
    """Results of an earlier call of `train`, which a new call continues.

    judge, callbacks: their state.  seconds: the duration.  schedulers: those of the earlier call.
    comparable: whether new tests can be compared with the earlier ones: same trainer, line-up and learning mask.
    tested_at: (episodes, env steps) of the last test; (-1, -1) if it is not comparable.
    """

    counters: Counters
    history: History
    faults: FaultTable
    judge: State
    seconds: float
    schedulers: Sequence[UpdateScheduler]
    callbacks: State
    comparable: bool
    tested_at: tuple[int, int]


def earlier_run(trainer: DecentralizedTrainer, go_on: Any, resume: Any) -> Run | None:
    """Return the run that a call of `train` continues, or None for a new run.

    go_on: False, True for the trainer's own last call, or another trainer for its last call.
    Raises ConfigError if there is no such run or it cannot be continued.
    """
    from marltrain.trainer.decentralized import DecentralizedTrainer

    if go_on is False:
        return None
    if not (go_on is True or isinstance(go_on, DecentralizedTrainer)):
        raise ConfigError(f"go_on must be True, False or a DecentralizedTrainer, got {shown(go_on)}")
    if resume is not None:
        raise ConfigError("go_on goes on with an earlier call of this process, resume with a checkpoint: give one")
    other = trainer if go_on is True else go_on
    whose = "this trainer" if other is trainer else "the trainer given to it"
    if other.run is None or not other.run.started:
        raise ConfigError(f"go_on: {whose} has not trained yet, so there is no run to go on with: leave go_on out")
    if not other.run.finished:
        raise ConfigError(f"go_on: {whose} is training: go on when its call of train has returned")
    if other.run.followed:
        raise ConfigError(f"go_on: another trainer has gone on with the run of {whose}: give go_on= that trainer")
    if other is not trainer:
        _take_over(trainer, other, other.run)
    return other.run


def _take_over(trainer: DecentralizedTrainer, other: DecentralizedTrainer, run: Run) -> None:
    """Adopt the seed and the number of calls of another trainer's run.

    Raises ConfigError if the trainer has another `run_dir` or seed than that run.
    """
    folder = None if run.parts.folder is None else run.parts.folder.path
    if trainer.run_dir is not None and _resolved(trainer.run_dir) != _resolved(folder or False):
        where = "nowhere" if folder is None else f"in {str(folder)!r}"
        raise ConfigError(f"go_on: the run is written {where}, and run_dir is {str(trainer.run_dir)!r}: leave it out")
    if trainer.settings.seed not in (None, other.seed):
        raise ConfigError(f"go_on: the run has seed {other.seed}, and seed={trainer.settings.seed} was given: "
                          "leave it out")  # fmt: skip
    trainer.seed, trainer.trained = other.seed, other.trained


def _resolved(folder: Path | bool) -> Path | None:
    return folder.resolve() if isinstance(folder, Path) else None


def past_of(
    run: Run, spec: EnvSpec, line_up: Sequence[Agent], *, rotate: bool, learning: Array, same: bool
) -> EarlierRun:
    """Return the results of an earlier run for a call that continues it.

    line_up: the agents that play the tests of the new call.  rotate: whether they change seats.
    learning: [P] bool.  same: whether the trainer is the same.
    Raises ConfigError if the players differ, because the tables have a column for each player. Raises SaveError for a
    callback whose state is not JSON values.
    """
    parts = run.parts
    if spec.names != parts.envs.spec.names:
        raise ConfigError(
            f"go_on: {spec.name} has the players {', '.join(spec.names)}, and the run had "
            f"{', '.join(parts.envs.spec.names)}. Give an environment with the same players, or leave go_on out"
        )
    before = parts.line_up.agents
    same_agents = all(agent is other for agent, other in zip(line_up, before, strict=True))
    comparable = same and same_agents and rotate == parts.rotate and bool((run.masks()[0] == learning).all())
    return EarlierRun(
        replace(run.counters), run.history, run.faults, run.judge.state(), run.seconds, parts.schedulers,
        parts.callbacks.state(), comparable, run.timing.tested_at if comparable else (-1, -1),
    )  # fmt: skip


def same_memory(run: Run, spec: EnvSpec, num_envs: int) -> bool:
    """Return whether the streams of an earlier run can be used with these environments."""
    before = run.parts.envs
    kinds = [[player.kind for player in one.players] for one in (before.spec, spec)]
    return kinds[0] == kinds[1] and (before.num_envs, before.spec.turn_based) == (num_envs, spec.turn_based)
