"""Resume: checks that a call of `train` matches the call that wrote the checkpoint."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import Enum
from typing import Any

import numpy as np
from gymnasium import Space

from marltrain.core.errors import AgentError, ConfigError, SpecError, warn
from marltrain.core.layout import Array
from marltrain.core.spaces import describe_space
from marltrain.core.spec import EnvSpec
from marltrain.core.version import version_of
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.agents.external import ExternalAgent
from marltrain.policies.agents.fixed import FrozenAgent
from marltrain.policies.backends import make_backend
from marltrain.policies.hyperparameters.schedules import Schedule
from marltrain.policies.memory.config import Replay
from marltrain.policies.networks.specs import NetworkSpec
from marltrain.storage.json_files import to_json
from marltrain.trainer.preparing.run_config import LIBRARIES, WHERE_LOADED, loaded
from marltrain.trainer.saving.checkpoint import FoundCheckpoint
from marltrain.trainer.training.context import TrainerSetup

FREE = {"episodes_per_train", "steps_per_train", "updates_per_train", "vector", "num_workers", "progress", "seed",
        "on_fault", "max_env_restarts", "env_timeout", "record", "resources", "address",
        "timeout", "runners", "min_runners", "learners", "learner_resources", "name"}  # fmt: skip
"""Trainer settings that may differ on resume: budgets, settings without effect on results, and the seed (`seed_of`)."""

SHOWN = 64
"""Maximum size of an array in `env_args` that a checkpoint stores by value; of larger ones it stores the checksum."""


def arguments_of(
    setup: TrainerSetup,
    spec: EnvSpec,
    agents: Sequence[Agent],
    test_agents: Sequence[Agent] | None,
    masks: tuple[Array, Array],
    *,
    rotate: bool,
    rotate_tests: bool,
) -> dict[str, Any]:
    """Return the arguments that a resumed call of `train` must repeat, as JSON values."""
    settings = {name: value for name, value in dataclasses.asdict(setup.settings).items() if name not in FREE}
    settings |= {name: None for name in ("batch_size", "update_freq") if name not in setup.settings.given}
    team, learning, exploring = setup.team_reward, *masks
    return {
        "env": spec.name,
        "env_args": described_argument(dict(setup.source.arguments)),
        "players": {
            player.name: [describe_space(player.observation_space), describe_space(player.action_space)]
            for player in spec.players
        },
        "trainer": {
            **to_json(settings),
            "team_reward": "a function" if callable(team) else to_json(team),
            "reward_metric": None if setup.reward_metric is None else "a function",
        },
        "agents": _described(agents, agents),
        "test_agents": None if test_agents is None else _described(test_agents, [*agents, *test_agents]),
        **({"rotate": True} if rotate else {}),
        **({} if rotate_tests or not (rotate or test_agents is not None) else {"rotate_tests": False}),
        "learning_mask": learning.tolist(),
        "exploration_mask": exploring.tolist(),
    }


def described_argument(value: Any) -> Any:
    """Return an argument of an environment as JSON values, for comparison; other objects only by their class."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        small = {"values": to_json(value)} if value.size <= SHOWN else {"sha256": digest}
        return {"dtype": str(value.dtype), "shape": list(value.shape), **small}
    if isinstance(value, Enum | bytes | bytearray | complex | range | slice):
        return repr(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        held = {field.name: described_argument(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"type": to_json(type(value)), **held}
    if isinstance(value, Space):
        with suppress(SpecError):  # a kind of space without a description
            return describe_space(value)
    if isinstance(value, Mapping):
        return {str(key): described_argument(inner) for key, inner in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((described_argument(inner) for inner in value), key=repr)
    return [described_argument(inner) for inner in value] if isinstance(value, list | tuple) else to_json(value)


def _described(agents: Sequence[Agent], among: Sequence[Agent]) -> list[dict[str, Any]]:
    """Return each agent's kind and the place of its first appearance, which shows one object in several seats."""
    first = {id(agent): place for place, agent in reversed(list(enumerate(among)))}
    return [{"place": first[id(agent)], **described_agent(agent)} for agent in agents]


def described_agent(agent: Agent) -> dict[str, Any]:
    """Return an agent's class, backend and settings as JSON values."""
    inner = agent.inner if isinstance(agent, FrozenAgent) else agent
    settings = getattr(inner, "settings", None)
    data: dict[str, Any] = {"type": type(inner).__name__, "frozen": inner is not agent}
    if isinstance(inner, LearningAgent):
        backend = inner.backend
        data |= {"backend": backend.name, "device": str(backend.device), "jit_compile": backend.jit_compile}
    if dataclasses.is_dataclass(settings):
        data["settings"] = {f.name: _setting(getattr(settings, f.name)) for f in dataclasses.fields(settings)}
    return data


def _setting(value: Any) -> Any:
    """Return a setting as a JSON value; custom objects by name only, since the module of a script's class varies."""
    if value is None or isinstance(value, bool | int | float | str | NetworkSpec | Replay | Schedule):
        return to_json(value)
    return getattr(value, "__name__", type(value).__name__)


def check(found: FoundCheckpoint, told: Mapping[str, Any], *, any_threads: bool) -> None:
    """Check that a call of `train` can resume a checkpoint; warn if the resumed run is not exact.

    told: the manifest that the new call would write.  any_threads: allow another number of threads.
    Raises ConfigError, naming it, for the first difference between the calls, and for another number of threads.
    """
    _check_call(found, told["call"])
    _check_threads(found, told["threads"], any_threads=any_threads)
    _warn(found, told["versions"])


def _check_call(found: FoundCheckpoint, now: Mapping[str, Any]) -> None:
    difference = difference_of(found.manifest["call"], now, "")
    if difference:
        raise ConfigError(
            f"{found.path} cannot be resumed by this call: {difference}. Repeat the arguments of the run (budgets "
            "and callbacks may differ), or start a new run"
        )


def difference_of(then: Any, now: Any, where: str) -> str:
    """Return a description of the first difference between JSON values, or ""."""
    if isinstance(then, dict) and isinstance(now, Mapping):
        for name in [*then, *(name for name in now if name not in then)]:
            inner = f"{where}.{name}".lstrip(".")
            if name not in then or name not in now:
                return f"{inner} is given only {'now' if name in now else 'there'}"
            if found := difference_of(then[name], now[name], inner):
                return found
        return ""
    if isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        pairs = enumerate(zip(then, now, strict=True))
        return next((text for i, (a, b) in pairs if (text := difference_of(a, b, f"{where}[{i}]"))), "")
    return "" if then == now else f"{where} is {now!r}, and was {then!r}"


def seed_of(found: FoundCheckpoint, asked: int | None) -> int:
    """Return the seed of the run; raises ConfigError if `asked` is another seed."""
    seed: int = found.manifest["seed"]
    if asked is not None and asked != seed:
        raise ConfigError(f"{found.path} is of a run with seed {seed}, and seed={asked} was given: leave it out")
    return seed


# Libraries and threads, which change results, too


def versions() -> dict[str, str]:
    """Return the versions of the libraries that this process uses for computations."""
    return {name: version_of(name) for name in (*LIBRARIES, *loaded(WHERE_LOADED))}


def threads(agents: Sequence[Agent]) -> dict[str, int]:
    """Return the number of threads of each framework that these agents use."""
    inner = [agent.inner if isinstance(agent, FrozenAgent) else agent for agent in agents]
    names = {agent.backend.name for agent in inner if isinstance(agent, LearningAgent)}
    names |= {agent.framework for agent in inner if isinstance(agent, ExternalAgent)}
    return {name: make_backend(name, "cpu").threads() for name in sorted(names)}


def _check_threads(found: FoundCheckpoint, now: Mapping[str, int], *, any_threads: bool) -> None:
    for name, then in found.manifest["threads"].items():
        if now.get(name, then) == then:
            continue
        text = f"{found.path} was computed with {then} threads of {name}, and there are {now[name]}"
        if not any_threads:
            raise ConfigError(
                f"{text}: sums differ in their last bits. Set OMP_NUM_THREADS={then}, or give any_threads=True"
            )
        warn(f"{text}: the run continues, but is not exact")


def _warn(found: FoundCheckpoint, there: Mapping[str, str]) -> None:
    """Warn of each reason why a run resumed from this checkpoint differs from the uninterrupted run."""
    data = [
        f"{found.path} was written with {name} {then}, this is {there[name]}: the run continues, but may not be exact"
        for name, then in found.manifest["versions"].items()
        if there.get(name, then) != then
    ]
    if not found.memory:
        data.append(
            f"{found.path} was written with memory=False: the run continues, but with an empty memory: it is not exact"
        )
    if not found.manifest["reproducible"]:
        data.append(
            f"{found.manifest['call']['env']} is marked as not reproducible: the run continues with new "
            "episodes, and is not exact"
        )
    for message in data:
        warn(message)


def check_resumable(agents: Sequence[Agent]) -> None:
    """Raise AgentError for an agent that cannot be saved in a checkpoint or restored from one.

    An agent that learns must define both `state` and `restore`; other agents define both or neither.
    """
    for agent in (agent.inner if isinstance(agent, FrozenAgent) else agent for agent in agents):
        missing = [name for name in ("state", "restore") if getattr(type(agent), name) is getattr(Agent, name)]
        if missing and (agent.learns or len(missing) == 1):
            raise AgentError(
                f"Checkpoint: a {type(agent).__name__} defines no {' and no '.join(missing)}: what it is would be "
                "lost. Define state() -> AgentState and restore(state)"
            )
