"""The end table: final observations of players whose part of an episode ended, stored outside the ring buffer.

The global states at the ends of episodes are stored in such a table, too.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from marltrain.core.errors import SaveError
from marltrain.core.layout import Array
from marltrain.storage.checks import finite, shaped, within
from marltrain.storage.state import State

START = 64


class EndTable:
    """Final observations and legal actions; `add` allocates entries and `free` releases them.

    obs: array name -> [N, ...] in the storage format of the ring.  legal: [N, A] bool or None.
    time: [N] int64, the batch step at which the end was recorded.
    unused, num_unused: [N] and [1] int64, unused entries are the first `num_unused` ones of `unused`; the last of them
      are allocated first.
    """

    def __init__(self, obs: Mapping[str, Array], legal: Array | None) -> None:
        """Allocate entries with the dtypes and trailing shapes of the given ring columns [P, C, E, ...]."""
        self.obs = {name: np.zeros((START, *column.shape[3:]), column.dtype) for name, column in obs.items()}
        self.legal = None if legal is None else np.zeros((START, legal.shape[-1]), bool)
        self.time = np.zeros(START, np.int64)
        self.unused, self.num_unused = np.arange(START, dtype=np.int64), np.array([START], np.int64)

    @property
    def used(self) -> int:
        """Number of allocated entries."""
        return len(self.time) - int(self.num_unused[0])

    def add(self, obs: Mapping[str, Array], legal: Array | None, player: Array, env: Array, time: int) -> Array:
        """Copy `obs[player, env]` and `legal[player, env]` into new entries and return their indices, [n] int64."""
        while self.num_unused[0] < len(player):
            self._grow()
        first = int(self.num_unused[0]) - len(player)
        entries = self.unused[first : first + len(player)].copy()
        self.num_unused[0] = first
        for name, column in self.obs.items():
            column[entries] = obs[name][player, env]
        if self.legal is not None and legal is not None:
            self.legal[entries] = legal[player, env]
        self.time[entries] = time
        return entries

    def free(self, entries: Array) -> None:
        """Release entries to which no row points any more."""
        first = int(self.num_unused[0])
        self.unused[first : first + len(entries)] = entries
        self.num_unused[0] = first + len(entries)

    def state(self) -> State:
        """Return all entries and the indices of unused entries."""
        legal = {} if self.legal is None else {"legal": self.legal}
        obs = {f"obs/{name}": column for name, column in self.obs.items()}
        return State({}, {**obs, **legal, "time": self.time, "unused": self.unused[: self.num_unused[0]].copy()})

    def load(self, state: State) -> None:
        """Load a state that `check_ends` accepts; raises SaveError for a wrong number of entries."""
        arrays = state.arrays
        entries = len(arrays["time"])
        while len(self.time) < entries:
            self._grow()
        if len(self.time) != entries:
            raise SaveError(f"{state.place('time')} must have {START} entries, or twice as many, ..., got {entries}")
        for name, column in self.obs.items():
            column[...] = arrays[f"obs/{name}"]
        if self.legal is not None:
            self.legal[...] = arrays["legal"]
        self.time[...] = arrays["time"]
        self.num_unused[0] = 0
        self.free(arrays["unused"])

    def _grow(self) -> None:
        held = len(self.time)

        def doubled(column: Array) -> Array:
            return np.concatenate([column, np.zeros_like(column)])

        self.obs = {name: doubled(column) for name, column in self.obs.items()}
        self.legal = None if self.legal is None else doubled(self.legal)
        self.time = doubled(self.time)
        self.unused = doubled(self.unused)
        self.free(np.arange(held, 2 * held))


def check_ends(state: State, pointers: Array, now: int, obs: dict[str, Array], legal: Array | None) -> None:
    """Raise SaveError unless each entry of the saved end table is unused or the target of exactly one pointer.

    state: state of the table.  pointers: the `next` column of the rows.
    obs, legal: columns [N, ...] of a table with the expected dtypes and shapes.
    """
    time, unused = state.any_array("time"), state.any_array("unused")
    entries = time.size
    shaped(state.place("time"), time, np.int64, (entries,))
    shaped(state.place("unused"), unused, np.int64, (unused.size,))
    within(state.place("time"), time, 0, now)
    within(state.place("unused"), unused, 0, entries - 1)
    used = -2 - pointers[pointers < -1]
    times = np.bincount(np.concatenate([unused, used]), minlength=entries)
    if (times != 1).any():
        k = int(np.flatnonzero(times != 1)[0])
        raise SaveError(
            f"{state.place('unused')}: entry {k} of {entries} must be unused, or what one row leads to; it is "
            f"unused {np.count_nonzero(unused == k)} times, and {np.count_nonzero(used == k)} rows lead to it"
        )
    for name, column in obs.items():
        saved = state.array(f"obs/{name}", column.dtype, (entries, *column.shape[1:]))
        finite(state.place(f"obs/{name}"), saved, np.isin(np.arange(entries), used))
    if legal is not None:
        state.array("legal", bool, (entries, *legal.shape[1:]))
