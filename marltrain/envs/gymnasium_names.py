"""Names of Gymnasium environments that another package registers: "gymnasium/module:Name", as in Gymnasium.

The import of the module registers the environments. A name without its module means nothing to the next process.
"""

from __future__ import annotations

import re

import gymnasium

PREFIX = "gymnasium/"
_KNOWN = re.compile(r"gymnasium/ale_py:ALE/[\w-]+")
"""Names that a file may hold: their modules import no other module that an argument names."""
_REGISTERED_BY = tuple(
    (re.compile(pattern), module)
    for pattern, module in (
        (r"ALE/.*", "ale_py"),
        (r"(MiniGrid|BabyAI)-.*", "minigrid"),
        (r"MultiGrid-.*", "multigrid.envs"),
        (r"rware-.*", "rware"),
        (r"Foraging-.*", "lbforaging"),
        (r"(exit|highway|intersection|lane-keeping|merge|parking|racetrack|roundabout|u-turn)-.*", "highway_env"),
        (r"(Fetch|Hand|Adroit|AntMaze|PointMaze|FrankaKitchen).*", "gymnasium_robotics"),
        (r"(mo-|deep-sea-treasure|minecart|resource-gathering|four-room).*", "mo_gymnasium"),
    )
)
"""Patterns of names, and the module that registers them."""
_VERSIONED = re.compile(r".*-v\d+")


def split_module(name: str) -> tuple[str | None, str]:
    """Return the module in a name and the name without it.

    Those of "gymnasium/ale_py:ALE/Pong-v5" are "ale_py" and "gymnasium/ALE/Pong-v5". It is None without one.
    """
    if not name.startswith(PREFIX) or ":" not in name:
        return None, name
    module, _, plain = name.removeprefix(PREFIX).partition(":")
    return module, PREFIX + plain


def with_module(name: str, module: str | None) -> str:
    """Return the complete name of an environment, with the module that registers it.

    name: without a module.  module: the module that a user named; None: the one that is known for this name, if any.
    """
    plain = name.removeprefix(PREFIX)
    module = _registrar(plain) if module is None else module
    return name if module is None else f"{PREFIX}{module}:{plain}"


def of_known_module(name: str) -> bool:
    """Return whether a name with a module imports no module but those that are known to be safe."""
    return _KNOWN.fullmatch(name) is not None


def registered(name: str) -> str:
    """Return a sentence with the complete name of an environment that another package registers; "" if it is none.

    name: as a user wrote it, such as "ALE/Pong-v5", "minigrid:MiniGrid-Empty-5x5-v0" or "gymnasium/rware-tiny-2ag-v2".
    """
    given, _, plain = name.removeprefix(PREFIX).rpartition(":")
    module = _registrar(plain) or (given if given and plain in gymnasium.registry else None)
    complete = f"{PREFIX}{module}:{plain}"
    return (
        ""
        if module is None or complete == name
        else f" Did you mean {complete!r}? The import of {module} registers it."
    )


def suggestion(name: str) -> str:
    """Return a sentence about the names of environments that packages register, if a name looks like one; else ""."""
    if known := registered(name):
        return known
    plain = name.removeprefix(PREFIX)
    if ":" in plain or not _VERSIONED.fullmatch(plain):
        return ""
    return f" An environment that a package registers with Gymnasium is named with its module: {PREFIX}MODULE:{plain}."


def _registrar(plain: str) -> str | None:
    return next((module for pattern, module in _REGISTERED_BY if pattern.fullmatch(plain)), None)
