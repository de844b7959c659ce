"""Names of players: text in marltrain, any value that can be a key of a dict in the environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from marltrain.core.errors import SpecError, shown


def text_name(key: Any) -> str:
    """Return the name of a player in marltrain: the text of its name in the environment."""
    return key if isinstance(key, str) else str(key)


def by_text(values: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a mapping from the environment's names of players, with marltrain's names as keys."""
    return {text_name(key): value for key, value in values.items()}


def check_names(keys: Sequence[Any]) -> None:
    """Raise SpecError for names without a text and for names that are not unique."""
    texts: dict[str, Any] = {}
    for key in keys:
        if key is None or not text_name(key) or _without_text(key):
            raise SpecError(
                f"possible_agents holds {shown(key)} ({type(key).__name__}), but tables and files label a player by "
                "the text of its name, which must be the same in every process: name it by a text such as 'player_0', "
                "or by an integer"
            )
        name = text_name(key)
        if name in texts:
            both = (
                "twice" if texts[name] == key else f"by {shown(texts[name])} and {shown(key)}, whose text is the same"
            )
            raise SpecError(f"possible_agents names {name!r} {both}: give every player a name of its own")
        texts[name] = key


def _without_text(key: Any) -> bool:
    """Return whether the text of an object is that of `object`, which holds its address."""
    kind: Any = type(key)
    return kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__
