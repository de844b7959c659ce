"""Custom code of saved agents, which files cannot hold, and the argument `custom_objects=` that provides it.

A key of `custom_objects` is a class name, a network ("actor"), a player or a seat number. The value of a player or seat
is a mapping of the agent's parts, or its only part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from marltrain.core.errors import SaveError, shown
from marltrain.policies.agents.registry import ALGORITHMS
from marltrain.policies.batches.batch import AgentState

MODEL = "the model or a function that makes it"
AGENT = "a function that makes the agent"
ALGORITHM = "the algorithm or a function that makes it"

EXTERNAL = {
    "custom": ("marltrain.policies.agents.custom", "CustomAgent"),
    "tianshou-off-policy": ("marltrain.policies.agents.tianshou", "OffPolicyAgent"),
    "tianshou-on-policy": ("marltrain.policies.agents.tianshou", "OnPolicyAgent"),
}
"""Saved type -> (module, class) of agents with a model or algorithm that `custom_objects` must provide."""


@dataclass(frozen=True)
class Part:
    """One custom network, model, algorithm or class in a saved agent.

    name: name of its class, or of the function that made it.  structure: equal for parts that one function can make.
    expected: description of the value that `custom_objects` must hold for it.
    keys: its network's name, and the name of its setting.
    """

    name: str
    structure: str
    expected: str
    keys: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The keys of `custom_objects` that may hold the part, most specific first."""
        return (*self.keys, self.name)


def parts_of(info: Any, arrays: Mapping[str, Any]) -> list[Part]:
    """Return the parts of a saved agent; empty if `info` does not describe an agent."""
    if not isinstance(info, dict):
        return []
    kind, settings = str(info.get("type")), info.get("settings")
    if kind == "frozen":
        return parts_of(info.get("inner"), arrays)
    shapes = str(sorted((name, array.shape) for name, array in arrays.items() if "optimi" not in name))
    if kind in EXTERNAL:
        field, expected = ("model", AGENT) if kind == "custom" else ("algorithm", ALGORITHM)
        return [Part(str(info.get(field)), f"{info.get('structure')} {shapes}", expected)]
    parts = [] if kind in ALGORITHMS or kind in ("random", "mixed") else [Part(kind, kind, AGENT)]
    for setting, value in settings.items() if isinstance(settings, dict) else ():
        if isinstance(value, dict) and isinstance(value.get("model"), str):
            networks = value.get("networks")
            keys = (str(networks[0]), setting) if isinstance(networks, list) and len(networks) == 1 else (setting,)
            parts.append(Part(value["model"], str(value.get("structure", shapes)), MODEL, keys))
    return parts


class CustomObjects:
    """The argument `custom_objects` of `load`, resolved for each agent."""

    def __init__(
        self, given: Mapping[Any, Any], states: Sequence[AgentState], seats: Sequence[int], players: Sequence[str]
    ) -> None:
        """Find the parts of each agent.

        seats: [P], the index of the agent in each seat.  players: the seats' names, or empty.
        """
        self.given, self.players = given, players
        self.parts = [parts_of(state.info, state.arrays) for state in states]
        self.seats = [[seat for seat, agent in enumerate(seats) if agent == i] for i in range(len(states))]

    def of(self, agent: int) -> dict[str, Any]:
        """Return the values for one agent, by class name and network.

        Raises SaveError if a key stands for several different parts, or the value of a player is invalid.
        """
        parts = self.parts[agent]
        for label in (label for seat in self.seats[agent] for label in self._labels(seat) if label in self.given):
            return self._of_player(label, parts)
        for part in parts:
            if any(name in self.given and not self._differ(name) for name in part.names):
                continue
            if vague := [name for name in part.names if name in self.given]:
                raise SaveError(
                    f"custom_objects[{vague[0]!r}] stands for several different parts: give {self.as_text()}"
                )
            if self._differ(part.name):
                raise SaveError(
                    f"several different parts of these agents are called {part.name!r}: give {self.as_text()}"
                )
        return {name: value for name, value in self.given.items() if not self._differ(name)}

    def _of_player(self, label: str | int, parts: Sequence[Part]) -> dict[str, Any]:
        """Return the values given for a player or seat, by part."""
        own = self.given[label]
        if isinstance(own, Mapping):
            return dict(own)
        if not parts:
            raise SaveError(f"custom_objects[{label!r}] is not needed: this agent has no part of your own")
        if len(parts) > 1:
            raise SaveError(f"custom_objects[{label!r}] must be a mapping, got {shown(own)}: give {self.as_text()}")
        return {parts[0].names[0]: own}

    def as_text(self) -> str:
        """Return the shortest `custom_objects=` that provides all parts, as text for messages."""
        every = [part for parts in self.parts for part in parts]
        for place in (-1, 0):  # by class name, then by network
            if not any(self._differ(part.names[place]) for part in every):
                return _text_of({part.names[place]: part.expected for part in every})
        of_players = zip(self.seats, self.parts, strict=True)
        return _text_of({self._labels(seats[0])[0]: _of_one(parts) for seats, parts in of_players if parts})

    @property
    def ambiguous(self) -> list[str]:
        """The class names that belong to several different parts."""
        return sorted({part.name for parts in self.parts for part in parts if self._differ(part.name)})

    def _differ(self, key: str) -> bool:
        """Return whether `key` belongs to parts of different structure."""
        return len({part.structure for parts in self.parts for part in parts if key in part.names}) > 1

    def _labels(self, seat: int) -> tuple[str | int, ...]:
        return (self.players[seat], seat) if self.players else (seat,)


def _of_one(parts: Iterable[Part]) -> Any:
    """Return the expected value of a player's key: the only part, or a mapping of several parts."""
    named = {part.names[0]: part.expected for part in parts}
    return named if len(named) > 1 else next(iter(named.values()))


def _text_of(tree: Any) -> str:
    """Return `custom_objects=` as text, with descriptions in place of values."""

    def inner(value: Any) -> str:
        if not isinstance(value, Mapping):
            return str(value)
        return "{" + ", ".join(f"{key!r}: {inner(held)}" for key, held in value.items()) + "}"

    return f"custom_objects={inner(tree)}"
