"""The plan of a run from its config.json."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from marltrain.core.errors import ConfigError, MarlTrainError, SaveError, error_text, shown, warn
from marltrain.policies.agents.fixed import RandomAgent
from marltrain.policies.agents.placement import AUTO
from marltrain.policies.agents.registry import ALGORITHMS
from marltrain.policies.hyperparameters.schedules import Schedule
from marltrain.policies.memory.config import Replay
from marltrain.policies.networks.specs import spec_from
from marltrain.tools.run_files.callbacks import CALLBACKS, SERVICES, imports_nothing, make_callback
from marltrain.tools.run_files.limits import without_options
from marltrain.tools.run_files.line_up import RANDOM
from marltrain.tools.run_files.plan import PlayerPlan, RunPlan
from marltrain.tools.run_files.sharing import by_agent
from marltrain.trainer.preparing.run_config import PLACES
from marltrain.trainer.reporting.config_file import read_config
from marltrain.trainer.settings import TrainerSettings

SCHEDULE = {"kind", "start", "stop", "steps"}


def plan_of_config(file: Path, overridden: Collection[str] = ()) -> RunPlan:
    """Return the plan that makes the run of a config.json again; raises SaveError for another file.

    overridden: names of the trainer's settings that options give, see `limits.without_options`.
    Raises ConfigError for a run that holds code of the user's own, such as a function, a model or an agent class.
    """
    config = read_config(file)
    try:
        return _plan(file, config, overridden)
    except MarlTrainError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SaveError(f"{file}: does not describe a run: {error_text(error)}") from error


def _plan(file: Path, config: Mapping[str, Any], overridden: Collection[str]) -> RunPlan:
    players = {
        seat["player"]: PlayerPlan(*_agent(file, seat["player"], seat["agent"]), bool(seat["learns"]), seat["explores"])
        for seat in config["seats"]
    }
    agents = [seat["agent"] for seat in config["seats"]]
    if config["code"]:
        raise ConfigError(f"{file}: the run has code of your own: {', '.join(config['code'])}. Train it from Python")
    held = [seat["agent_index"] for seat in config["seats"]]
    shared = len(set(held)) < len(held)
    places = {agent["backend"] for agent in agents if "backend" in agent}
    reward = config["trainer"].get("team_reward")
    if isinstance(reward, str) and reward not in ("mean", "sum"):
        raise ConfigError(f"{file}: team_reward is a function of your own, {reward}: train this run from Python")
    if len(places) > 1:
        raise ConfigError(
            f"{file}: agents of several frameworks, {', '.join(sorted(places))}: train this run from Python"
        )
    plan = RunPlan(
        config["env"], config["env_args"], players=players, share=shared,
        trainer={**_trainer(file, config, overridden), "seed": config["seed"]},
        backend=next(iter(places), None),
        identify=any("identity" in agent for agent in agents), team_reward=reward,
        test_against=_test_against(file, config),
        callbacks=_callbacks(file, config.get("callbacks", [])),
    )  # fmt: skip
    return plan.joined() if not shared or len(set(held)) == 1 else replace(plan, players=by_agent(players, held))


def _test_against(file: Path, config: Mapping[str, Any]) -> Any:
    """Return who plays at random in the tests; warns of other line-ups. Earlier versions did not record them."""
    tests = config.get("tests")
    if tests is None:
        return None
    seats, entries, rotate = config["seats"], tests["agents"], tests["rotate"]
    held = [seat["agent_index"] for seat in seats]
    random = [entry.get("type") == RandomAgent.__name__ for entry in entries]
    kept = [i for i, entry in enumerate(entries) if entry.get("agent_index") == held[i]]
    if len(kept) + sum(random) == len(entries):
        if not rotate:
            return {seats[i]["player"]: RANDOM for i, at_random in enumerate(random) if at_random} or None
        if kept == [0] and len(set(held)) == 1:
            return RANDOM
    warn(f"{file}: the line-up of the run's tests is left out, since a file holds random players only: its agents play "
         "the tests")  # fmt: skip
    return None


def _trainer(file: Path, config: Mapping[str, Any], overridden: Collection[str]) -> dict[str, Any]:
    """Return the arguments of the trainer, without defaults that other values replace."""
    try:
        values = without_options(config["trainer"], overridden)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from error
    names = {f.name for f in fields(TrainerSettings)} & set(config["given"]) - {"seed"}
    return {name: tuple(v) if isinstance(v, list) else v for name, v in values.items() if name in names}


def _agent(file: Path, player: str, agent: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the algorithm and the settings of a seat."""
    kind = agent["type"]
    if kind == RandomAgent.__name__:
        return "random", {}
    if kind not in ALGORITHMS:
        raise ConfigError(
            f"{file}: the agent of {player!r} is a {kind}, which no file can make: train this run from Python"
        )
    settings = {name: _value(file, f"{player}: {name}", name, value) for name, value in agent["settings"].items()}
    device = AUTO if "device_reason" in agent else agent["device"]
    return kind, {**settings, "device": device, "jit_compile": agent["jit_compile"]}


def _value(file: Path, where: str, name: str, value: Any) -> Any:
    """Return a setting from its description; see `json_files.to_json`."""
    if isinstance(value, dict):
        if set(value) == SCHEDULE:
            return Schedule(**value)
        return Replay.described(value) if name == "memory" else spec_from(value)
    if isinstance(value, str) and ":" in value:
        raise ConfigError(f"{file}: {where} is code of your own, {shown(value)}: train this run from Python")
    return tuple(value) if isinstance(value, list) else value


def _callbacks(file: Path, entries: list[dict[str, Any]]) -> list[Any]:
    """Return the callbacks that files can hold, but loggers of services; warns of others.

    Files that they write have their default places.
    """
    kept = [e for e in entries if e["type"] in CALLBACKS and e["type"] not in SERVICES and imports_nothing(e)]
    if others := [entry["type"] for entry in entries if entry not in kept]:
        warn(
            f"{file}: callbacks that are not made from a config.json are left out: {', '.join(others)}. Give loggers "
            "again (--log), and others in Python"
        )
    return [make_callback({name: value for name, value in entry.items() if name not in PLACES}) for entry in kept]
