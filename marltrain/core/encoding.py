"""Conversions between the environment's format (observations, actions, spaces) and the arrays of the training loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.core.errors import AgentError, SpecError, shown
from marltrain.core.layout import NUMBERS, Array, Layout, Obs, Space, arrays_of, map_tree
from marltrain.core.legal import Legal
from marltrain.core.spaces import describe_space, space_from, split_mask


def encoded(layout: Layout, observation: Any, legal: Any, space: Space) -> tuple[Obs, Array | None, bool]:
    """Convert the arguments of `act`; return (obs [B, ...], legal [B, A] or None, whether they had a batch axis).

    Raises SpecError for `legal` of a wrong shape, with other values than 0 and 1, or without a legal action.
    """
    observation, mask = split_mask(observation)
    legal = mask if legal is None else legal
    obs, batched = layout.encode(observation)
    if not batched:
        obs = map_tree(lambda array: array[None], obs)
    if legal is None:
        return obs, None, batched
    choices = Legal(space)
    legal = _truths("legal", legal, choices)
    legal = legal if batched else legal[None]
    if not choices.width or legal.shape != (len(arrays_of(obs)[0]), choices.width):
        entry = "an action" if isinstance(space, spaces.Discrete) else "a choice of each number, side by side,"
        raise SpecError(f"legal has shape {legal.shape[not batched :]}, expected one truth value {entry} of {space}")
    if not choices.playable(legal).all():
        row = legal[int(np.argmin(choices.playable(legal)))]
        raise SpecError(f"legal: no {choices.without_choice(row)} is legal; the mask must allow at least one")
    return obs, legal, batched


def _truths(name: str, given: Any, choices: Legal) -> Array:
    """Return masks as bool; raises SpecError for other values than 0 and 1."""
    try:
        values = choices.joined(given)
    except ValueError:  # lists of different lengths
        values = np.zeros(0, object)
    if values.dtype != bool and not (values.dtype.kind in NUMBERS and ((values == 0) | (values == 1)).all()):
        raise SpecError(f"{name} must hold True and False, or 1 and 0, for each action, got {shown(given)}")
    return values.astype(bool)


def exploring_rows(explore: Any, rows: int) -> Array:
    """Return the argument `explore` of `act` as [rows] bool; raises AgentError for a wrong shape or dtype."""
    values = np.asarray(explore)
    fitting = values.dtype == bool or (values.dtype.kind in "ui" and ((values == 0) | (values == 1)).all())
    if not fitting or values.shape not in ((), (rows,)):
        raise AgentError(
            f"explore must be True or False, or one of these for each of {rows} rows, got {shown(explore)}"
        )
    return np.array(np.broadcast_to(values, rows), bool)


def action_shape(space: Space) -> tuple[int, ...]:
    """Return the shape of one action in the loop's arrays."""
    return () if isinstance(space, spaces.Discrete) else (int(np.prod(space.shape or (), dtype=int)),)


def action_dtype(space: Space) -> type:
    """Return the dtype of actions in the loop's arrays."""
    return np.float32 if isinstance(space, spaces.Box) else np.int64


def no_actions(space: Space, count: int) -> Array:
    """Return actions [1, count, ...] of one agent that are all 0, for rows in which it does not act."""
    return np.zeros((1, count, *action_shape(space)), action_dtype(space))


def in_units(space: Space, action: Array) -> Array:
    """Convert the loop's action arrays (indices from 0, flat) to the environment's format."""
    if isinstance(space, spaces.Discrete):
        return action + space.start
    if isinstance(space, spaces.MultiDiscrete):
        return action.reshape(*action.shape[:-1], *space.shape) + space.start
    return action.reshape(*action.shape[:-1], *(space.shape or ()))


def indexed(space: Space, action: Array) -> Array:
    """Convert the environment's actions [B, ...] to the loop's format."""
    if isinstance(space, spaces.Discrete):
        return action - space.start
    if isinstance(space, spaces.MultiDiscrete):
        return action - space.start.reshape(-1)
    return action


def described_spaces(observation_space: Space | None, action_space: Space | None) -> dict[str, Any]:
    """Return an agent's spaces as JSON values; empty if the spaces are not known yet."""
    if observation_space is None or action_space is None:
        return {}
    sides = {"observation_space": observation_space, "action_space": action_space}
    return {name: describe_space(space) for name, space in sides.items()}


def spaces_from(info: Mapping[str, Any]) -> tuple[Space, Space]:
    """Build (observation space, action space) from a saved agent's description."""
    return space_from(info["observation_space"]), space_from(info["action_space"])
