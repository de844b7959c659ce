"""Actions of the players outside of a team, as vectors, at the batch steps of a `TeamBatch` and at the next ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from marltrain.core.layout import Array, Space
from marltrain.core.spec import EnvSpec
from marltrain.policies.backends import numpy_ops
from marltrain.policies.distributions import Continuous, RelaxedCategorical
from marltrain.policies.memory.ring import Ring


class OtherPlayers:
    """Reads the actions of all players but those of a team, in spec order, side by side.

    An action is the one-hot of each choice, or the numbers of a Box, whose bounds are at -1 and 1. The vector of a
    player that does not act at the batch step is 0.
    """

    def __init__(self, spec: EnvSpec, rings: Sequence[Ring], team: Collection[int]) -> None:
        """Find the players.  rings: those of all groups.  team: indices of the players that are left out."""
        self._rings = rings
        places = [(rings[group], row) for p, (group, row) in enumerate(spec.place) if p not in team]
        self._players = [_Player(ring, row, _vectors_of(ring.group.action_space)) for ring, row in places]

    def __bool__(self) -> bool:
        """Whether there are other players."""
        return bool(self._players)

    @property
    def oldest(self) -> int:
        """Oldest batch step that the rings of all groups hold."""
        return max(ring.oldest for ring in self._rings)

    def at(self, times: Array, envs: Array) -> Array:
        """Return the vectors [B, J] at batch steps `times` [B] of environments `envs` [B]."""
        result = []
        for player in self._players:
            cells = player.cells(times, envs)
            acted, action = player.ring.read(player.ring.acted, cells), player.ring.read(player.ring.action, cells)
            action[~acted] = 0  # the agent may have returned any value there
            vectors = player.vectors(numpy_ops, action)
            result.append(np.where(acted[..., None], vectors, np.float32(0)).astype(np.float32))
        return np.concatenate(result, -1)

    def unknown_next(self, times: Array, envs: Array, going_on: Array) -> Array:
        """Return where the next actions of players are not in the memory, [B] bool.

        This is so before the newest decisions, and where the episode was cut.
        going_on: [B] bool, whether the batch step after `times` belongs to the same episode.
        """
        unknown = np.zeros(len(times), bool)
        for player in self._players:
            ring = player.ring
            acted, due = ring.read(ring.acted, player.cells(times, envs)), ring.turn[player.row, envs]
            unknown |= np.where(going_on, (times + 1 == ring.coming) & due, acted)
        return unknown


class _Player(NamedTuple):
    """A player: its ring, its row in the group, and what makes vectors [..., A] of its actions."""

    ring: Ring
    row: int
    vectors: Callable[[Any, Any], Any]

    def cells(self, times: Array, envs: Array) -> Array:
        """Return its cells at batch steps of environments."""
        ring = self.ring
        cells: Array = (self.row * ring.capacity + times % ring.capacity) * ring.num_envs + envs
        return cells


def _vectors_of(space: Space) -> Callable[[Any, Any], Any]:
    """Return the function (ops, actions) -> vectors of an action space."""
    if isinstance(space, spaces.Box):
        return Continuous(space).scaled
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return RelaxedCategorical(space).vectors
    raise TypeError(f"action space {space} has no vectors")  # environments with another one are refused
