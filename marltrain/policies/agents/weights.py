"""Weights alone: the arrays of networks and running statistics in a folder, without settings and moments.

weights.json          format, schema, marltrain's version, the arrays of each distinct agent and how it reads images,
                      their seats, checksums
weights.safetensors   the arrays of all agents, named "0/net/actor/hidden0.weight", ... by the index of the agent
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from marltrain.core.errors import SaveError, did_you_mean, shown
from marltrain.core.layout import Array
from marltrain.policies.agents.files import (
    DESCRIPTION,
    PLAYERS,
    WEIGHTS_ONLY,
    folder_of_agents,
    parts_of_agents,
    read_agents,
    seats_of,
    shapes_of,
)
from marltrain.policies.agents.saved_images import IMAGES
from marltrain.policies.batches.batch import AgentState
from marltrain.storage.files import check_free, path_of, replacing_folder, write_arrays
from marltrain.storage.manifest import Manifest

ARRAYS = "weights.safetensors"
FILES = Manifest("marltrain-weights", 1, "saved weights", WEIGHTS_ONLY, (ARRAYS,))
KINDS = ("net/", "statistics/", "team/net/")
"""Beginnings of the names of the arrays that are weights."""
TARGET = "target_"
"""Beginning of the names of target networks, which are copies of others."""


def weights_in(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return the arrays of networks and statistics among those of `Agent.state`, without target networks."""
    targets = tuple(f"{kind}{TARGET}" for kind in KINDS)
    return {name: a for name, a in arrays.items() if name.startswith(KINDS) and not name.startswith(targets)}


def write_weights(path: str | Path, states: Sequence[AgentState], seats: Sequence[int], players: Any) -> None:
    """Write the weights of each distinct agent; see `saving.save`.

    states: of the agents.  seats: index of the agent in each seat.  players: the seats' names, or None.
    """
    path = path_of(path)
    check_free(path, WEIGHTS_ONLY, "weights")
    weights = [weights_in(state.arrays) for state in states]
    images = [_images_of(state) for state in states]
    with replacing_folder(path) as folder:
        write_arrays(folder / ARRAYS, {f"{i}/{name}": a for i, own in enumerate(weights) for name, a in own.items()})
        entries = [{"arrays": shapes_of(own), **read} for own, read in zip(weights, images, strict=True)]
        content = {"agents": entries, "seats": list(seats)}
        FILES.write(folder, content if players is None else {**content, PLAYERS: list(players)})


class SavedWeights(NamedTuple):
    """The weights of one agent.

    file: path of the description.  arrays: by name, see `weights_in`.  images: how images are read, see
    `saved_images.check_images`.
    """

    file: Path
    arrays: dict[str, Array]
    images: Any


def read_weights(path: str | Path, player: str | int | None = None) -> SavedWeights:
    """Return one agent's weights, from saved weights or saved agents.

    player: a player's name or a seat; None: of the only agent.
    Raises SaveError for other content, for an unknown player, and if there are several agents and none is named.
    """
    file, every, seats, players = _read(path)
    state = every[_chosen(file, player, seats, players)]
    return SavedWeights(file, weights_in(state.arrays), _images_of(state).get(IMAGES))


def _images_of(state: AgentState) -> dict[str, Any]:
    """Return how a saved agent reads images, {} if it does not say so."""
    info = state.info.get("inner", state.info)  # of a frozen agent
    return {IMAGES: info[IMAGES]} if isinstance(info, Mapping) and IMAGES in info else {}


def _read(path: str | Path) -> tuple[Path, list[AgentState], Sequence[int], Sequence[str]]:
    """Return the description's file, the state of each distinct agent, their seats and the players' names.

    A state from saved weights holds weights, and of the description only `IMAGES`.
    """
    folder = folder_of_agents(path)
    if (folder / DESCRIPTION).is_file():
        return read_agents(folder)[:4]
    file, found = folder / WEIGHTS_ONLY, FILES.read(folder, {"agents", "seats"}, {PLAYERS})
    entries = found["agents"]
    if not isinstance(entries, list) or not all(
        isinstance(e, dict) and set(e) - {IMAGES} == {"arrays"} for e in entries
    ):
        raise SaveError(f'{file}: "agents" must list objects with "arrays"')
    seats, players = seats_of(file, found, len(entries)), found.get(PLAYERS, ())
    every = parts_of_agents(folder / ARRAYS, [entry["arrays"] for entry in entries], WEIGHTS_ONLY)
    states = [
        AgentState({IMAGES: e[IMAGES]} if IMAGES in e else {}, own) for e, own in zip(entries, every, strict=True)
    ]
    return file, states, seats, players


def _chosen(file: Path, player: Any, seats: Sequence[int], players: Sequence[str]) -> int:
    """Return the index of the agent of a player."""
    if player is None and len(set(seats)) == 1:
        return 0
    if isinstance(player, str) and player in players:
        return seats[list(players).index(player)]
    if type(player) is int and 0 <= player < len(seats):
        return seats[player]
    named = ", ".join(map(repr, players)) or f"a seat from 0 to {len(seats) - 1}"
    asked = "holds several agents" if player is None else f"has no player {shown(player)}"
    raise SaveError(f"{file}: {asked}: name one with player=, {named}.{did_you_mean(player, players)}")


def check_fit(who: str, file: Path, found: Mapping[str, Array], own: Mapping[str, Array]) -> None:
    """Raise SaveError, which names every difference, unless weights have the networks and shapes of an agent's."""
    theirs, mine = _by_network(found), _by_network(own)
    wrong = [f"{name!r} is not in the file" for name in mine if name not in theirs]
    wrong += [f"the agent has no {name!r}" for name in theirs if name not in mine]
    for network in mine.keys() & theirs.keys():
        parts, expected = theirs[network], mine[network]
        if parts.keys() != expected.keys():
            wrong.append(f"{network!r} has {', '.join(sorted(parts))}, expected {', '.join(sorted(expected))}")
            continue
        different = [f"{key} is {list(parts[key])}, expected {list(expected[key])}"
                     for key in expected if parts[key] != expected[key]]  # fmt: skip
        wrong += [f"{network!r}: {'; '.join(different)}"] if different else []
    if wrong:
        raise SaveError(
            f"{file}: its weights do not fit the {who}: {'. '.join(sorted(wrong))}. Give the agent the networks of the "
            "file, or name those to load with networks="
        )


def _by_network(arrays: Mapping[str, Array]) -> dict[str, dict[str, tuple[int, ...]]]:
    """Return network -> parameter -> shape; statistics are named "observation statistics"."""
    networks: dict[str, dict[str, tuple[int, ...]]] = {}
    for name, array in arrays.items():
        kind, network, key = name.removeprefix("team/").split("/", 2)
        title = f"{network} statistics" if kind == "statistics" else network
        networks.setdefault(title, {})[key] = array.shape
    return networks


def network_of(name: str) -> str:
    """Return the name of the network, or of the statistics, that an array of weights belongs to."""
    return name.removeprefix("team/").split("/", 2)[1]


def holds_several(path: str | Path) -> bool:
    """Return whether a folder holds the weights of several agents; raises SaveError for other content."""
    return len(_read(path)[1]) > 1
