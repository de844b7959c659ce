"""The files of saved agents: descriptions as JSON and arrays as safetensors, without pickled data.

agents.json          format, schema, marltrain's version, an entry per distinct agent, their seats, checksums
agents.safetensors   the arrays of all agents, named "0/...", "1/..." by the index of the entry
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from marltrain.core.errors import AgentError, SaveError, shown, warn
from marltrain.core.layout import Array
from marltrain.policies.agents.custom_objects import CustomObjects
from marltrain.policies.batches.batch import AgentState
from marltrain.storage.checks import counted
from marltrain.storage.files import check_free, complete_folder, path_of, read_arrays, replacing_folder, write_arrays
from marltrain.storage.manifest import Manifest

LOGGER = logging.getLogger("marltrain")
DESCRIPTION = "agents.json"
WEIGHTS = "agents.safetensors"
WEIGHTS_ONLY = "weights.json"
"""Name of the description of weights alone, see `weights`."""
FILES = Manifest("marltrain-agents", 1, "saved agents", DESCRIPTION, (WEIGHTS,))
RUN_AGENTS = ("best", "last")
"""Folders of saved agents in the folder of a run, the preferred one first."""
PLAYERS = "players"
"""Optional key of the seats' names."""
BY_NAME = "by_name"
"""Optional key, True if the agents were saved as a mapping from the seats' names."""
ENV_STEPS = "env_steps"
"""Optional key: env steps of the run that saved the agents."""
OPTIONAL = {PLAYERS, BY_NAME, ENV_STEPS}


class Saveable(Protocol):
    """The part of an agent that saving requires."""

    def state(self) -> AgentState:
        """Return the complete state of the agent, for saving."""


SaveableT = TypeVar("SaveableT", bound=Saveable)


class SavedAgents(NamedTuple):
    """The content of the files.

    file: path of the description.  states: state of each distinct agent.  seats: index of the agent in each seat.
    players: the seats' names, or empty.  by_name: whether the agents were saved as a mapping from these.
    env_steps: of the run that saved them; None: no run did, or one of an earlier version.
    """

    file: Path
    states: list[AgentState]
    seats: list[int]
    players: Sequence[str]
    by_name: bool
    env_steps: int | None = None


def write_agents(
    path: str | Path,
    seated: Sequence[Saveable],
    *,
    players: Sequence[str] | None = None,
    by_name: bool = False,
    env_steps: int | None = None,
) -> None:
    """Write the agents of seats; see `saving.save`.  env_steps: of the run that saves them."""
    path = path_of(path)
    distinct = check_seated(seated, players)
    check_free(path, DESCRIPTION, "agents")
    place = {id(agent): i for i, agent in enumerate(distinct)}
    states, seats = [agent.state() for agent in distinct], [place[id(agent)] for agent in seated]
    needed = CustomObjects({}, states, seats, players or ())
    if vague := needed.ambiguous:
        names = ", ".join(map(repr, vague))
        warn(f"several different parts of these agents are called {names}. To load them, give {needed.as_text()}")
    with replacing_folder(path) as folder:
        write_arrays(folder / WEIGHTS, {f"{i}/{name}": a for i, s in enumerate(states) for name, a in s.arrays.items()})
        entries = [{"info": state.info, "arrays": shapes_of(state.arrays)} for state in states]
        named: dict[str, Any] = {} if players is None else {PLAYERS: list(players)}
        named |= {BY_NAME: True} if by_name else {}
        named |= {} if env_steps is None else {ENV_STEPS: env_steps}
        FILES.write(folder, {"agents": entries, "seats": seats, **named})


def check_seated(seated: Sequence[SaveableT], players: Sequence[str] | None) -> list[SaveableT]:
    """Return the distinct agents; raises AgentError without agents, and for another number of players."""
    if not seated:
        raise AgentError("there are no agents to save: the list is empty")
    if players is not None and len(players) != len(seated):
        raise AgentError(f"players must name the {len(seated)} agents' seats, got {shown(players)}")
    return list({id(agent): agent for agent in seated}.values())


def read_agents(path: str | Path) -> SavedAgents:
    """Read the files that `write_agents` wrote; raises SaveError with the file's name for any other content."""
    folder = folder_of_agents(path)
    if not (folder / DESCRIPTION).is_file() and (folder / WEIGHTS_ONLY).is_file():
        raise SaveError(f"{folder}: holds weights alone: make the agents, and load them with agent.load_weights")
    file, description = folder / DESCRIPTION, FILES.read(folder, {"agents", "seats"}, OPTIONAL)
    _check(file, description)
    parts = parts_of_agents(folder / WEIGHTS, [entry["arrays"] for entry in description["agents"]])
    states = [AgentState(entry["info"], arrays) for entry, arrays in zip(description["agents"], parts, strict=True)]
    players = description.get(PLAYERS, ())
    return SavedAgents(
        file, states, description["seats"], players, description.get(BY_NAME, False), description.get(ENV_STEPS)
    )


def folder_of_agents(path: str | Path) -> Path:
    """Return the folder of saved agents or weights; of a run's folder its best agents, or its last without a test.

    Logs which agents of a run these are. Raises SaveError if there is no folder, and for a run without agents.
    """
    folder = complete_folder(path)
    if any((folder / name).is_file() for name in (DESCRIPTION, WEIGHTS_ONLY)):
        return folder
    for name in RUN_AGENTS:
        with suppress(SaveError):
            found = complete_folder(folder / name)
            if (found / DESCRIPTION).is_file():
                LOGGER.warning("%s is the folder of a run: these are its %s agents, %s", folder, name, found)
                return found
    if (folder / "config.json").is_file():
        raise SaveError(
            f"{folder}: is the folder of a run that has saved no agents ({' or '.join(RUN_AGENTS)}): let it play a "
            "test or end"
        )
    return folder


def shapes_of(arrays: Mapping[str, Array]) -> dict[str, Any]:
    """Return the dtypes and shapes of arrays as JSON values."""
    return {name: [str(array.dtype), list(array.shape)] for name, array in arrays.items()}


def _check(file: Path, found: Mapping[str, Any]) -> None:
    """Check the contents of agents.json; the agents' own descriptions are not checked."""
    entries = found["agents"]
    if not isinstance(entries, list) or not all(_is_entry(entry) for entry in entries):
        raise SaveError(f'{file}: "agents" must list objects with "info" and "arrays"')
    seats_of(file, found, len(entries))
    if ENV_STEPS in found:
        counted(f'{file}: "{ENV_STEPS}"', found[ENV_STEPS])
    by_name, players = found.get(BY_NAME, False), found.get(PLAYERS, [])
    if type(by_name) is not bool or (by_name and len(set(players)) != len(found["seats"])):
        raise SaveError(f'{file}: "{BY_NAME}" is true or false, and true needs different "{PLAYERS}", got {by_name!r}')


def seats_of(file: Path, found: Mapping[str, Any], agents: int) -> list[int]:
    """Return the index of the agent in each seat; raises SaveError for wrong seats or names of players."""
    seats = found["seats"]
    if not isinstance(seats, list) or not all(type(i) is int for i in seats) or set(seats) != set(range(agents)):
        raise SaveError(f'{file}: "seats" must name each of the {agents} agents by number, got {seats!r}')
    players = found.get(PLAYERS, [])
    if not isinstance(players, list) or not all(isinstance(name, str) for name in players):
        raise SaveError(f'{file}: "{PLAYERS}" must list names, got {players!r}')
    if PLAYERS in found and len(players) != len(seats):
        raise SaveError(f'{file}: "{PLAYERS}" must name each of the {len(seats)} seats, got {players!r}')
    return seats


def _is_entry(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and set(entry) == {"info", "arrays"}
        and all(isinstance(v, dict) for v in entry.values())
    )


def parts_of_agents(
    file: Path, expected: Sequence[Mapping[str, Any]], described_by: str = DESCRIPTION
) -> list[dict[str, Array]]:
    """Split the arrays by agent; raises SaveError unless names, dtypes and shapes are as expected.

    described_by: name of the file with the expected ones.
    """
    arrays = read_arrays(file)
    named = {f"{i}/{name}": what for i, shapes in enumerate(expected) for name, what in shapes.items()}
    if missing := sorted(named.keys() - arrays.keys()):
        raise SaveError(f"{file}: arrays are missing: {', '.join(missing)}")
    if extra := sorted(arrays.keys() - named.keys()):
        raise SaveError(f"{file}: holds arrays that {described_by} does not name: {', '.join(extra)}")
    for name, array in arrays.items():
        if [str(array.dtype), list(array.shape)] != named[name]:
            raise SaveError(f"{file}: {name} is {array.dtype} {list(array.shape)}, {described_by} says {named[name]}")
    return [{name: arrays[f"{i}/{name}"] for name in shapes} for i, shapes in enumerate(expected)]
