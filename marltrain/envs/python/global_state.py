"""The global state of an environment: `state()` of the outermost layer that defines it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from pettingzoo.utils import BaseParallelWrapper, BaseWrapper, OrderEnforcingWrapper
from pettingzoo.utils.conversions import aec_to_parallel_wrapper, parallel_to_aec_wrapper

from marltrain.core.errors import EnvError, shown
from marltrain.core.layout import NUMBERS, Array
from marltrain.envs.layers import layers

_FORWARDING = frozenset(
    kind.state
    for kind in (
        *(BaseParallelWrapper, BaseWrapper, OrderEnforcingWrapper),
        *(aec_to_parallel_wrapper, parallel_to_aec_wrapper),
    )
)
"""Methods `state` that return the state of the layer inside."""


def state_method(env: Any) -> Callable[[], Any] | None:
    """Return the method `state` of the outermost layer that defines it; None if there is none.

    PettingZoo's wrappers forward `state`, Gymnasium's do not. An attribute `state` that cannot be called, as in several
    games, has another meaning; a method `state` of a wrapper outside of it counts.
    """
    first: Callable[[], Any] | None = None
    for layer in layers(env):
        found = getattr(layer, "state", None)
        if found is None:
            continue
        if not callable(found):
            return None
        first = found if first is None else first
        if getattr(found, "__func__", None) not in _FORWARDING:
            return first
    return None


def flat_state(state: Callable[[], Any]) -> Array:
    """Return the global state that an environment's `state` returns as a float32 vector."""
    given = state()
    found = np.asarray(given)
    if found.dtype.kind not in NUMBERS:
        raise EnvError(
            f"the global state (env.state()) has dtype {found.dtype}, expected an array of real numbers, got "
            f"{shown(given)}. An environment without a global state has no method state(), or raises "
            "NotImplementedError"
        )
    return found.astype(np.float32).reshape(-1)
