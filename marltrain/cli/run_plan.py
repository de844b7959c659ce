"""The plan of a run from the options of `marltrain train`, or from a file that its first argument names."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from marltrain.cli.agents import algorithms_and_settings
from marltrain.cli.callbacks import pop_callbacks
from marltrain.cli.options import add_working_folder, key_values, pop_given
from marltrain.cli.teams import pop_teams
from marltrain.core.errors import ConfigError

if TYPE_CHECKING:
    from marltrain.tools.run_files.plan import RunPlan
    from marltrain.trainer.events.callbacks import Callback

FLAGS = ("share", "identify", "self_play", "tuned")


def pop_plan(options: dict[str, Any]) -> RunPlan:
    """Remove the options of a run and return its plan; options take precedence over a file.

    Raises ConfigError for wrong options, and for a file that names code of the user's own without `--env`.
    """
    from marltrain.tools.run_files.plan import RunPlan
    from marltrain.tools.run_files.reading import is_run_file
    from marltrain.trainer.settings import TrainerSettings

    env, own_env = options.pop("env"), options.pop("own_env", None)
    from_file = is_run_file(env)
    if own_env is not None and not from_file:
        raise ConfigError("--env has a meaning only with the file of a run")
    plan = _read(env, own_env, overridden=options) if from_file else RunPlan(env)
    plan = _begun(plan, options)
    add_working_folder(plan.env)
    env_args = {**plan.env_args, **key_values("--env-arg", options.pop("env_arg", []))}
    plan = _with_settings(plan, options.pop("algo", []), key_values("--set", options.pop("set", [])))
    of_options = pop_given(options, *FLAGS, "backend", "weights", "run_dir") | pop_teams(options)
    for name in ("resources", "learner_resources"):
        if name in options:
            options[name] = key_values(f"--{name.replace('_', '-')}", options[name])
    if options.pop("dashboard", False):
        if not options.setdefault("progress", "dashboard"):
            raise ConfigError("--dashboard has no meaning with --no-progress")
        options["progress"] = "dashboard"
    callbacks = _joined(plan.callbacks, pop_callbacks(options))
    trainer = {**plan.trainer, **pop_given(options, *(f.name for f in fields(TrainerSettings)))}
    return replace(plan, env_args=env_args, trainer=trainer, callbacks=callbacks, **of_options)


def _joined(of_file: Sequence[Callback], of_options: Sequence[Callback]) -> tuple[Callback, ...]:
    """Return the callbacks of a file and of options; raises ConfigError for a logger that both name."""
    from marltrain.trainer.reporting.scalar_logger import ScalarLogger

    kinds = {type(callback) for callback in of_file if isinstance(callback, ScalarLogger)}
    for callback in of_options:
        if type(callback) in kinds:
            raise ConfigError(f"--log: the file has a {type(callback).__name__} already: leave the option out")
    return (*of_file, *of_options)


def _read(path: str, env: str | None, *, overridden: Collection[str]) -> RunPlan:
    from marltrain.envs.registry import imports_only_known
    from marltrain.tools.run_files.reading import read_plan

    plan = read_plan(path, overridden)
    if env is None and not imports_only_known(plan.env):
        raise ConfigError(
            f"{path}: the run's environment is {plan.env!r}. No file may choose what code is run: if you know this "
            "one, name it yourself with --env"
        )
    return plan if env is None else replace(plan, env=env)


def _begun(plan: RunPlan, options: dict[str, Any]) -> RunPlan:
    """Return the plan with the settings of the file of `--settings`, if there is one, which all others override."""
    from marltrain.tools.run_files.reading import read_settings

    file = options.pop("settings", None)
    if file is None:
        return plan
    if options.get("tuned", plan.tuned):
        raise ConfigError("--tuned and --settings both give settings to begin with: leave one of them out")
    known = read_settings(file, options)
    reward = known["trainer"].pop("team_reward", None)
    return replace(
        plan, trainer={**known["trainer"], **plan.trainer}, settings={**known["agents"], **plan.settings},
        team_reward=reward if plan.team_reward is None else plan.team_reward,
    )  # fmt: skip


def _with_settings(plan: RunPlan, algos: list[str], settings: Mapping[str, Any]) -> RunPlan:
    """Return the plan with the algorithms of `--algo`, if there are some, and the settings of `--set`.

    The settings for all players take precedence over those of players in a file.
    """
    from marltrain.tools.run_files.plan import PlayerPlan

    if not algos and plan.algo is None and not plan.players:
        raise ConfigError("train: no algorithm is given: name one with --algo")
    kept = algos or ([plan.algo] if plan.algo is not None else [f"{name}={p.algo}" for name, p in plan.players.items()])
    kinds, common = algorithms_and_settings(kept, settings)
    if not isinstance(kinds, dict):
        return replace(plan, algo=kinds, players={}, settings={**plan.settings, **common})
    if algos:
        players = {name: PlayerPlan(kind, own) for name, (kind, own) in kinds.items()}
        return replace(plan, algo=None, players=players, settings={**plan.settings, **common})
    players = {
        name: replace(own, settings={**own.settings, **common, **kinds[name][1]}) for name, own in plan.players.items()
    }
    return replace(plan, players=players)
