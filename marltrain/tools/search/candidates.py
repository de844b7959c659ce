"""Candidates of a comparison: how the agents of each are made, from an algorithm or from agents that exist already."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, cast

import numpy as np

from marltrain.core.errors import AgentError, ConfigError, MarlTrainError, error_text, shown
from marltrain.core.seeds import child_seed
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.agents.fixed import FrozenAgent, FunctionAgent, RandomAgent
from marltrain.policies.batches.batch import AgentState
from marltrain.storage.json_files import to_json
from marltrain.trainer.make_agents import RANDOM, make_agents
from marltrain.trainer.preparing.resume import described_agent
from marltrain.trainer.reporting.functions import described_function

OF_ALL = ("share", "identify", "teams", "backend")
"""Arguments of `make_agents` that apply to all agents; others are settings of an entry."""
COPIED = ("net/", "statistics/", "team/", "optimizer/")
"""Beginnings of the names of arrays of an agent that its copies take over."""
MakeAgents = Callable[[Mapping[str, Any], int], list[Agent]]
"""(changed settings, seed) -> agents, one for each player."""


@dataclass(frozen=True)
class Candidate:
    """A candidate: its name in tables, what it stands for, and how its agents are made from a seed."""

    name: str
    value: Any
    make: Callable[[int], list[Agent]]

    def agents(self, seed: int, players: Sequence[str]) -> list[Agent]:
        """Return the agents of a seed, one for each player; an error of the candidate names it."""
        try:
            result = self.make(seed)
            if len(result) != len(players):
                raise AgentError(
                    f"{len(result)} agents, and {len(players)} players ({', '.join(players)}): give one each"
                )
            return result
        except MarlTrainError as error:
            raise type(error)(f"candidate {self.name!r}: {error}") from error
        except Exception as error:  # of a user's class
            raise AgentError(f"candidate {self.name!r}: its agents cannot be made: {error_text(error)}") from error


def rate_names(rates: Sequence[float]) -> list[str]:
    """Return the names of numbers: three digits, or as many as tell different numbers apart; 17 always do."""
    for digits in range(3, 17):
        names = [f"{rate:.{digits}g}" for rate in rates]
        if len(set(names)) == len(set(rates)):
            return names
    return [f"{rate:.17g}" for rate in rates]


def check_different(names: Sequence[str]) -> None:
    """Raise ConfigError for fewer than two candidates, and for candidates that are given twice."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice or len(names) < 2:
        remedy = f"; {', '.join(twice)} is there more than once" if twice else ""
        raise ConfigError(f"find: give at least 2 different candidates, got {', '.join(names) or 'none'}{remedy}")


def described(agents: Any) -> Any:
    """Return what tells first arguments of `make_agents`, or agents, apart, as JSON values: agents by their weights."""
    if isinstance(agents, Agent):
        inner = agents.inner if isinstance(agents, FrozenAgent) else agents
        data = described_agent(agents)
        if isinstance(inner, LearningAgent):
            return {**data, "sha256": _digest(inner)}
        if isinstance(inner, FunctionAgent):
            return {**data, "function": described_function(inner.function)}
        return {**data, "seed": getattr(inner, "seed", None)}
    if isinstance(agents, Mapping):
        return {str(name): described(own) for name, own in agents.items()}
    return [described(own) for own in agents] if isinstance(agents, list | tuple) else to_json(agents)


def _digest(agent: LearningAgent) -> str:
    """Return a checksum of an agent's weights, moments, statistics and settings of now."""
    state = agent.learner_.export(agent.row)
    digest = hashlib.sha256(repr([to_json(state.info[name]) for name in ("hyper", "common")]).encode())
    for name in sorted(name for name in state.arrays if name.startswith(COPIED)):
        digest.update(name.encode() + np.ascontiguousarray(state.arrays[name]).tobytes())
    return digest.hexdigest()


def maker_of(agents: Any, env: Any, env_args: Mapping[str, Any] | None, settings: Mapping[str, Any]) -> MakeAgents:
    """Return what makes the agents of candidates.

    agents: the first argument of `make_agents`, or a list of agents, one for each player, of which copies are made.
    settings: further arguments of `make_agents`; none for agents.
    """
    originals = list(agents) if isinstance(agents, list | tuple) else [agents]
    if not any(isinstance(agent, Agent) for agent in originals):
        return partial(new_agents, agents, env, env_args, settings)
    if not all(isinstance(agent, Agent) for agent in originals) or isinstance(agents, Agent):
        raise AgentError(f"agents must be an algorithm, or a list with one agent per player, got {shown(agents)}")
    if settings:
        raise ConfigError(f"agents have their settings already: leave {', '.join(settings)} out")
    return partial(copies_of, originals)


def copies_of(agents: Sequence[Agent], changes: Mapping[str, Any], seed: int) -> list[Agent]:
    """Return copies of agents with the same weights, random numbers below `seed`, and some settings changed.

    The optimizers' moments are copied unless the optimizer changes. One object that holds several seats has one copy.
    """
    result: dict[int, Agent] = {}
    for i, agent in enumerate(agents):
        if id(agent) not in result:
            result[id(agent)] = _copy_of(agent, child_seed(seed, "agent", i), changes)
    return [result[id(agent)] for agent in agents]


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
    result = kind(
        agent.observation_space, agent.action_space, backend=backend.name, device=str(backend.device),
        jit_compile=backend.jit_compile, strategy=backend.strategy, frame_stack=agent._seated()[0].stack,
        identity=agent.identity, seed=seed, **settings,
    )  # fmt: skip
    return _with_weights(result, agent, moments="optimizer" not in changes)


def _with_weights(copied: LearningAgent, agent: LearningAgent, *, moments: bool) -> LearningAgent:
    """Load another agent's weights, running statistics and, with `moments`, the state of its optimizers."""
    own, theirs = copied.learner_.export(copied.row), agent.learner_.export(agent.row)
    kept = tuple(name for name in COPIED if moments or name != "optimizer/")
    arrays = {name: array for name, array in theirs.arrays.items() if name.startswith(kept)}
    copied.learner_.load(copied.row, AgentState(own.info, {**own.arrays, **arrays}))
    return copied


def new_agents(
    name: Any, env: Any, env_args: Mapping[str, Any] | None, settings: Mapping[str, Any],
    changes: Mapping[str, Any], seed: int,
) -> list[Agent]:  # fmt: skip
    """Return agents of `make_agents` with settings and changes, which go before all others.

    Raises ConfigError for changes if no agent learns, since they apply to none.
    """
    common = {name: value for name, value in {**settings, **changes}.items() if name in OF_ALL}
    own, changed = ({name: value for name, value in of.items() if name not in OF_ALL} for of in (settings, changes))
    result = make_agents(with_settings(name, own, changed), env, env_args=env_args, seed=seed, **common)
    if changed and not any(agent.learns for agent in result):
        raise ConfigError(f"no agent learns, so none has the settings {', '.join(changed)}: got {shown(name)}")
    return result


def with_settings(name: Any, settings: Mapping[str, Any], changes: Mapping[str, Any]) -> Any:
    """Return the argument `name` of `make_agents` with settings in every entry whose agents learn.

    An entry's own settings go before `settings`, and `changes` before both.
    """
    if isinstance(name, Mapping):
        return {key: with_settings(entry, settings, changes) for key, entry in name.items()}
    if is_list(name):
        return [with_settings(entry, settings, changes) for entry in name]
    kind, own = name if is_pair(name) else (name, {})
    if kind == RANDOM or (isinstance(kind, type) and issubclass(kind, RandomAgent)):
        return name
    return kind, {**settings, **own, **changes}


def settings_of_entries(name: Any, where: str = "name") -> dict[str, Mapping[str, Any]]:
    """Return the settings of each pair in the argument `name` of `make_agents`, by its place: "name['wolf']"."""
    if isinstance(name, Mapping):
        inner = [settings_of_entries(entry, f"{where}[{key!r}]") for key, entry in name.items()]
    elif is_list(name):
        inner = [settings_of_entries(entry, f"{where}[{i}]") for i, entry in enumerate(name)]
    else:
        inner = [{where: name[1]}] if is_pair(name) else []
    return {place: settings for found in inner for place, settings in found.items()}


def is_pair(name: Any) -> bool:
    """Return whether an entry is a pair (algorithm, settings)."""
    return isinstance(name, tuple) and len(name) == 2 and isinstance(name[1], Mapping)


def is_list(name: Any) -> bool:
    """Return whether the argument `name` of `make_agents` is a list of entries, by the players' order."""
    return isinstance(name, list | tuple) and not is_pair(name)
