"""The complete settings of a trainer and of agents, as they were made."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from marltrain.core.errors import ConfigError
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.trainer.settings import Default, TrainerSettings


def settings_of_trainer(settings: TrainerSettings) -> dict[str, Any]:
    """Return the settings of a trainer, without defaults that other values replace and without those that are None."""
    every = {f.name: getattr(settings, f.name) for f in fields(settings)}
    return {
        name: value for name, value in every.items()
        if not isinstance(value, Default) and not (value is None and default_of(settings, name) is None)
    }  # fmt: skip


def default_of(settings: Any, name: str) -> Any:
    """Return the default of a field of settings."""
    return next(f.default for f in fields(settings) if f.name == name)


def settings_of_agent(player: str, agent: Agent) -> dict[str, Any]:
    """Return every setting of an agent, its device and whether it compiles; raises ConfigError for code of the user's.

    player: for errors.
    """
    if not isinstance(agent, LearningAgent):
        return {}
    found: dict[str, Any] = {}
    for f in fields(agent.settings):
        value = getattr(agent.settings, f.name)
        if not f.metadata.get("saved", True) and value is not None and not isinstance(value, str):
            raise ConfigError(f"player {player!r}: no file can hold its {f.name}: give it in Python, to make_agents")
        found[f.name] = value
    if agent.backend.strategy is not None:
        raise ConfigError(f"player {player!r}: no file can hold its strategy: give it in Python, to make_agents")
    return {**found, "device": str(agent.backend.device), "jit_compile": agent.backend.jit_compile}
