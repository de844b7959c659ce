"""`train(..., go_on=...)`: a call that continues the run of an earlier call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from marltrain.core.errors import ConfigError
from marltrain.core.layout import Array
from marltrain.core.spec import EnvSpec
from marltrain.policies.agents.agent import Agent
from marltrain.trainer.training.context import EarlierRun, TrainerSetup
from marltrain.trainer.training.run import Run


def check_finished(run: Run | None, whose: str) -> Run:
    """Return the run of a trainer's last call; raises ConfigError if there is none or it cannot be continued.

    whose: name of the trainer, for messages.
    """
    if run is None or not run.started:
        raise ConfigError(f"go_on: {whose} has not trained yet, so there is no run to continue: leave go_on out")
    if not run.finished:
        raise ConfigError(f"go_on: {whose} is training: continue its run when its call of train has returned")
    if run.context.folder is not None and run.context.folder.given_back:
        raise ConfigError(f"go_on: the run of {whose} failed before its first update, and its files are removed: leave "
                          "go_on out")  # fmt: skip
    if run.continued:
        raise ConfigError(f"go_on: another trainer has continued the run of {whose}: give go_on= that trainer")
    return run


def take_over(setup: TrainerSetup, run: Run) -> TrainerSetup:
    """Return the arguments of a trainer with the seed of another trainer's run, which it continues.

    Raises ConfigError if the trainer has another `run_dir` or seed than that run.
    """
    folder, seed = run.context.folder, run.context.seed
    if setup.run_dir is not None and _resolved(setup.run_dir) != (folder and _resolved(folder.path)):
        where = "nowhere" if folder is None else f"in {str(folder.path)!r}"
        raise ConfigError(f"go_on: the run is written {where}, and run_dir is {str(setup.run_dir)!r}: leave it out")
    if setup.settings.seed not in (None, seed):
        raise ConfigError(f"go_on: the run has seed {seed}, and seed={setup.settings.seed} was given: leave it out")
    return replace(setup, seed=seed)


def _resolved(folder: Path | bool) -> Path | None:
    return folder.resolve() if isinstance(folder, Path) else None


def results_of(
    run: Run,
    spec: EnvSpec,
    line_up: Sequence[Agent],
    *,
    rotate: bool,
    learning: Array,
    own: bool,
    columns: Sequence[str],
) -> EarlierRun:
    """Return the results of an earlier run for a call that continues it.

    line_up: the agents that play the tests of the new call.  rotate: whether they change seats.
    learning: [P] bool.  own: whether it is a run of the same trainer.  columns: see `episode_columns`.
    Raises ConfigError if the players differ, because the tables have a column for each player. Raises SaveError for a
    callback whose state is not JSON values.
    """
    context, names = run.context, run.context.envs.spec.names
    if spec.names != names:
        raise ConfigError(
            f"go_on: {spec.name} has the players {', '.join(spec.names)}, and the run had {', '.join(names)}. Give an "
            "environment with the same players, or leave go_on out"
        )
    if list(columns) != list(run.columns):
        raise ConfigError(
            f"go_on: the table of episodes has the further columns {list(run.columns)}, and this call needs "
            f"{list(columns)}: keep rotate= and the sets of policies in their seats, or leave go_on out"
        )
    same_agents = all(agent is other for agent, other in zip(line_up, context.line_up.agents, strict=True))
    same_learners = bool((run.masks.wanted[0] == learning).all())
    comparable = own and same_agents and rotate == (context.rotation is not None) and same_learners
    return EarlierRun(
        replace(run.counters), run.history, run.faults, run.selection.state(), run.clock.seconds, context.schedulers,
        context.all_callbacks.state(), comparable, run.due.tests.tested_at if comparable else (-1, -1),
    )  # fmt: skip


def same_memory(run: Run, spec: EnvSpec, num_envs: int) -> bool:
    """Return whether the streams of an earlier run can be used with these environments."""
    before = run.context.envs
    kinds = [[player.kind for player in one.players] for one in (before.spec, spec)]
    return kinds[0] == kinds[1] and (before.num_envs, before.spec.turn_based) == (num_envs, spec.turn_based)
