"""Stacked frames, each stored once: the ring stores the newest frame and rebuilds stacks from earlier decisions.

The previous frame of a decision is the frame of the player's previous decision in the same episode. At the first
decision of an episode, the first frame is repeated. A stack can therefore be rebuilt only if the environment stacks the
frames of the player's own decisions and pads with the first frame (gymnasium's FrameStackObservation with padding_type
"reset").
"""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

import numpy as np

from marltrain.errors import SpecError
from marltrain.layout import Array, Layout, Obs
from marltrain.spec import Group

CHECKED_IN_FULL = 64  # batch steps; afterwards one environment is compared per batch step


class Frames:
    """The arrays of a layout that hold stacked frames.

    depths: array name -> number of frames, for stacked images only.  deepest: the largest depth, or 1.
    """

    def __init__(self, layout: Layout) -> None:
        """Read the depths from the layout's image parts."""
        self.layout = layout
        self.depths = {part.name or "image": part.stack for part in layout.images if part.stack > 1}
        self.deepest = max(self.depths.values(), default=1)

    @cached_property
    def shapes(self) -> dict[str, tuple[tuple[int, ...], type]]:
        """Array name -> (shape, dtype) of the stored array: the newest frame of a stack, other arrays unchanged."""
        whole = self.layout.shapes
        return {name: (shape[1:] if name in self.depths else shape, dtype) for name, (shape, dtype) in whole.items()}

    def named(self, obs: Obs) -> dict[str, Array]:
        """Return the observation's arrays by name."""
        return obs if isinstance(obs, dict) else {next(iter(self.layout.shapes)): obs}

    def newest(self, obs: Obs) -> dict[str, Array]:
        """Return views [P, E, ...] of the stored part of an observation [P, E, *O]."""
        named = self.named(obs)
        if not self.depths:
            return named
        return {name: array[:, :, -1] if name in self.depths else array for name, array in named.items()}

    def joined(self, arrays: dict[str, Array]) -> Obs:
        """Return arrays by name in the layout's observation format: a single array or a mapping."""
        return next(iter(arrays.values())) if self.layout.single else arrays


class FrameRows(Protocol):
    """The rows of a ring whose images are stacked; see `Ring` for its attributes and methods."""

    names: list[str]
    frames: Frames
    group: Group
    num_envs: int
    capacity: int
    now: int
    oldest: int
    next: Array

    @property
    def axes(self) -> tuple[int, int, int]:
        """(P, C, E)."""

    def cells(self, times: Array) -> Array:
        """Return the cells of [P, E] times."""

    def moved(self, cells: Array, times: Array) -> Array:
        """Return the cells of the same players and environments at other times."""

    def read(self, column: Array, cells: Array) -> Array:
        """Return a column's values at cells."""

    def drawable(self, cells: Array) -> Array:
        """Return whether transitions may be drawn from the rows at cells."""

    def obs_at(self, cells: Array) -> Obs:
        """Return observations at cells."""

    def after(self, cells: Array, pointers: Array) -> tuple[Obs, Array | None]:
        """Return the next observations and legal actions of rows whose `next` is `pointers`."""


class FrameHistory:
    """The previous decision of each decision, for a ring with stacked images.

    previous: [P, C, E] int64, time of the player's previous decision in the same episode; -1 for the first.
    complete: [P, C, E] bool, whether the ring still holds all frames of the row's stack.
    """

    def __init__(self, ring: FrameRows) -> None:
        """Allocate the arrays for a ring."""
        self.ring = ring
        self.previous = np.full(ring.axes, -1, np.int64)
        self.complete = np.ones(ring.axes, bool)

    def begin(self, before: Array) -> None:
        """Set `previous` of the newest row to the times `before` [P, E], -1 for none, and compute `complete`."""
        ring, slot = self.ring, self.ring.now % self.ring.capacity
        self.previous[:, slot] = before
        complete = np.ones(before.shape, bool)
        for _ in range(ring.frames.deepest - 1):
            complete &= (before < 0) | (before >= ring.oldest)
            reached = complete & (before >= 0)
            earlier = ring.read(self.previous, ring.cells(before))
            before = np.where(reached, earlier, -1)
        self.complete[:, slot] = complete

    def forget(self, slot: int) -> Array:
        """Mark rows whose stacks need a frame of this slot as incomplete; return the drawable rows lost, [P] int64."""
        ring = self.ring
        following = ring.next[:, slot]
        lost = np.zeros(ring.group.size, np.int64)
        for _ in range(ring.frames.deepest - 1):
            player, env = np.nonzero((following >= 0) & (following <= ring.now))
            cells = ring.cells(following)[player, env]
            complete = self.complete.reshape(-1)
            known = ring.read(ring.next, cells)
            gone = ring.drawable(cells)
            lost += np.bincount(player[gone], minlength=ring.group.size)
            complete[cells] = False
            following = np.full_like(following, -1)
            following[player, env] = known
        return lost

    def chain(self, cells: Array) -> Array:
        """Return the cells of the frames in each row's stack, [..., deepest] int64, oldest first."""
        ring = self.ring
        chain = np.empty((*cells.shape, ring.frames.deepest), np.int64)
        chain[..., -1] = cells
        for i in range(ring.frames.deepest - 2, -1, -1):
            newer = chain[..., i + 1]
            before = ring.read(self.previous, newer)
            chain[..., i] = np.where(before >= 0, ring.moved(newer, before), newer)
        return chain

    def check(self, obs: Obs, wanted: Array, rebuilt_from: Array, when: str, ends: Array | None = None) -> None:
        """Compare the environment's stacks with the rebuilt stacks; raises SpecError if they differ.

        wanted: [P, E] bool.  rebuilt_from: [P, E] cells.  ends: [P, E] end entries for final observations.
        """
        ring = self.ring
        if ring.now >= CHECKED_IN_FULL:
            wanted = wanted & (np.arange(ring.num_envs) == ring.now % ring.num_envs)
        wanted = wanted & ring.read(self.complete, rebuilt_from)
        player, env = np.nonzero(wanted)
        if len(player) == 0:
            return
        cells = rebuilt_from[player, env]
        links = np.full(len(cells), -1, np.int64) if ends is None else -2 - ends[player, env]
        rebuilt = ring.frames.named(ring.obs_at(cells) if ends is None else ring.after(cells, links)[0])
        for name in ring.frames.depths:
            came = ring.frames.named(obs)[name][player, env]
            same = (came == rebuilt[name]).reshape(len(cells), -1).all(1)
            if not same.all():
                raise SpecError(self._misfit(name, player[~same][0], env[~same][0], when))

    def _misfit(self, name: str, player: int, env: int, when: str) -> str:
        return (
            f"player {self.ring.names[player]!r} in environment {env}, batch step {self.ring.now}: the stacked frames "
            f"of image {name!r} {when} are not those that this player saw at its own decisions in this episode, with "
            "the first one repeated before it. "
            "Stack frames in that way (gymnasium's FrameStackObservation, padding_type='reset'), or build the "
            "environment without declaring a frame stack, so that whole images are stored"
        )
