"""Layers of an environment: its wrappers and the environment inside, outermost first.

Gymnasium's wrappers forward no attributes. An attribute is therefore searched layer by layer: the outermost object that
defines it counts.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping
from typing import Any

INNER = ("env", "aec_env", "unwrapped")
"""Attributes of wrappers that hold the environment inside."""


def layers(env: Any) -> Iterator[Any]:
    """Yield an environment and all objects that it wraps, outermost first."""
    seen = set[int]()
    while id(env) not in seen:
        seen.add(id(env))
        yield env
        env = next((held for inner in INNER if (held := getattr(env, inner, None)) is not None), env)


def outermost(env: Any, name: str) -> Any:
    """Return the outermost layer that has an attribute `name`, directly or by forwarding; None if there is none."""
    return next((layer for layer in layers(env) if hasattr(layer, name)), None)


def metadata_of(env: Any) -> Mapping[str, Any]:
    """Return an environment's metadata: entry by entry those of the outermost layer; empty if there are none."""
    found = [getattr(layer, "metadata", None) for layer in layers(env)]
    return ChainMap(*(dict(one) for one in found if isinstance(one, Mapping)))
