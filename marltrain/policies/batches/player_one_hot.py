"""The identity of players that share an agent: the one-hot of the observing player, added to the network's input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from marltrain.core.errors import AgentError, ConfigError, shown
from marltrain.core.layout import VECTOR, Array, Layout, Obs, Space, arrays_of


class IdentifiedLayout(Layout):
    """Layout of observations whose vector ends with the one-hot of the observing player.

    `space` and `parts` are those of the environment, without the player.

    players: their names, in the order of the one-hot.
    """

    def __init__(self, space: Space, stack: int, players: Sequence[str]) -> None:
        """Add a value for each of the players; see `Layout`."""
        super().__init__(space, stack)
        self.players = tuple(players)
        self.vector_size += len(self.players)


def layout_for(plain: Layout, players: Sequence[str]) -> Layout:
    """Return the layout of observations with the one-hot of one of the players; without players, the plain one."""
    return IdentifiedLayout(plain.space, plain.stack, players) if players else plain


def players_of(layout: Layout) -> tuple[str, ...]:
    """Return the players that a layout tells apart; empty for a plain layout."""
    return layout.players if isinstance(layout, IdentifiedLayout) else ()


def numbers_of(players: Sequence[str], names: Sequence[str]) -> Array:
    """Return the place of each name among the players, [n] int64; -1 for other names."""
    places = {name: i for i, name in enumerate(players)}
    return np.array([places.get(name, -1) for name in names], np.int64)


def identified(layout: Layout, obs: Obs, numbers: Array, count: int) -> Obs:
    """Return observations [..., *O] with the one-hot of their players, in the arrays of an `IdentifiedLayout`.

    layout: that of `obs`, without the player.  numbers: [...] int64, see `numbers_of`.  count: number of players.
    """
    hot = (numbers[..., None] == np.arange(count)).astype(np.float32)
    arrays = obs if isinstance(obs, dict) else {next(iter(layout.shapes)): obs}
    vector = np.concatenate([arrays[VECTOR], hot], -1) if VECTOR in arrays else hot
    images = {name: array for name, array in arrays.items() if name != VECTOR}
    return {VECTOR: vector, **images} if images else vector


def checked_players(who: str, given: Sequence[str]) -> tuple[str, ...]:
    """Return names of players as a tuple; raises ConfigError unless they are different strings."""
    if isinstance(given, str) or not isinstance(given, Sequence) or not all(isinstance(name, str) for name in given):
        raise ConfigError(f"{who}: identity must be a tuple of players' names, got {shown(given)}")
    if len(set(given)) < len(given):
        raise ConfigError(f"{who}: identity must name each player once, got {shown(given)}")
    return tuple(given)


def observed_by(player: Any, players: Sequence[str], layout: Layout, obs: Obs) -> Obs:
    """Return observations [B, *O] with the one-hot of the player that observes, or of one for each row.

    player: a name, B names, or None if `players` is empty; then the observations are returned unchanged.
    Raises AgentError for a missing or unknown name, for another number of names, and for a name without `players`.
    """
    if not players:
        if player is not None:
            raise AgentError(f"act got player={shown(player)}, but the agent has no identity: leave player out")
        return obs
    rows = len(arrays_of(obs)[0])
    names: list[Any] = list(player) if isinstance(player, list | tuple | np.ndarray) else [player] * rows
    if len(names) != rows or any(name not in players for name in names):
        raise AgentError(
            f"act of an agent that several players share needs player=, one of {', '.join(players)}, or one for each "
            f"of {rows} rows, got {shown(player)}"
        )
    return identified(layout, obs, numbers_of(players, names), len(players))
