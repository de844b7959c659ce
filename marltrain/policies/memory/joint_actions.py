"""Joint actions: the actions that all players took at one batch step, read from the rings of all groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.core.errors import ConfigError, MarlTrainError
from marltrain.core.layout import Array, Space, size_of
from marltrain.core.spec import EnvSpec
from marltrain.policies.memory.rows import Rows


def joint_action_size(spec: EnvSpec) -> int:
    """Return J, the number of values of a joint action: of all players, in spec order; see `JointActions`."""
    return sum(_width(player.action_space) for player in spec.players)


def _width(space: Space) -> int:
    return size_of(space) or 0  # `spec.check_action_space` refuses spaces without a size


class JointActions:
    """Reads joint actions from the rings of all groups, in which row t is batch step t.

    A joint action has a block of values for each player, in spec order: the one-hot of a Discrete action, a one-hot for
    each number of a MultiDiscrete action, or the numbers of a Box in the environment's units. The block is 0 if the
    player does not act at that batch step: it is absent, its part of the episode has ended, or it waits for its turn.
    """

    def __init__(self, spec: EnvSpec, rings: Mapping[int, Rows]) -> None:
        """Lay out the blocks; raises ConfigError unless `rings` holds one for each group."""
        if missing := sorted(set(range(len(spec.groups))) - set(rings)):
            raise ConfigError(
                f"joint actions need the rings of all groups, and group {missing[0]} is not recorded: add it to the "
                "storage of the streams"
            )
        self.rings: Sequence[Rows] = [rings[g] for g in range(len(spec.groups))]
        stops = np.cumsum([_width(player.action_space) for player in spec.players])
        self.size = int(stops[-1])
        starts = [0, *stops[:-1]]
        self._blocks = [slice(int(start), int(stop)) for start, stop in zip(starts, stops, strict=True)]

    def of_others(self, rows: Rows, cells: Array) -> Array:
        """Return the joint actions [*cells.shape, J] at the batch steps of rows; the block of the row's player is 0.

        Raises MarlTrainError if a ring no longer holds one of these batch steps.
        """
        slots, envs = cells // rows.num_envs % rows.capacity, cells % rows.num_envs
        times, own = rows.now - (rows.now - slots) % rows.capacity, cells // (rows.capacity * rows.num_envs)
        joint = np.zeros((*cells.shape, self.size), np.float32)
        for ring in self.rings:
            if times.min() < ring.oldest:
                raise MarlTrainError(f"group {ring.index} no longer holds batch step {times.min()}, which is read")
            for row, player in enumerate(ring.group.players):
                there = (row * ring.capacity + times % ring.capacity) * ring.num_envs + envs
                acted = ring.read(ring.acted, there) & ((own != row) | (ring is not rows))
                chosen = _values(ring.group.action_space, ring.read(ring.action, there))
                joint[..., self._blocks[player]] = np.where(acted[..., None], chosen, np.float32(0))
        return joint


def _values(space: Any, action: Array) -> Array:
    """Return actions of the loop's arrays as values [..., width] of a block."""
    if isinstance(space, spaces.Box):
        return action
    sizes = [int(space.n)] if isinstance(space, spaces.Discrete) else [int(n) for n in space.nvec.reshape(-1)]
    indices = action[..., None] if isinstance(space, spaces.Discrete) else action
    return np.concatenate([indices[..., i, None] == np.arange(size) for i, size in enumerate(sizes)], -1)
