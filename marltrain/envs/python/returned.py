"""What `reset` and `step` of an environment return: errors for the old interface and for missing infos.

The adapters unpack what a step returned, and come here only for a fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from marltrain.core.errors import EnvError, shown

RESET = ("observation", "info")
STEP = ("observation", "reward", "terminated", "truncated", "info")
PARALLEL_RESET = ("observations", "infos")
PARALLEL_STEP = ("observations", "rewards", "terminations", "truncations", "infos")
_OLD = (
    "An environment of the old interface (before Gymnasium 0.26) is converted by the package shimmy: "
    "GymV21CompatibilityV0, or for PettingZoo by returning infos and both kinds of flags"
)


def check_reset(returned: Any, names: tuple[str, str] = RESET) -> tuple[Any, Any]:
    """Return what a reset returned: the observation and the info, by player if `names` are those of PettingZoo.

    Raises EnvError unless it is a pair whose second entry is a mapping.
    """
    if isinstance(returned, tuple | list) and len(returned) == 2 and isinstance(returned[1], Mapping):
        if names is PARALLEL_RESET:
            check_mappings(returned[:1], names)
        return returned[0], returned[1]
    expected = f"({', '.join(names)})"
    if isinstance(returned, tuple) and len(returned) == 2 and (returned[1] is None or names is PARALLEL_RESET):
        raise EnvError(
            f"reset returned the {names[1]} {shown(returned[1])}, expected a dict, as in {expected}: return {{}} if "
            "there is none"
        )
    raise EnvError(
        f"reset returned {_kind(returned)}, expected {expected}: the {names[1]}, a dict, is missing. Return {{}} as "
        f"the {names[1]} if there is none. {_OLD}"
    )


def check_step(returned: Any, names: tuple[str, ...] = STEP) -> tuple[Any, Any, Any, Any, Any]:
    """Return the five values that a step returned; raises EnvError for another number of them, and for an info None.

    names: of the values. Those of PettingZoo are mappings, all of them.
    """
    if not isinstance(returned, tuple | list) or len(returned) != 5:
        raise wrong_step(returned, names)
    if names is PARALLEL_STEP:
        check_mappings(returned, names)
    else:
        check_info(returned[4])
    observation, reward, terminated, truncated, info = returned
    return observation, reward, terminated, truncated, info


def check_info(info: Any) -> None:
    """Raise EnvError unless the info of a step is a mapping."""
    if not isinstance(info, Mapping):
        raise EnvError(f"step returned the info {shown(info)}, expected a dict: return {{}} if there is none")


def wrong_step(returned: Any, names: tuple[str, ...] = STEP) -> EnvError:
    """Return the error for a step that does not return five values; see `check_step`."""
    expected = f"({', '.join(names)})"
    if not isinstance(returned, tuple | list) or len(returned) != 4:
        return EnvError(f"step returned {_kind(returned)}, expected {expected}")
    terminated, truncated = names[2:4]
    return EnvError(
        f"step returned 4 values, expected 5: {expected}. Where the old interface has the flag done, return "
        f"{terminated} (the task has ended) and {truncated} (a limit has cut the episode). {_OLD}"
    )


def check_mappings(values: Any, names: tuple[str, ...]) -> None:
    """Raise EnvError, naming the value, unless all are mappings from player to value."""
    for name, value in zip(names, values, strict=False):
        if not isinstance(value, Mapping):
            raise EnvError(
                f"{name} are {shown(value)}, expected a dict by player, such as {{'player_0': ...}}; {{}} if there are "
                "none"
            )


def bad_flags(player: str, terminated: Any, truncated: Any) -> EnvError:
    """Return the error for flags of a step that are neither true nor false."""
    return EnvError(
        f"player {player!r}: terminated is {shown(terminated)} and truncated {shown(truncated)}; expected True or "
        "False for each"
    )


def _kind(returned: Any) -> str:
    """Return the type of a returned value, and its size."""
    if isinstance(returned, tuple | list):
        return f"{len(returned)} values"
    return shown(returned)
