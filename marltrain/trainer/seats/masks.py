"""Masks of a run: the seats that learn and those that explore."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from marltrain.core.errors import MaskError, shown
from marltrain.core.layout import Array
from marltrain.core.spec import EnvSpec
from marltrain.policies.agents.agent import Agent
from marltrain.trainer.seats.by_player import by_player

Mask = Sequence[Any] | Array | Mapping[str, Any]
"""A truth value per player, in the players' order, or by player's name or pattern."""


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


def as_learning_mask(values: Any, spec: EnvSpec, agents: Sequence[Agent]) -> Array:
    """Return the mask of the seats that learn, [P] bool; None: all whose agents can learn. See `as_mask`.

    Raises MaskError for a mask without any True, and for a True of an agent that never learns.
    """
    can = np.array([agent.learns for agent in agents])
    if values is None and not can.any():
        kinds = ", ".join(f"{name!r}: a {type(agent).__name__}" for name, agent in zip(spec.names, agents, strict=True))
        raise MaskError(f"no agent can learn ({kinds} never learns): give an agent that does, or play a test with test")
    mask = as_mask(values, spec, "learning_mask", can, some=True)
    check_learners(spec, agents, mask)
    return mask


def as_exploration_mask(values: Any, spec: EnvSpec) -> Array:
    """Return the mask of the seats that explore, [P] bool; None: all. See `as_mask`."""
    return as_mask(values, spec, "exploration_mask", np.ones(len(spec.players), bool), some=False)


def as_mask(values: Any, spec: EnvSpec, what: str, default: Array, *, some: bool) -> Array:
    """Return a mask as [P] bool.

    values: one truth value per player; or a mapping from players' names or shell patterns to them, see `by_player`; or
      None for the default. In a mapping that holds True only, the players that it leaves out are False; in one that
      holds False only, they have their default.
    what: name of the mask, for messages.  default: [P] bool.  some: also refuse a mask without any True.
    Raises MaskError for a wrong length, for values that are not truth values, for keys that do not fit the players, and
    for a mapping that holds both values and leaves a player out.
    """
    names = ", ".join(spec.names)
    if values is None:
        return default
    listed = _entries(values, spec, what)
    for name, value in listed.items():
        if not isinstance(value, int | float | np.bool_ | np.number) or value not in (0, 1):
            raise MaskError(f"{what}: the entry of player {name!r} must be 0 or 1, got {shown(value)}")
    given = {bool(value) for value in listed.values()}
    if left := [name for name in spec.names if name not in listed]:
        if len(given) != 1:
            raise MaskError(
                f"{what} gives player {left[0]!r} no value: it may leave players out only if all its values are True "
                f"(the others are then False), or all are False, got {shown(values)}. Players: {names}"
            )
        default = np.zeros(len(spec.players), bool) if given == {True} else default
    mask = np.array([bool(listed.get(name, default[p])) for p, name in enumerate(spec.names)])
    if some and not mask.any():
        raise MaskError(f"{what} is False for every player ({names}): at least one must be True")
    return mask


def _entries(values: Any, spec: EnvSpec, what: str) -> dict[str, Any]:
    """Return the given values by player; raises MaskError if they do not fit the players."""
    names = ", ".join(spec.names)
    if isinstance(values, Mapping):
        return by_player(values, spec, what, MaskError, complete=False)
    listable = hasattr(values, "__len__") and hasattr(values, "__getitem__")
    if not listable or isinstance(values, str) or getattr(values, "shape", None) == ():
        raise MaskError(
            f"{what} must hold one truth value per player ({names}), got {shown(values)}: give a list, or a mapping by "
            "player"
        )
    if len(values) != len(spec.players):
        raise MaskError(f"{what} has {len(values)} entries, {spec.name} has {len(spec.players)} players: {names}")
    return dict(zip(spec.names, values, strict=True))


def check_learners(spec: EnvSpec, agents: Sequence[Agent], mask: Array) -> None:
    """Raise MaskError if the mask is True for an agent that cannot learn."""
    for player, agent, learns in zip(spec.names, agents, mask, strict=True):
        if learns and not agent.learns:
            raise MaskError(
                f"learning_mask is True for player {player!r}, but a {type(agent).__name__} never learns: set 0 there, "
                "or leave learning_mask out"
            )
