"""Rotation: the seats of the entries of a line-up in each episode, and the arrays of a Step that move with them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from marltrain.core.layout import Array
from marltrain.core.spec import EnvSpec

OF_LAST_ACTIONS = ("reward", "terminated", "truncated", "final_obs", "final_legal")
"""Arrays of a Step by players that belong to the episode of the last actions."""
OF_NEXT_ACTIONS = ("obs", "legal", "turn", "alive", "start_reward")
"""Arrays of a Step by players that belong to the episode that runs now."""


class Rotation:
    """The seats of the entries of a line-up, which change from episode to episode.

    Seats are in cycles of equal spaces: in turn j, an entry has the seat that is j places further in its cycle.
    cycles: None: all seats of equal spaces; for teams, those at the same place of each team.
    """

    def __init__(self, spec: EnvSpec, cycles: Sequence[Sequence[int]] | None = None) -> None:
        """Take the cycles of players, by their indices; players in no cycle keep their seats."""
        self._cycles = [np.array(c) for c in ([g.players for g in spec.groups] if cycles is None else cycles)]
        self._groups = [list(group.players) for group in spec.groups]
        self._place = np.array([place for _, place in spec.place])

    def seats(self, turns: Array) -> Array:
        """Return the players whose seats the entries have, [P, n] int64; turns: [n] int64."""
        seats = np.repeat(np.arange(len(self._place))[:, None], len(turns), 1)
        for cycle in self._cycles:
            seats[cycle] = cycle[(np.arange(len(cycle))[:, None] + turns) % len(cycle)]
        return seats

    def rows(self, seats: Array) -> list[Array]:
        """Return the rows in their groups of the seats [P, n] of entries, for each group [P, n]."""
        return [self._place[seats[players]] for players in self._groups]

    def rows_of(self, players: Array, turns: Array) -> Array:
        """Return the rows in their group of the seats of entries `players` [K, S], [K, S, n]."""
        rows: Array = self._place[self.seats(turns)[players]]
        return rows
