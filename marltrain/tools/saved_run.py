"""The folder of a run: its environment and its agents, for tools that play with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marltrain.core.errors import SaveError
from marltrain.core.remedies import written
from marltrain.envs import probe
from marltrain.envs.registry import imports_only_known
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.files import RUN_AGENTS
from marltrain.policies.agents.mixed import MixedAgent
from marltrain.policies.agents.saving import load
from marltrain.storage.files import complete_folder
from marltrain.trainer.reporting.config_file import CONFIG, read_config
from marltrain.trainer.seats.by_player import Agents, in_seats


@dataclass(frozen=True)
class SavedRun:
    """A run's environment and agents.

    agents: one per player; of a league those of the first main agent's match.
    chosen: the folder that they were loaded from, "best" or "last".
    """

    env: str
    env_args: dict[str, Any]
    agents: list[Agent]
    chosen: str


def open_run(
    run: str | Path,
    *,
    env: str | None = None,
    agents: str | None = None,
    custom_objects: Mapping[str, Any] | None = None,
    device: str | None = None,
) -> SavedRun:
    """Load a run's agents; raises SaveError for a folder that is not a run's.

    env: the environment's name, required for environments of the user's own: no file may choose what code is run.
    agents: "best" or "last"; None: the best, or the last if no test was played.
    custom_objects, device: see `marltrain.load`.
    """
    folder = complete_folder(run)
    name, env_args = environment_of(folder, env)
    played, chosen = agents_of(folder, agents, custom_objects, device)
    if isinstance(played, Mapping):
        played = in_seats(played, probe(name, env_args), str(folder / chosen))
    if any(isinstance(agent, MixedAgent) for agent in played):
        played = played[
            :: len(played) // len(probe(name, env_args).players)
        ]  # of a league: the seats of its first match
    return SavedRun(name, env_args, list(played), chosen)


def environment_of(folder: Path, env: str | None = None) -> tuple[str, dict[str, Any]]:
    """Return the environment of a run, and its arguments; env: see `open_run`.

    Raises SaveError for a folder that is not a run's, and for an environment of the user's own that is not named.
    """
    config = read_config(folder / CONFIG)
    named, env_args = config.get("env"), config.get("env_args")
    if not isinstance(named, str) or not isinstance(env_args, dict):
        raise SaveError(f"{folder / CONFIG}: names no environment")
    if env is None and not imports_only_known(named):
        raise SaveError(f"{folder / CONFIG}: the run's environment is {named!r}. No file may choose what code is run: "
                        f"if you know this one, name it yourself with {written('env=...', '--env')}")  # fmt: skip
    return named if env is None else env, env_args


def agents_of(
    run: str | Path,
    agents: str | None = None,
    custom_objects: Mapping[str, Any] | None = None,
    device: str | None = None,
) -> tuple[Agents, str]:
    """Load a run's agents without its environment; return them, and which they are. See `open_run`."""
    folder = complete_folder(run)
    chosen = _best_or_last(folder) if agents is None else agents
    return load(folder / chosen, custom_objects=custom_objects, device=device), chosen


def _best_or_last(folder: Path) -> str:
    """Return "best", or "last" if the run has no best agents; raises SaveError if it has neither."""
    best, last = RUN_AGENTS
    try:
        complete_folder(folder / best)
    except SaveError:
        if not (folder / last).is_dir():
            raise
        return last
    return best
