"""The devices of agents made with device="auto": those of a team get a common one, and the run reports the choices."""

from __future__ import annotations

from collections.abc import Sequence

from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.agents.fixed import FrozenAgent
from marltrain.policies.agents.placement import CPU, Placement, moved
from marltrain.policies.backends import first_gpu
from marltrain.policies.interface.joint import JointAlgorithm


def learning_agents(agents: Sequence[Agent]) -> list[LearningAgent]:
    """Return the agents with networks of marltrain, each once; of a frozen agent, the agent inside."""
    inner = {id(agent): agent for agent in (a.inner if isinstance(a, FrozenAgent) else a for a in agents)}
    return [agent for agent in inner.values() if isinstance(agent, LearningAgent)]


def join_devices(agents: Sequence[Agent]) -> None:
    """Move agents of a team whose devices were chosen by "auto" to the device of the others.

    This is the device that was given for one of them, or else a GPU that was chosen for one of them.
    """
    teams: dict[tuple[str, str, str], list[LearningAgent]] = {}
    for agent in learning_agents(agents):
        if isinstance(agent.algorithm, JointAlgorithm):
            key = agent.algorithm.name, agent.algorithm.settings.team, agent.backend.name
            teams.setdefault(key, []).append(agent)
    for team in teams.values():
        if len({str(agent.backend.device) for agent in team}) == 1:
            continue
        given = [str(agent.backend.device).lstrip("/") for agent in team if agent.placement is None]
        placed = [(agent, agent.placement.device) for agent in team if agent.placement is not None]
        device = (given or [device for _, device in placed if device != CPU])[0]
        for agent, own in placed:
            if own != device:
                agent.placement = Placement(device, "another agent of its team computes there")
                agent.attach(moved(agent.learner_, agent.row, device), 0)


def device_lines(agents: Sequence[Agent], names: Sequence[str]) -> list[str]:
    """Return a line for each choice of "auto" where there is a GPU: the device, the players and the reason."""
    players: dict[Placement, list[str]] = {}
    for agent, name in zip(agents, names, strict=True):
        for inner in learning_agents([agent]):
            if inner.placement is not None and first_gpu(inner.backend.name) is not None:
                players.setdefault(inner.placement, []).append(name)
    return [
        f'device="auto" is {placement.device} for {", ".join(own[:3])}{f" and {len(own) - 3} more" if own[3:] else ""}'
        f" ({placement.reason})"
        for placement, own in players.items()
    ]
