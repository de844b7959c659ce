"""Masks of a run: the seats that learn and those that explore."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from marltrain.errors import MaskError, shown
from marltrain.layout import Array
from marltrain.policies.agents.agent import Agent
from marltrain.spec import EnvSpec


class Masks:
    """The masks of a run, each [2, P] bool: the seats that learn, and the seats that explore.

    wanted: the masks that the user has set.  applied: the masks in effect; None before the first batch step.
    """

    def __init__(self, learning: Array, exploring: Array) -> None:
        """Take the masks [P] bool given to `train`."""
        self.wanted = np.stack([learning, exploring])
        self.applied: Array | None = None

    @property
    def effective(self) -> Array:
        """The masks in effect; before the first batch step those that it will apply."""
        return self.wanted if self.applied is None else self.applied

    def set(self, *, learning: Array | None = None, exploring: Array | None = None) -> None:
        """Set one or both masks, [P] bool; they take effect at the next batch step."""
        now = self.wanted
        self.wanted = np.stack([now[0] if learning is None else learning, now[1] if exploring is None else exploring])


def as_mask(values: Any, spec: EnvSpec, what: str, *, some: bool) -> Array:
    """Return a mask as [P] bool; raises MaskError for a wrong length or for values that are not truth values.

    what: name of the mask, for messages.  some: also refuse a mask without any True.
    """
    names = ", ".join(spec.names)
    listable = hasattr(values, "__len__") and hasattr(values, "__getitem__")
    if not listable or isinstance(values, str | Mapping) or getattr(values, "shape", None) == ():
        raise MaskError(f"{what} must hold one truth value per player ({names}), got {shown(values)}")
    listed = list(values)
    if len(listed) != len(spec.players):
        raise MaskError(f"{what} has {len(listed)} entries, {spec.name} has {len(spec.players)} players: {names}")
    for name, value in zip(spec.names, listed, strict=True):
        if not isinstance(value, int | float | np.bool_ | np.number) or value not in (0, 1):
            raise MaskError(f"{what}: the entry of player {name!r} must be 0 or 1, got {shown(value)}")
    mask = np.array([bool(value) for value in listed])
    if some and not mask.any():
        raise MaskError(f"{what} is False for every player ({names}): at least one must be True")
    return mask


def check_learners(spec: EnvSpec, agents: Sequence[Agent], mask: Array) -> None:
    """Raise MaskError if the mask is True for an agent that cannot learn."""
    for player, agent, learns in zip(spec.names, agents, mask, strict=True):
        if learns and not agent.learns:
            raise MaskError(
                f"learning_mask is True for player {player!r}, but a {type(agent).__name__} never learns: set 0 there"
            )
