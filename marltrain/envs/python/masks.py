"""Masks of legal moves: which players have them, and the checked mask of one decision.

A mask is the entry "action_mask" of a player's observation or of its info: one 0 or 1 for each Discrete action, or for
each choice of each number of a MultiDiscrete action, see `marltrain.core.legal`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.core.errors import EnvError, SpecError, did_you_mean, shown
from marltrain.core.layout import NUMBERS, Array, Space
from marltrain.core.legal import Legal
from marltrain.core.spaces import without_mask
from marltrain.core.spec import PlayerSpec
from marltrain.envs.python.names import text_name

MASK = "action_mask"
"""Key of masks in observations and infos, and of their declaration in an environment's metadata."""


def with_masks(
    players: Sequence[PlayerSpec], views: Mapping[str, tuple[Any, Any]], metadata: Mapping[str, Any]
) -> list[PlayerSpec]:
    """Return the players with `masked` set: for a mask in the space, in the first views, or declared in the metadata.

    Players with equal spaces form one group: if one has masks, all are masked, and a missing mask allows every move.
    views: observation and info of players after the reset.

    Raises SpecError for masks of a Box of actions, and for a wrong declaration.
    """
    names = _declared(players, metadata)
    for player in players:
        observation, info = views.get(player.name, (None, None))
        if without_mask(player.observation_space)[1] or _has_mask(player.action_space, observation, info):
            names.add(player.name)
        if player.name in names and not _is_choice(player.action_space):
            raise SpecError(_no_choice(player))
    kinds = {player.kind for player in players if player.name in names}
    may_have = [bool(kinds) and _is_choice(player.action_space) for player in players]
    masked = [may and player.kind in kinds for player, may in zip(players, may_have, strict=True)]
    return [dataclasses.replace(player, masked=own) for player, own in zip(players, masked, strict=True)]


def _has_mask(action_space: Space, observation: Any, info: Any) -> bool:
    """Return whether an observation or an info has an entry for a mask; an entry None counts for actions of choices."""
    entries = [held[MASK] for held in (observation, info) if isinstance(held, Mapping) and MASK in held]
    return bool(entries) and (_is_choice(action_space) or any(one is not None for one in entries))


def _is_choice(space: Space) -> bool:
    return isinstance(space, spaces.Discrete | spaces.MultiDiscrete)


def _declared(players: Sequence[PlayerSpec], metadata: Mapping[str, Any]) -> set[str]:
    """Return the names of the players whose masks are declared in the metadata."""
    declared = metadata.get(MASK, False)
    if isinstance(declared, bool):
        return {player.name for player in players if declared and _is_choice(player.action_space)}
    if isinstance(declared, str) or not isinstance(declared, Sequence):
        raise SpecError(
            f"metadata[{MASK!r}] must be True, if all players whose actions are choices have masks of legal moves, or "
            f"a list of the names of those that have them, got {shown(declared)}"
        )
    known = [player.name for player in players]
    for name in map(text_name, declared):
        if name not in known:
            raise SpecError(
                f"metadata[{MASK!r}] names {shown(name)}, which is not in possible_agents {known}."
                f"{did_you_mean(str(name), known)}"
            )
    return set(map(text_name, declared))


def _no_choice(player: PlayerSpec) -> str:
    return (
        f"player {player.name!r} has an action_mask, but only Discrete and MultiDiscrete actions can be masked, not "
        f"{player.action_space}: give this player none, or make its actions choices"
    )


class MaskReader:
    """Reads the masks of one player, and checks them."""

    def __init__(self, player: PlayerSpec) -> None:
        """Look up the player's spaces."""
        self._player = player
        self._legal = Legal(player.action_space)
        self._single = isinstance(player.action_space, spaces.Discrete)
        self._shape = (self._legal.width,)
        self._mapping = isinstance(player.observation_space, spaces.Dict)
        self._promised = without_mask(player.observation_space)[1]

    def read(self, observation: Any, info: Any) -> Array | None:
        """Return the mask [A] at a decision; None without a mask: all moves are legal.

        Raises EnvError for a mask that is promised by the space and missing, for values other than 0 and 1, for a wrong
        shape, and for two masks that differ. Raises SpecError for a mask of a player whose spec has none.
        """
        if not self._mapping and type(info) is dict and MASK not in info:
            return None  # fast path of a common case
        seen, data = self._held(observation, info)
        if seen is None and data is None:
            if self._promised:
                raise EnvError(
                    f"player {self._player.name!r}: its observation has no {MASK!r}, which its space promises. Give "
                    "one at every move, or remove it from the space and give it in the info at those moves that need it"
                )
            return None
        if not self._player.masked:
            raise SpecError(self._undeclared("observation" if data is None else "info"))
        mask = self._checked(data if seen is None else seen)
        if seen is not None and data is not None and (mask != (other := self._checked(data))).any():
            raise EnvError(
                f"player {self._player.name!r}: the {MASK!r} of its observation allows {self._legal.listed(mask)} and "
                f"that of its info {self._legal.listed(other)}: make them equal, or give only one of them"
            )
        return mask

    def read_last(self, observation: Any, info: Any) -> Array | None:
        """Return the mask [A] of a final observation, which no move follows; None without a mask or a legal move.

        None, too, if a number of a MultiDiscrete action has no legal choice.
        """
        seen, data = self._held(observation, info)
        given = data if seen is None else seen
        if given is None:
            return None
        if not self._player.masked:
            raise SpecError(self._undeclared("observation" if seen is not None else "info"))
        mask = self._checked(given)
        return mask if self._legal.playable(mask) else None

    def _held(self, observation: Any, info: Any) -> tuple[Any, Any]:
        """Return the masks in the observation and in the info; None for those that are missing."""
        is_mapping = self._mapping and (type(observation) is dict or isinstance(observation, Mapping))
        seen = observation.get(MASK) if is_mapping else None
        data = info.get(MASK) if info and (type(info) is dict or isinstance(info, Mapping)) else None
        return seen, data

    def _checked(self, given: Any) -> Array:
        try:
            mask = self._legal.joined(given)
        except ValueError:  # lists of different lengths
            raise EnvError(f"player {self._player.name!r}: {MASK!r} is {shown(given)}, {self._expected()}") from None
        if mask.shape == self._shape and mask.dtype.kind in NUMBERS:
            legal = mask == 1
            if np.count_nonzero(legal) == np.count_nonzero(mask):  # NaN and infinities count as nonzero
                return legal
        raise EnvError(self._wrong(mask))

    def _expected(self) -> str:
        space = self._player.action_space
        if self._single:
            return f"expected {self._shape}: one entry for each action of {space}"
        return (
            f"expected {self._shape}: one entry for each choice of each number of {space}, side by side, or a list of "
            f"{len(self._legal.sizes)} masks, of {shown(list(self._legal.sizes))} entries"
        )

    def _wrong(self, mask: Array) -> str:
        who = f"player {self._player.name!r}: {MASK!r}"
        if mask.dtype.kind not in NUMBERS:
            return f"{who} has dtype {mask.dtype}, expected 0 and 1"
        if mask.shape != self._shape:
            return f"{who} has shape {mask.shape}, {self._expected()}"
        i = int(np.flatnonzero((mask != 0) & (mask != 1))[0])
        entry = f"{'action' if self._single else 'entry'} {i}"
        return f"{who} holds {mask[i]} for {entry}, expected 1 for a legal action and 0 for others"

    def _undeclared(self, where: str) -> str:
        player = self._player
        if not _is_choice(player.action_space):
            return _no_choice(player)
        return (
            f"player {player.name!r}: its {where} has an {MASK!r}, but it had none after the first reset, so that "
            "agents without legal moves were made. Give one after the reset, too, or declare it in the environment's "
            f"metadata: {MASK!r}: True, or the list of players that have masks, such as [{player.name!r}]"
        )
