"""Twins: two environments of equal rules, players and spaces, a native game and its original.

The original draws pictures, and some native games draw text. What is shown of an environment may so come from its twin.
"""

from __future__ import annotations

import re

import gymnasium

from marltrain.core.errors import ConfigError
from marltrain.core.remedies import written
from marltrain.envs.arguments import accepted_arguments
from marltrain.envs.native.catalog import GAMES, ORIGINALS, find
from marltrain.envs.registry import Source, resolve

_REGISTERED = {
    "foraging_v3": re.compile(r"gymnasium/(?:lbforaging:)?(Foraging-\d.*-v3)"),
    "rware_v2": re.compile(r"gymnasium/(?:rware:)?(rware-(?!img).*-v2)"),
}
"""Native game -> names of its originals with vectors as observations; their arguments are registered with them."""


def with_pictures(source: Source) -> Source:
    """Return the source of the original that draws a native game, with the same arguments; other sources unchanged.

    Arguments that only environments of training use are left out. A native game without such an original is unchanged,
    too. Raises ConfigError if the original is not installed.
    """
    name = _shipped(source)
    if name not in ORIGINALS:
        return source
    left_out = find(name).training_only
    arguments = {key: value for key, value in source.arguments.items() if key not in left_out}
    try:
        return resolve(ORIGINALS[name], arguments)
    except ConfigError as error:
        text = written("text=True", "--text")
        raise ConfigError(
            f"{source.name} draws no pictures, and its original, which does, cannot be shown: {error} Without it, "
            f"{text} shows the actions and rewards"
        ) from error


def with_text(source: Source) -> Source:
    """Return the source of the native game that draws an environment's states as text; other sources unchanged.

    Arguments that the native game does not have, such as the size of pictures, are left out. An original registered
    with Gymnasium is unchanged if it is given one: it may change the spaces.
    """
    name = next((native for native, original in ORIGINALS.items() if original == source.name), None)
    arguments = source.arguments
    for native, pattern in _REGISTERED.items():
        if registered := pattern.fullmatch(source.name):
            name, arguments = native, {**gymnasium.spec(registered[1]).kwargs, **arguments}
    if name is None or not find(name).has_text():
        return source
    known = accepted_arguments(find(name)) or set()
    if name in _REGISTERED and not source.arguments.keys() <= known:
        return source
    return resolve(f"marltrain/{name}", {key: value for key, value in arguments.items() if key in known})


def _shipped(source: Source) -> str | None:
    """Return the name of a native game that marltrain ships; None for other environments."""
    name = None if source.game is None else source.game.name
    return name if name in GAMES and find(name) is source.game else None
