"""Players of native games change seats within compiled code, as `RotatingVectorEnv` moves them between single steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.core.spec import EnvSpec, Step, empty_actions
from marltrain.envs.rotation import OF_LAST_ACTIONS, OF_NEXT_ACTIONS, Rotation
from marltrain.jit.compiling import compiled
from marltrain.jit.views import address_of, bools, copy, i64, record_at

ROTATION = np.dtype([(name, np.int64) for name in (
    "players", "envs", "ended", "seats", "following", "actions", "last", "lasts", "next", "nexts",
)])  # fmt: skip
"""Arguments of the kernel: numbers and addresses.

ended: [E] bool, of the Step.  seats: [P, E] int64, the seat of each entry.  following: [P] int64, the seat after each.
actions, last, next: arrays of `moved_rows`: of the actions, and of those of a Step that belong to the episode of the
last and of the next actions; lasts, nexts: how many there are.
"""
FROM, TO, SIZE = range(3)
"""Numbers of `moved_rows`."""


class RotationTable:
    """The arguments of the kernel.

    address: of the ROTATION record.  actions: by entries, per group; compiled code copies them to the seats.
    """

    def __init__(
        self, spec: EnvSpec, rotation: Rotation, seats: Array, by_seat: Step, by_entry: Step, sent: Sequence[Array]
    ) -> None:
        """Fill in the record.

        seats: [P, E], kept up to date.  by_seat: the Step of the games.  by_entry: the Step of the line-up.
        sent: the actions of the games, per group.
        """
        players, envs = seats.shape
        self.actions = empty_actions(spec, envs)
        self._following = rotation.seats(np.ones(1, np.int64))[:, 0].copy()
        self._arrays = [by_seat, by_entry, sent, seats]
        self._actions = moved_rows(spec, self.actions, sent)[None]
        self._last, self._next = (
            np.array([moved_rows(spec, getattr(by_seat, name), getattr(by_entry, name)) for name in names])
            for names in (OF_LAST_ACTIONS, OF_NEXT_ACTIONS)
        )
        self._record = np.zeros(1, ROTATION)
        r = self._record[0]
        r["players"], r["envs"], r["lasts"], r["nexts"] = players, envs, len(self._last), len(self._next)
        r["ended"], r["seats"], r["following"] = map(address_of, (by_seat.ended, seats, self._following))
        r["actions"], r["last"], r["next"] = map(address_of, (self._actions, self._last, self._next))
        self.address = address_of(self._record)


def moved_rows(spec: EnvSpec, source: Any, target: Any) -> Array:
    """Return addresses of players' rows of two arrays, and the bytes of an environment in them: [P, 3] int64.

    source, target: per group [P, E, ...], or [P, E, ...] of all players.  A row that is None has no bytes.
    """
    rows = np.zeros((len(spec.players), 3), np.int64)
    for p, (g, row) in enumerate(spec.place):
        given, own = (source[g], target[g]) if isinstance(source, tuple) else (source, target)
        if given is not None:
            place = row if isinstance(source, tuple) else p
            rows[p] = address_of(given[place]), address_of(own[place]), given[place, 0].nbytes
    return rows


@compiled
def rotation_at(address: int) -> Any:
    """Return the ROTATION record at an address."""
    return record_at(address, ROTATION)


@compiled
def seat_actions(r: Any, low: int, high: int) -> None:
    """Copy the actions of the entries to their seats, in the environments `low` to `high`."""
    rows = i64(r.actions, 3 * r.players)
    for i in range(r.players):
        seats, size = i64(r.seats + 8 * i * r.envs, r.envs), rows[3 * i + SIZE]
        for e in range(low, high):
            copy(rows[3 * i + FROM] + e * size, rows[3 * seats[e] + TO] + e * size, size)


@compiled
def show_step(r: Any, low: int, high: int) -> None:
    """Copy a Step to the entries, in the environments `low` to `high`; give new seats where an episode ended."""
    for k in range(r.lasts):
        show_rows(r, r.last + 24 * k * r.players, low, high)
    ended, following = bools(r.ended, r.envs), i64(r.following, r.players)
    for e in range(low, high):
        if ended[e]:
            for i in range(r.players):
                seats = i64(r.seats + 8 * i * r.envs, r.envs)
                seats[e] = following[seats[e]]
    for k in range(r.nexts):
        show_rows(r, r.next + 24 * k * r.players, low, high)


@compiled
def show_rows(r: Any, moved: int, low: int, high: int) -> None:
    """Copy an array of the seats to their entries; moved: address of its `moved_rows`."""
    rows = i64(moved, 3 * r.players)
    for i in range(r.players):
        seats, size = i64(r.seats + 8 * i * r.envs, r.envs), rows[3 * i + SIZE]
        for e in range(low, high):
            copy(rows[3 * seats[e] + FROM] + e * size, rows[3 * i + TO] + e * size, size)
