"""Settings that differ between groups of runs, as brief texts: "lr 1e-3→1e-4, network 64x64"."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

MISSING = "none"
"""Text of a setting that a run does not have, and of None."""
BRIEF = {"learning_rate": "lr", "critic_learning_rate": "critic lr", "actor_learning_rate": "actor lr"}
"""Short names of settings; others keep their names."""
MOST_TOLD = 3
"""Number of differing settings from which those that are not needed to tell groups apart are left out."""
WHOLE = 17
"""Number of digits from which a number loses nothing."""
SCHEDULE = {"kind", "start", "stop", "steps"}
PLAYERS = "players"
"""Key of the settings by player."""

Path = tuple[str, ...]


def differences(facts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the settings of each group that differ from those of the others, in words; the texts differ.

    facts: {part: {name: setting}} of each group, JSON values; "players": {player: {name: setting}}.
    A setting that is equal for all players of each group stands there once, else once for each set of players. Players
    that not all groups have are left out.
    """
    columns = _by_players(list(_differing(facts)))
    columns.sort(key=lambda texts: -len(set(texts)))  # first what tells the most groups apart
    data = min(len(columns), MOST_TOLD)
    while data < len(columns) and len(set(zip(*columns[:data], strict=True))) < len(facts):
        data += 1
    more = ", …" if data < len(columns) else ""
    return [", ".join(texts[g] for texts in columns[:data]) + more for g in range(len(facts))]


def _differing(values: Sequence[Any], path: Path = ()) -> Iterator[tuple[Path, list[Any]]]:
    """Yield the paths within values that differ, with the value of each group, as deep as they are alike."""
    if len({_key(value) for value in values}) == 1:
        return
    alike = all(isinstance(value, Mapping) and set(value) != SCHEDULE for value in values)
    if alike and len({str(value.get("type")) for value in values}) == 1:
        names = dict.fromkeys(name for value in values for name in value)
        if path == (PLAYERS,):
            names = {name: None for name in names if all(name in value for value in values)}
        for name in names:
            yield from _differing([value.get(name) for value in values], (*path, name))
    else:
        yield path, list(values)


def _by_players(found: Sequence[tuple[Path, list[Any]]]) -> list[list[str]]:
    """Return the texts of each differing setting, one per group; settings of players are joined where they agree."""
    whole: dict[Path, dict[str, list[Any]]] = {}
    for path, values in found:
        player, setting = (path[1], path[2:]) if path[0] == PLAYERS else ("", path[1:])
        whole.setdefault(setting, {})[player] = values
    columns = []
    for setting, of_player in whole.items():
        joined: dict[str, list[str]] = {}
        for player, values in of_player.items():
            joined.setdefault(_key(values), []).append(player)
        for players in joined.values():
            alone = len(joined) == 1 or players == [""]
            who = "" if alone else f"{'+'.join(players)} "
            columns.append([f"{who}{_named(setting, text)}" for text in _texts(of_player[players[0]])])
    return columns


def _named(setting: Path, text: str) -> str:
    names = [BRIEF.get(name, name) for name in setting if name != "hidden"]
    return f"{' '.join(names)} {text}"


def _texts(values: Sequence[Any]) -> list[str]:
    """Return brief texts of the values of a setting; where brief texts of different values are equal, longer ones."""
    written: list[Callable[[Any], str]] = [brief, full, _key]
    for write in written:
        texts = [write(value) for value in values]
        if len(set(texts)) == len(set(map(_key, values))):
            break
    return texts


def brief(value: Any) -> str:
    """Return a JSON value as a brief text: "1e-3→1e-4" for a schedule, "MLP 64x64" for a network, "yes" for True."""
    if isinstance(value, Mapping):
        if set(value) == SCHEDULE:
            kind = "" if value["kind"] == "linear" else f"{value['kind']} "
            return f"{kind}{brief(value['start'])}→{brief(value['stop'])}"
        if "type" in value:
            sizes = [brief(inner) for inner in value.values() if isinstance(inner, list) and inner]
            return " ".join([str(value["type"]), *sizes[:1]])
        return ", ".join(f"{name} {brief(inner)}" for name, inner in value.items()) or MISSING
    if isinstance(value, list):
        between = "x" if all(type(inner) is int for inner in value) else ", "
        return between.join(map(brief, value)) or "()"
    if isinstance(value, str):
        return value.rpartition(":")[2]
    return _number(value, digits=3)


def full(value: Any) -> str:
    """Return a JSON value as a text that holds all of it."""
    if isinstance(value, Mapping):
        if set(value) == SCHEDULE:
            ends = "→".join(_number(value[end], digits=WHOLE) for end in ("start", "stop"))
            return f"{value['kind']} {ends} in {_number(value['steps'], digits=WHOLE)}"
        kind = f"{value['type']} " if "type" in value else ""
        return kind + ", ".join(f"{name} {full(inner)}" for name, inner in value.items() if name != "type")
    if isinstance(value, list):
        return f"({', '.join(map(full, value))})"
    return value if isinstance(value, str) else _number(value, digits=WHOLE)


def _number(value: Any, digits: int) -> str:
    """Return a number in few letters: 10k for 10,000, 1e-3 for 0.001; "none", "yes" and "no" for None and bools."""
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        for size, unit in ((1_000_000, "M"), (1_000, "k")):
            if abs(value) >= 10 * size and value % size == 0:
                return f"{value // size}{unit}"
        return str(value)
    if not math.isfinite(value):
        return str(value)
    rounded = Decimal(f"{value:.{digits}g}") if digits < WHOLE else Decimal(repr(value))
    small = value and not 0.01 < abs(value) < 1e6
    digits_, _, exponent = (f"{rounded:e}" if small else f"{rounded:f}").partition("e")
    shortened = digits_.rstrip("0").rstrip(".") if "." in digits_ else digits_
    return f"{shortened}e{int(exponent)}" if exponent else shortened


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
