"""Agents in a folder: `save` and `load`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from marltrain.errors import AgentError, SaveError, spoken
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.files import read_agents, write_agents
from marltrain.policies.agents.restore import check_backend, restore
from marltrain.policies.agents.supply import Supply


def save(path: str | Path, agents: Agent | Sequence[Agent], *, players: Sequence[str] | None = None) -> None:
    """Write agents to the folder `path`, taking the place of agents saved there before; all or nothing.

    An agent that sits in several seats is written once.
    players: the seats' names, by which `load` may be given what the agents are made of; a run gives them.
    Warns where one class name stands for different models; the warning names the `supply=` that loads them.
    Raises AgentError for what is no agent, SaveError where `path` holds something else, or cannot be written.
    """
    seated = [agents] if isinstance(agents, Agent) else list(agents)
    for i, agent in enumerate(seated):
        if not isinstance(agent, Agent):
            raise AgentError(f"agents[{i}] must be an Agent, got {type(agent).__name__} ({agent!r})")
    write_agents(path, seated, players=players)


def load(path: str | Path, *, supply: Mapping[Any, Any] | None = None, backend: str | None = None) -> list[Agent]:
    """Read the agents that `save` wrote: one a seat, the same object in every seat that one agent had.

    supply: the agent classes and models of your own that the agents were made of, by class name, by network
        ({"actor": ..., "critic": ...}), or by player or seat number ({"wolf": {"actor": ..., "critic": ...}, 1: ...}).
    backend: "torch" or another to compute with; None: the one they were saved with.
    Raises SaveError, naming the file, for anything but exactly what `save` writes, AgentError where `backend` is not
    the framework of a model of your own in a CustomAgent or of a tianshou algorithm.
    """
    file, states, seats, players = read_agents(path)
    shared = Supply(supply or {}, states, seats, players)
    for state in states:
        check_backend(state.info, backend)
    agents = []
    for i, state in enumerate(states):
        try:
            agents.append(restore(state, supply=shared.of(i), backend=backend))
        except Exception as error:  # what is not as it should be may fail anywhere
            raise SaveError(f"{file}: agent {i} cannot be restored: {spoken(error)}") from error
    return [agents[i] for i in seats]
