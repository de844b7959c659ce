"""Candidates of a comparison: how the agents of each are made, from an algorithm or from agents that exist already."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, cast

from marltrain.errors import AgentError, ConfigError, shown
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.batch import AgentState
from marltrain.random import child_seed
from marltrain.trainer.make_agents import make_agents

MakeAgents = Callable[[int, Mapping[str, Any]], list[Agent]]
"""(seed, settings) -> agents, one for each player, with some settings changed."""


@dataclass(frozen=True)
class Candidate:
    """A candidate: its name in tables, what it stands for, and how its agents are made from a seed."""

    name: str
    value: Any
    make: Callable[[int], list[Agent]]


def maker_of(agents: Any, env: Any, env_args: Mapping[str, Any] | None, settings: Mapping[str, Any]) -> MakeAgents:
    """Return what makes the agents of candidates.

    agents: the first argument of `make_agents`, or a list of agents, one for each player, of which copies are made.
    settings: further arguments of `make_agents`; none for agents.
    """
    given = list(agents) if isinstance(agents, list | tuple) else [agents]
    if not any(isinstance(agent, Agent) for agent in given):
        return lambda seed, changes: make_agents(
            _changed(agents, changes), env, env_args=env_args, seed=seed, **{**settings, **changes}
        )
    if not all(isinstance(agent, Agent) for agent in given) or isinstance(agents, Agent):
        raise AgentError(f"agents must be an algorithm, or a list with one agent per player, got {shown(agents)}")
    if settings:
        raise ConfigError(f"agents have their settings already: leave {', '.join(settings)} out")
    return lambda seed, changes: copies_of(given, seed, changes)


def copies_of(agents: Sequence[Agent], seed: int, changes: Mapping[str, Any]) -> list[Agent]:
    """Return copies of agents with the same weights, random numbers below `seed`, and some settings changed.

    The optimizers' moments are copied unless the optimizer changes. One object that holds several seats has one copy.
    """
    made: dict[int, Agent] = {}
    for i, agent in enumerate(agents):
        if id(agent) not in made:
            made[id(agent)] = _copy_of(agent, child_seed(seed, "agent", i), changes)
    return [made[id(agent)] for agent in agents]


def _copy_of(agent: Agent, seed: int, changes: Mapping[str, Any]) -> Agent:
    if not isinstance(agent, LearningAgent):
        if agent.learns:
            raise AgentError(f"a {type(agent).__name__} cannot be copied with other settings: give a LearningAgent")
        copied = agent.frozen_copy()
        copied.seed = seed if copied.seed is None else copied.seed
        return copied
    settings = {f.name: getattr(agent.settings, f.name) for f in fields(agent.settings)}
    numbers = agent.learner_.export(agent.row).info
    now = {**numbers["hyper"], **numbers["common"]}
    settings |= {name: value for name, value in now.items() if name not in numbers["schedules"]} | dict(changes)
    backend, kind = agent.backend, cast(Any, type(agent))
    made = kind(
        agent.observation_space, agent.action_space, backend=backend.name, device=str(backend.device),
        jit_compile=backend.jit_compile, strategy=backend.strategy, frame_stack=agent._seated()[0].stack,
        identity=agent.identity, seed=seed, **settings,
    )  # fmt: skip
    return _with_weights(made, agent, moments="optimizer" not in changes)


def _with_weights(made: LearningAgent, agent: LearningAgent, *, moments: bool) -> LearningAgent:
    """Load another agent's weights, running statistics and, with `moments`, the state of its optimizers."""
    own, theirs = made.learner_.export(made.row), agent.learner_.export(agent.row)
    kept = ("net/", "statistics/", "team/", "optimiser/") if moments else ("net/", "statistics/", "team/")
    arrays = {name: array for name, array in theirs.arrays.items() if name.startswith(kept)}
    made.learner_.load(made.row, AgentState(own.info, {**own.arrays, **arrays}))
    return made


def _changed(name: Any, changes: Mapping[str, Any]) -> Any:
    """Return the argument `name` of `make_agents` with settings changed in every pair (algorithm, settings)."""
    if isinstance(name, Mapping):
        return {key: _changed(value, changes) for key, value in name.items()}
    if isinstance(name, tuple) and len(name) == 2 and isinstance(name[1], Mapping):
        return name[0], {**name[1], **changes}
    if isinstance(name, list | tuple):
        return [_changed(value, changes) for value in name]
    return name
