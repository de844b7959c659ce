"""The rows of a ring buffer: their columns, and reading at cells.

A row holds one decision and the reward until the player's next decision. The time of a row is the number of its batch
step, counted from the first recorded one. The row is in slot `time % C`. Pointers between rows are times, so they stay
valid when the capacity grows. A cell is the flat index of one row of one player in one environment: the index into a
column's first three axes [P, C, E] flattened.

A row is open until the player's next decision or the end of its part in the episode. After that, the row is closed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from marltrain.core.layout import Array, Obs
from marltrain.core.legal import Legal
from marltrain.core.spec import EnvSpec
from marltrain.policies.memory.ends import EndTable
from marltrain.policies.memory.needs import Column


class Rows:
    """The rows of one group, in columns [P, C, E, ...]: obs, legal, action, extras, reward, acted, next, terminated.

    columns: the columns by their saved names; the attributes are the same arrays.
    now: time of the newest row, -1 before the first.
    oldest: time of the oldest row.
    next: int64, time of the player's next decision; -1 while open; -2-k if its part ended, see entry k of `ends`.
    learnable: [P, C] bool, whether transitions may be drawn from the decisions of the batch step.
    deepest: frames in the deepest stack of images; 1 if no images are stacked.
    complete: bool, whether all frames of the row's stacks are in the ring; None if no images are stacked.
    """

    deepest = 1
    complete: Array | None = None

    def __init__(self, spec: EnvSpec, index: int, num_envs: int, capacity: int, extras: Mapping[str, Column]) -> None:
        """Allocate the columns for `capacity` batch steps."""
        self.index, self.group, self.num_envs, self.capacity = index, spec.groups[index], num_envs, capacity
        group = self.group
        self.names = [spec.names[player] for player in group.players]
        self.now, self.oldest = -1, 0
        kinds: dict[str, tuple[tuple[int, ...], Any]] = {
            "action": (group.action_shape, group.action_dtype), "reward": ((), np.float32), "acted": ((), bool),
            "terminated": ((), bool), "next": ((), np.int64),
        }  # fmt: skip
        if group.masked:
            kinds["legal"] = ((Legal(group.action_space).width,), bool)
        kinds |= {f"obs/{name}": kind for name, kind in self._obs_kinds().items()}
        kinds |= {f"extras/{name}": (column.shape, column.dtype) for name, column in extras.items()}
        columns = {name: np.zeros((*self.axes, *shape), dtype) for name, (shape, dtype) in kinds.items()}
        self._hold({**columns, "learnable": np.ones(self.axes[:2], bool)})
        self.next.fill(-1)
        self.ends = EndTable(self.obs, self.legal)

    def _obs_kinds(self) -> dict[str, tuple[tuple[int, ...], type]]:
        """Return name -> (shape, dtype) of the stored arrays of an observation."""
        return self.group.layout.shapes

    def _hold(self, columns: dict[str, Array]) -> None:
        """Set `columns` and the attributes for them."""
        self.columns = columns
        self.action, self.reward, self.acted = columns["action"], columns["reward"], columns["acted"]
        self.terminated, self.next, self.learnable = columns["terminated"], columns["next"], columns["learnable"]
        self.legal = columns.get("legal")
        self.obs, self.extras = (
            {name.removeprefix(kind): column for name, column in columns.items() if name.startswith(kind)}
            for kind in ("obs/", "extras/")
        )

    def _grow(self) -> None:
        """Double the capacity; every row keeps its time."""
        slots, self.capacity = self.held(), 2 * self.capacity
        columns: dict[str, Array] = {}
        for name, column in self.columns.items():
            shape = (len(column), self.capacity, *column.shape[2:])
            columns[name] = np.full(shape, -1 if name == "next" else 0, column.dtype)
            columns[name][:, self.held()] = column[:, slots]
        self._hold(columns)

    @property
    def axes(self) -> tuple[int, int, int]:
        """(P, C, E), the leading axes of every column."""
        return self.group.size, self.capacity, self.num_envs

    def mirrored(self) -> dict[str, tuple[Array, Array | None]]:
        """Return the columns that batches gather, with their values in the end table, if it has any; see `mirror`."""
        found: dict[str, tuple[Array, Array | None]] = {
            f"obs/{name}": (column, self.ends.obs[name]) for name, column in self.obs.items()
        }
        if self.legal is not None:
            found["legal"] = self.legal, self.ends.legal
        return {**found, "action": (self.action, None), **{f"extras/{n}": (c, None) for n, c in self.extras.items()}}

    @property
    def step_size(self) -> int:
        """Bytes per batch step."""
        return sum(column.nbytes for column in self.columns.values()) // self.capacity

    def held(self) -> Array:
        """Return the slots of the rows, oldest first, [H] int64."""
        return np.arange(self.oldest, self.now + 1) % self.capacity

    def named(self, obs: Obs) -> dict[str, Array]:
        """Return the arrays of an observation by name."""
        return obs if isinstance(obs, dict) else {next(iter(self.obs)): obs}

    def stored(self, obs: Obs) -> dict[str, Array]:
        """Return views [P, E, ...] of the stored part of an observation [P, E, *O], by name."""
        return self.named(obs)

    # cells

    def cells(self, times: Array) -> Array:
        """Return the cells of times [P, E]; the cell is arbitrary where the time is -1."""
        players, envs = np.arange(self.group.size)[:, None], np.arange(self.num_envs)
        cells: Array = (players * self.capacity + times % self.capacity) * self.num_envs + envs
        return cells

    def shifted(self, cells: Array, times: Array) -> Array:
        """Return the cells of the same players in the same environments at other times."""
        slots = cells // self.num_envs % self.capacity
        there: Array = cells + (times % self.capacity - slots) * self.num_envs
        return there

    def read(self, column: Array, cells: Array) -> Array:
        """Return a column's values at cells, [*cells.shape, ...]."""
        values: Array = column.reshape(-1, *column.shape[3:]).take(cells, axis=0)
        return values

    def may_learn(self, cells: Array) -> Array:
        """Return whether the seats of rows learned at the time of the decision; see `Streams.learning`."""
        return self.learnable.reshape(-1).take(cells // self.num_envs)

    def drawable(self, cells: Array) -> Array:
        """Return whether transitions may be drawn from rows: closed and learnable rows with all their frames."""
        drawable: Array = (self.read(self.next, cells) != -1) & self.may_learn(cells)
        return drawable if self.complete is None else drawable & self.read(self.complete, cells)

    def closed_at(self, pointers: Array) -> Array:
        """Return the batch step at which rows with these `next` pointers were closed; undefined for open rows."""
        part_ended = pointers < -1
        if not part_ended.any():
            return pointers
        return np.where(part_ended, self.ends.time.take(np.where(part_ended, -2 - pointers, 0)), pointers)

    def obs_at(self, cells: Array) -> Obs:
        """Return observations [*cells.shape, *O]."""
        return joined({name: self.read(self.obs[name], places) for name, places in self.places_at(cells).items()})

    def legal_at(self, cells: Array) -> Array | None:
        """Return legal actions [*cells.shape, A], or None."""
        return None if self.legal is None else self.read(self.legal, cells)

    def after(self, cells: Array, pointers: Array) -> tuple[Obs, Array | None]:
        """Return the next observations and legal actions [*cells.shape, ...] of rows whose `next` is `pointers`."""
        places = self.places_after(cells, pointers).items()
        arrays = {name: self._placed(self.obs[name], self.ends.obs[name], own) for name, own in places}
        if self.legal is None or self.ends.legal is None:
            return joined(arrays), None
        return joined(arrays), self._placed(self.legal, self.ends.legal, self.place_after(cells, pointers))

    def place_after(self, cells: Array, pointers: Array) -> Array:
        """Return the place of what follows rows whose `next` is `pointers`: a cell, or -2-k for entry k of `ends`."""
        return np.where(pointers < -1, pointers, self.shifted(cells, pointers))

    def places_at(self, cells: Array) -> dict[str, Array]:
        """Return the cells of the arrays of the observations at the decisions, by name."""
        return dict.fromkeys(self.obs, cells)

    def places_after(self, cells: Array, pointers: Array) -> dict[str, Array]:
        """Return the places of the arrays of the next observations by name, see `place_after`."""
        return dict.fromkeys(self.obs, self.place_after(cells, pointers))

    def _placed(self, column: Array, final: Array, places: Array) -> Array:
        """Return values [*places.shape, ...] of a column, or where a place is negative, of the end table's `final`."""
        ended = places < 0
        if not np.count_nonzero(ended):
            return self.read(column, places)
        values = self.read(column, np.where(ended, 0, places))
        values[ended] = final[-2 - places[ended]]
        return values


def joined(arrays: dict[str, Array]) -> Obs:
    """Return arrays by name in the format of an observation: a single array or a mapping."""
    return next(iter(arrays.values())) if len(arrays) == 1 else arrays
