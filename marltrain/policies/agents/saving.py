"""Save agents to a folder and load them: `save` and `load`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from marltrain.core.errors import AgentError, SaveError, error_text, shown
from marltrain.core.settings import check_flags
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.custom_objects import CustomObjects
from marltrain.policies.agents.files import SavedAgents, check_seated, read_agents, write_agents
from marltrain.policies.agents.restore import check_place, restore
from marltrain.policies.agents.weights import weights_in, write_weights


def save(
    path: str | Path,
    agents: Agent | Sequence[Agent] | Mapping[str, Agent],
    *,
    players: Sequence[str] | None = None,
    weights_only: bool = False,
) -> None:
    """Write agents to the folder `path`; the write is atomic and replaces agents saved there before.

    agents: an agent, one for each seat, or agents by player's name or pattern, as `train` takes them; `load` then
        returns a mapping with the same keys.
    players: the seats' names, which are then valid keys of `custom_objects` in `load`; a run passes them. A mapping has
        them.
    weights_only: write the weights of networks and the statistics of observations alone, for `agent.load_weights`.

    An agent that sits in several seats is written once.
    Warns if one class name stands for different models; the warning shows the `custom_objects=` that loads them.
    Raises AgentError for objects that are not agents, and with `weights_only` for agents without networks of
    marltrain. Raises SaveError if `path` holds other files or cannot be written.
    """
    if isinstance(agents, str | Path):
        raise AgentError(f"save: agents must be agents, got {shown(agents)}: the path comes first, then the agents")
    seated: list[Agent] = [agents] if isinstance(agents, Agent) else _seated(agents)
    if by_name := isinstance(agents, Mapping):
        if players is not None or not all(isinstance(name, str) for name in agents):
            raise AgentError(
                f"save: a mapping of agents names the players by its keys, texts, got {shown(agents)} and "
                f"players={shown(players)}: leave players out"
            )
        players = tuple(agents)
    check_flags("save", weights_only=weights_only)
    for i, agent in enumerate(seated):
        if not isinstance(agent, Agent):
            raise AgentError(f"agents[{i}] must be an Agent, got {type(agent).__name__} ({agent!r})")
    if not weights_only:
        write_agents(path, seated, players=players, by_name=by_name)
        return
    distinct = check_seated(seated, players)
    states = [agent.state() for agent in distinct]
    for agent, state in zip(distinct, states, strict=True):
        if not weights_in(state.arrays):
            raise AgentError(f"save: a {type(agent).__name__} has no weights: leave weights_only out")
    place = {id(agent): i for i, agent in enumerate(distinct)}
    write_weights(path, states, [place[id(agent)] for agent in seated], players)


def _seated(agents: Sequence[Agent] | Mapping[str, Agent]) -> list[Agent]:
    return list(agents.values() if isinstance(agents, Mapping) else agents)


def load(
    path: str | Path,
    *,
    custom_objects: Mapping[Any, Any] | None = None,
    backend: str | None = None,
    device: str | None = None,
) -> Any:
    """Return the agents that `save` wrote: a list with one per seat, or the mapping that was saved.

    Seats with the same agent get the same object.

    path: the folder of `save`, or of a run: then its best agents, or the last if no test was played, as the log says.
    custom_objects: custom agent classes and models, by class name, by network ({"actor": ..., "critic": ...}), or by
        player or seat number ({"wolf": {"actor": ..., "critic": ...}, 1: ...}).
    backend: backend of the loaded agents, such as "torch"; None: the backend of the saved agents.
    device: device of the loaded agents, such as "cpu" or "cuda:1"; None: "auto", see `LearningAgent`.
    Raises SaveError with the file's name for any content that `save` does not write. Raises AgentError if `backend`
    differs from the framework of a CustomAgent's model or of a tianshou algorithm, or if `device` is given for them.
    """
    found = read_agents(path)
    agents = restored_agents(found, custom_objects, backend, device)
    return dict(zip(found.players, agents, strict=True)) if found.by_name else agents


def restored_agents(
    found: SavedAgents, custom_objects: Mapping[Any, Any] | None, backend: str | None, device: str | None
) -> list[Agent]:
    """Return the agents of the seats; see `load`."""
    file, states, seats, players = found[:4]
    shared = CustomObjects(custom_objects or {}, states, seats, players)
    for state in states:
        check_place(state.info, backend, device)
    agents = []
    for i, state in enumerate(states):
        try:
            agents.append(restore(state, custom_objects=shared.of(i), backend=backend, device=device))
        except Exception as error:  # invalid content may raise any exception
            raise SaveError(f"{file}: agent {i} cannot be restored: {error_text(error)}") from error
    return [agents[i] for i in seats]
