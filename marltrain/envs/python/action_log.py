"""The actions of the running episodes, to restore environments whose state cannot be read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from marltrain.core.errors import SaveError
from marltrain.core.layout import Array
from marltrain.core.seeds import MOST_SEED
from marltrain.core.spec import EnvSpec, empty_actions
from marltrain.storage.checks import MOST_COUNTED, within
from marltrain.storage.state import State

_START = 64
"""Initial capacity in env steps."""


def check_action_log(saved: State, spec: EnvSpec, num_envs: int) -> None:
    """Raise SaveError for data that `Chunk.snapshot` cannot have returned for `num_envs` environments.

    The replay finds illegal actions.
    """
    seed, _, length = (
        within(saved.place(name), saved.array(name, np.int64, (num_envs,)), 0, most)
        for name, most in (("seed", MOST_SEED), ("episode", MOST_COUNTED), ("length", MOST_COUNTED))
    )
    if (seed != seed[0]).any():
        raise SaveError(f"{saved.place('seed')} must be one for all environments, got {seed.tolist()}")
    steps = sum(length.tolist())
    for g, one in enumerate(empty_actions(spec, 1)):
        saved.array(f"moves/{g}", one.dtype, (steps, one.shape[0], *one.shape[2:]))


class ActionLog:
    """The actions of each environment since the start of its episode, one array [T, P, E, ...] per group.

    Each step adds one row for all environments. Every environment has its own first row.
    """

    def __init__(self, spec: EnvSpec, num_envs: int) -> None:
        """Start with an empty log."""
        self._kept = [np.zeros((_START, *one.shape), one.dtype) for one in empty_actions(spec, num_envs)]
        self._since = np.zeros(num_envs, np.int64)
        self._rows = 0

    def begin(self, e: int) -> None:
        """Clear the actions of environment `e` at the start of an episode."""
        self._since[e] = self._rows

    def add(self, actions: tuple[Array, ...]) -> None:
        """Store one step's actions, per group [P, E, ...]."""
        if self._rows == len(self._kept[0]):
            self._make_room()
        for kept, sent in zip(self._kept, actions, strict=True):
            kept[self._rows] = sent
        self._rows += 1

    def of(self, e: int) -> tuple[Array, ...]:
        """Return the actions of environment `e`, per group [T, P, ...]."""
        return tuple(kept[self._since[e] : self._rows, :, e] for kept in self._kept)

    def restore(self, played: Sequence[tuple[Array, ...]]) -> None:
        """Restore the log from the results of `of` for each environment."""
        lengths = [len(moves[0]) for moves in played]
        self._rows = max(lengths)
        self._kept = [np.zeros((max(self._rows, _START), *kept.shape[1:]), kept.dtype) for kept in self._kept]
        for e, moves in enumerate(played):
            self._since[e] = self._rows - lengths[e]
            for kept, own in zip(self._kept, moves, strict=True):
                kept[self._since[e] : self._rows, :, e] = own

    def _make_room(self) -> None:
        """Drop the rows that no episode needs; if these are less than half, double the capacity."""
        oldest = int(self._since.min())
        needed = self._rows - oldest
        room = len(self._kept[0]) * (2 if 2 * needed > self._rows else 1)
        for g, kept in enumerate(self._kept):
            larger = np.zeros((room, *kept.shape[1:]), kept.dtype)
            larger[:needed] = kept[oldest : self._rows]
            self._kept[g] = larger
        self._since -= oldest
        self._rows = needed
