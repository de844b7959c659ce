"""Save agents to a folder and load them: `save` and `load`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from marltrain.errors import AgentError, SaveError, error_text
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.files import read_agents, write_agents
from marltrain.policies.agents.restore import check_backend, restore
from marltrain.policies.agents.supply import Supply


def save(path: str | Path, agents: Agent | Sequence[Agent], *, players: Sequence[str] | None = None) -> None:
    """Write agents to the folder `path`; the write is atomic and replaces agents saved there before.

    players: the seats' names, which are then valid keys of `supply` in `load`; a run passes them.

    An agent that sits in several seats is written once.
    Warns if one class name stands for different models; the warning shows the `supply=` that loads them.
    Raises AgentError for objects that are not agents, SaveError if `path` holds other files or cannot be written.
    """
    seated = [agents] if isinstance(agents, Agent) else list(agents)
    for i, agent in enumerate(seated):
        if not isinstance(agent, Agent):
            raise AgentError(f"agents[{i}] must be an Agent, got {type(agent).__name__} ({agent!r})")
    write_agents(path, seated, players=players)


def load(path: str | Path, *, supply: Mapping[Any, Any] | None = None, backend: str | None = None) -> list[Agent]:
    """Return the agents that `save` wrote, one per seat; seats with the same agent get the same object.

    supply: custom agent classes and models, by class name, by network ({"actor": ..., "critic": ...}), or by player or
        seat number ({"wolf": {"actor": ..., "critic": ...}, 1: ...}).
    backend: backend of the loaded agents, such as "torch"; None: the backend of the saved agents.
    Raises SaveError with the file's name for any content that `save` does not write. Raises AgentError if `backend`
    differs from the framework of a CustomAgent's model or of a tianshou algorithm.
    """
    file, states, seats, players = read_agents(path)
    shared = Supply(supply or {}, states, seats, players)
    for state in states:
        check_backend(state.info, backend)
    agents = []
    for i, state in enumerate(states):
        try:
            agents.append(restore(state, supply=shared.of(i), backend=backend))
        except Exception as error:  # invalid content may raise any exception
            raise SaveError(f"{file}: agent {i} cannot be restored: {error_text(error)}") from error
    return [agents[i] for i in seats]
