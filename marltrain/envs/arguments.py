"""Arguments of environments: which names a callable accepts, and the error for others."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable

from marltrain.core.errors import ConfigError, did_you_mean


def accepted_arguments(function: Callable[..., object]) -> set[str] | None:
    """Return the keyword arguments of a callable; None if it accepts any, or has no signature."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return {parameter.name for parameter in parameters if parameter.kind is not parameter.POSITIONAL_ONLY}


def check_arguments(
    name: str, given: Iterable[str], accepted: Collection[str] | None, also: frozenset[str] = frozenset()
) -> None:
    """Raise ConfigError for an argument that an environment does not take.

    accepted: names of its arguments; None: it takes any.  also: further names, which the message does not list.
    """
    if accepted is None:
        return
    known = {*accepted, *also}
    for argument in given:
        if argument not in known:
            raise ConfigError(
                f"env_args: environment {name!r} takes no argument {argument!r}.{did_you_mean(argument, known)} "
                f"It takes: {', '.join(sorted(accepted)) or 'none'}."
            )
