"""Attributes of environments that are recorded at the end of episodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from marltrain.core.errors import EnvError, did_you_mean, shown
from marltrain.envs.layers import layers, outermost

MOST_VALUES = 1_000
"""Maximum number of values of one attribute."""
Recorded = tuple[int, dict[str, Any]]
"""Number of an environment, and the values at the end of its episode, by name."""


def values_of(env: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return the values of an environment's attributes; raises EnvError for a missing one and for other values.

    Wrappers are searched from the outside to the inside. Entries of an array or a mapping are called "name/entry".
    """
    values: dict[str, Any] = {}
    for name in names:
        values.update(flat_values(name, _attribute(env, name)))
        if len(values) > MOST_VALUES:
            raise EnvError(f"attribute {name!r} has more than {MOST_VALUES} entries to record")
    return values


def flat_values(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the numbers, texts and None that a value consists of, with their names; raises EnvError for others."""
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        yield name, value
    elif isinstance(value, Mapping):
        for key, entry in value.items():
            yield from flat_values(f"{name}/{key}", entry)
    elif isinstance(value, np.ndarray | list | tuple):
        for i, entry in enumerate(value):
            yield from flat_values(f"{name}/{i}", entry)
    else:
        what = "a method" if callable(value) else shown(value)
        raise EnvError(f"attribute {name!r} is {what}; numbers, truth values, texts, None, and arrays and mappings of "
                       "these can be recorded")  # fmt: skip


def _attribute(env: Any, name: str) -> Any:
    holder = outermost(env, name)
    if holder is not None:
        return getattr(holder, name)
    *_, inside = layers(env)
    known = [key for key in dir(inside) if not key.startswith("_")]
    raise EnvError(f"{type(inside).__name__} has no attribute {name!r}.{did_you_mean(name, known)} Set it in reset()")
