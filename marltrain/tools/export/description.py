"""The description in an exported file: player, spaces, environment, algorithm, versions, inputs and outputs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marltrain.core.encoding import described_spaces
from marltrain.core.errors import SaveError, shown
from marltrain.core.version import __version__
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.tools.export.function import PolicyFunction, Port

KEY = "marltrain"
"""Key of the description in a file's metadata; a file of this name and ".json" in formats that hold files."""
FORMAT, VERSION = "marltrain-policy", 1
"""Kind and version of the description; another version is not read."""


@dataclass(frozen=True)
class Where:
    """Names for the description, which change nothing in the policy.

    players: those that the agent plays for.  env: name of the environment.  env_args: its arguments.
    """

    players: tuple[str, ...] = ()
    env: str | None = None
    env_args: Mapping[str, Any] | None = None


def describe(agent: LearningAgent, function: PolicyFunction, where: Where, *, sampling: bool) -> dict[str, Any]:
    """Return the description of an exported policy, as JSON values."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "marltrain": __version__,
        "algorithm": agent.algorithm.name,
        "sampling": sampling,
        "env": where.env,
        "env_args": dict(where.env_args or {}),
        "players": list(where.players),
        "identity": list(agent.identity),
        "frame_stack": agent._seated()[0].stack,
        **described_spaces(agent.observation_space, agent.action_space),
        "inputs": [port.described() for port in function.inputs],
        "outputs": [port.described() for port in function.outputs],
    }


def as_text(description: Mapping[str, Any]) -> str:
    """Return a description as JSON text."""
    return json.dumps(description, sort_keys=True)


def checked_description(path: Path, text: str | None) -> dict[str, Any]:
    """Return the description that a file holds; raises SaveError without one, or for one of another version."""
    try:
        found = json.loads(text or "")
    except ValueError:
        found = None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise SaveError(f"{path}: holds no description of marltrain: `marltrain export` did not write it")
    if found.get("version") != VERSION:
        raise SaveError(
            f"{path}: a policy of format version {shown(found.get('version'))}, written by marltrain "
            f"{found.get('marltrain')}; marltrain {__version__} reads version {VERSION}: export the agent again"
        )
    return found


def ports_of(path: Path, description: Mapping[str, Any], which: str) -> list[Port]:
    """Return the "inputs" or "outputs" of a description; raises SaveError if they are not ports."""
    try:
        return [Port(str(p["name"]), tuple(map(int, p["shape"])), str(p["dtype"])) for p in description[which]]
    except (KeyError, TypeError, ValueError) as error:
        raise SaveError(f"{path}: its description has no {which}: {error}") from error
