"""Flatten: images as vectors, for boards and other arrays of uint8 that are no pictures.

`Flatten(env)` is accepted wherever an environment is accepted.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

from marltrain.core.errors import ConfigError
from marltrain.envs.flat import FlatLast, FlatParallel, FlatSingle, FlatTurns
from marltrain.envs.frame_stack import frames_of
from marltrain.envs.python.last import has_own_last
from marltrain.envs.registry import Modifier, Source, api_of, resolve


class Flatten(Modifier):
    """An environment whose images are given as vectors, row by row, with unchanged values.

    An image is an array of uint8 with two or three axes, or a stack of such frames. All other observations stay as they
    are.

    >>> env = Flatten("games:Draughts")
    """

    def __init__(self, env: Any) -> None:
        """Flatten the images of `env`, a name, a class or a function."""
        self.env = env

    def source(self, env_args: Mapping[str, Any]) -> Source:
        """Return the Source of the flattened environment; `env_args` are arguments of the inner environment.

        Raises ConfigError for a native game, which observes vectors.
        """
        inner = resolve(self.env, env_args)
        if inner.game is not None:
            raise ConfigError(f"Flatten: {inner.name} is a native game, which observes vectors: leave Flatten out")
        build = functools.partial(_build_flat, inner.build)
        return dataclasses.replace(inner, name=f"{inner.name} (flat)", build=build)


def _build_flat(build: Callable[..., Any], **arguments: Any) -> Any:
    env = build(**arguments)
    api, stack = api_of(env), frames_of(env)
    if api == "gymnasium":
        return FlatSingle(env, stack)
    if api == "parallel":
        return FlatParallel(env, stack)
    return FlatLast(env, stack) if has_own_last(env) else FlatTurns(env, stack)
