"""config.json: the settings and versions of a run."""

from __future__ import annotations

import math
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

from marltrain.core.layout import Array
from marltrain.core.processor import processor
from marltrain.core.spec import EnvSpec
from marltrain.core.version import version_of
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.agents.external import ExternalAgent
from marltrain.policies.agents.fixed import FrozenAgent
from marltrain.policies.agents.registry import registered_name
from marltrain.policies.backends import BACKENDS, make_backend
from marltrain.storage.json_files import to_json, write_json
from marltrain.trainer.events.callbacks import Callback
from marltrain.trainer.reporting.config_file import CONFIG, HEADER
from marltrain.trainer.reporting.functions import described_function
from marltrain.trainer.saving.places import PlaceInRun
from marltrain.trainer.settings import Default
from marltrain.trainer.training.context import TrainerSetup

LIBRARIES = ("marltrain", "gymnasium", "numpy", "pettingzoo")
WHERE_LOADED = ("keras", "tensorflow", "tianshou", "torch")
PLACES = ("path", "folder", "uri")
"""Arguments of callbacks that config.json does not hold: a run made from it overwrites no file, and an address may hold
a password."""


def record(
    folder: Path, setup: TrainerSetup, spec: EnvSpec, agents: Sequence[Agent], masks: tuple[Array, Array], memory: int,
    line_up: tuple[Sequence[Agent], bool] | None = None, *, rotate: bool = False,
) -> None:  # fmt: skip
    """Write config.json: environment, trainer settings, each seat's agent, seed, versions, processor and threads.

    Seats that hold the same agent have the same "agent_index". "given": the trainer's settings that other values do not
    replace. "code": what changes the run and has no JSON form, such as functions. "reward_metric": that function, by
    its name and the hash of its code. "tests": null, or the line-up of the tests: "agents", the "agent_index" of
    those that train and the "type" of others, and "rotate", whether they change seats. "rotate": true, if the agents
    change seats in training.

    memory: bytes of the rows to learn from, when the memory is full.  line_up: the agents that play the tests and
    whether they change seats; None: the agents that train.
    """
    learning, exploring = masks
    held = {agent: i for i, agent in enumerate(dict.fromkeys(map(id, agents)))}
    seats: list[dict[str, Any]] = [
        {
            "player": name, "agent": _described(agent), "agent_index": held[id(agent)],
            "learns": bool(learns), "explores": bool(explores),
        }
        for name, agent, learns, explores in zip(spec.names, agents, learning, exploring, strict=True)
    ]  # fmt: skip
    write_json(
        folder / CONFIG,
        {
            **HEADER,
            "env": spec.name,
            "env_args": to_json(dict(setup.source.arguments)),
            "algo": "+".join(dict.fromkeys(seat["agent"]["type"] for seat in seats)),
            "seed": setup.seed,
            "reproducible": spec.reproducible,
            "memory_bytes": memory,
            "trainer": {**to_json(asdict(setup.settings)), "team_reward": to_json(setup.team_reward)},
            "given": [
                f.name for f in fields(setup.settings) if not isinstance(getattr(setup.settings, f.name), Default)
            ],
            "code": _code(setup, agents),
            "reward_metric": None if setup.reward_metric is None else described_function(setup.reward_metric),
            "seats": seats,
            **({"rotate": True} if rotate else {}),
            "tests": None if line_up is None else _tests(*line_up, held),
            "callbacks": [to_json(_without_places(described_callback(callback))) for callback in setup.callbacks],
            "versions": {
                "python": platform.python_version(),
                "numba": version_of("numba"),
                **{name: version_of(name) for name in (*LIBRARIES, *loaded(WHERE_LOADED))},
            },
            "processor": {"name": processor(), "cores": os.cpu_count()},
            "threads": {name: make_backend(name, "cpu").threads() for name in loaded(BACKENDS)},
        },
    )


def _tests(line_up: Sequence[Agent], rotate: bool, held: Mapping[int, int]) -> dict[str, Any]:
    """Return the line-up of the tests; held: the index of each agent that trains, by its identity."""
    agents = [
        {"agent_index": held[id(agent)]} if id(agent) in held else {"type": type(agent).__name__} for agent in line_up
    ]
    return {"agents": agents, "rotate": rotate}


def _code(setup: TrainerSetup, agents: Sequence[Agent]) -> list[str]:
    """Return the names of arguments that change the run and that JSON cannot hold."""
    functions = {
        "train_fn": setup.hooks.train.function, "test_fn": setup.hooks.test.function, "stop_fn": setup.hooks.stop_fn,
        "reward_metric": setup.reward_metric,
    }  # fmt: skip
    found = [name for name, function in functions.items() if function is not None]
    if any(isinstance(agent, LearningAgent) and agent.backend.strategy is not None for agent in agents):
        found.append("strategy")
    return found + [f"env_args: {name}" for name, value in setup.source.arguments.items() if not _is_json(value)]


def _is_json(value: Any) -> bool:
    """Return whether `to_json` loses nothing of a value but the difference of tuples and lists."""
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_json(inner) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_json, value))
    return value is None or type(value) in (bool, int, str) or (type(value) is float and math.isfinite(value))


def loaded(names: Sequence[str]) -> list[str]:
    """Return the names of modules that this process has imported; others have no effect on results."""
    return [name for name in names if name in sys.modules]


def described_callback(callback: Callback) -> dict[str, Any]:
    """Return a callback's type, and its settings, players and further arguments if it has some."""
    settings: Any = getattr(callback, "settings", None)
    players = getattr(callback, "players", None)
    own = asdict(settings) if is_dataclass(type(settings)) else {}
    for name in callback.described_by:
        value = getattr(callback, name)
        own[name] = str(value) if isinstance(value, Path | PlaceInRun) else value
    return {"type": type(callback).__name__, **own, **({} if players is None else {"players": players})}


def _without_places(described: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in described.items() if name not in PLACES}


def _described(agent: Agent) -> dict[str, Any]:
    """Return an agent's type (registered name or class), seed, backend and settings as JSON values."""
    inner = agent.inner if isinstance(agent, FrozenAgent) else agent
    if not isinstance(inner, LearningAgent):
        own = {"backend": inner.framework} if isinstance(inner, ExternalAgent) else {}
        return {"type": type(agent).__name__, "seed": agent.seed, **own}
    settings = {name: to_json(getattr(inner.settings, name)) for name in dir(inner.hyper)}
    own_class = registered_name(type(inner)) or type(inner).__name__
    kind = own_class if inner is agent else f"frozen {own_class}"
    backend = inner.backend
    place = {"backend": backend.name, "device": str(backend.device), "jit_compile": backend.jit_compile}
    if inner.placement is not None:
        place["device_reason"] = f"auto: {inner.placement.reason}"
    identity = {"identity": list(inner.identity)} if inner.identity else {}
    return {"type": kind, "seed": inner.seed, **identity, **place, "settings": settings}
