"""Stacked frames, each stored once: the ring stores the newest frame and rebuilds stacks from earlier decisions.

The previous frame of a decision is the frame of the player's previous decision in the same episode. At the first
decision of an episode, the first frame is repeated. A stack can therefore be rebuilt only if the environment stacks the
frames of the player's own decisions and pads with the first frame (gymnasium's FrameStackObservation with padding_type
"reset").
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from marltrain.core.errors import SpecError
from marltrain.core.layout import Array, Obs
from marltrain.core.spec import EnvSpec, Step
from marltrain.policies.memory.needs import Column
from marltrain.policies.memory.ring import Ring

CHECKED_IN_FULL = 64  # batch steps; afterwards one environment is compared per batch step


def ring_of(spec: EnvSpec, index: int, num_envs: int, rows: int, extras: Mapping[str, Column]) -> Ring:
    """Return the ring of a group, which stores stacked images frame by frame."""
    stacked = any(part.stack > 1 for part in spec.groups[index].layout.images)
    return (FrameRing if stacked else Ring)(spec, index, num_envs, rows, extras)


class FrameRing(Ring):
    """A ring whose images are stacked frames.

    depths: array name -> number of frames, for stacked images only.
    previous: [P, C, E] int64, time of the player's previous decision in the same episode; -1 for the first.
    """

    previous: Array
    complete: Array

    def __init__(self, spec: EnvSpec, index: int, num_envs: int, rows: int, extras: Mapping[str, Column]) -> None:
        """Allocate the rows, see `Ring`."""
        images = spec.groups[index].layout.images
        self.depths = {part.array: part.stack for part in images if part.stack > 1}
        self.deepest = max(self.depths.values())
        super().__init__(spec, index, num_envs, rows, extras)

    def _obs_kinds(self) -> dict[str, tuple[tuple[int, ...], type]]:
        """See `Rows`: of a stack, the newest frame."""
        kinds = super()._obs_kinds()
        return {name: (shape[1:] if name in self.depths else shape, dtype) for name, (shape, dtype) in kinds.items()}

    def _hold(self, columns: dict[str, Array]) -> None:
        """See `Rows`; the first columns lack those of this class."""
        if "previous" not in columns:
            columns |= {"previous": np.full(self.axes, -1, np.int64), "complete": np.ones(self.axes, bool)}
        super()._hold(columns)
        self.previous, self.complete = columns["previous"], columns["complete"]

    def stored(self, obs: Obs) -> dict[str, Array]:
        """See `Rows`: of a stack, the newest frame."""
        return {name: array[:, :, -1] if name in self.depths else array for name, array in self.named(obs).items()}

    def restart(self, step: Step, envs: Array) -> None:
        """See `Ring`; the replaced rows are the first ones of episodes."""
        super().restart(step, envs)
        slot = self.now % self.capacity
        self.previous[:, slot, envs], self.complete[:, slot, envs] = -1, True

    def record_step(self, step: Step, reward: Array, part_ended: Array | None) -> None:
        """See `Ring`; links the new row to the players' previous decisions and compares the observations."""
        before = np.where(False if part_ended is None else part_ended[self.players], -1, self.open)
        super().record_step(step, reward, part_ended)
        slot, now = self.now % self.capacity, np.full_like(before, self.now)
        self.previous[:, slot] = before
        complete = np.ones(before.shape, bool)
        for _ in range(self.deepest - 1):
            complete &= (before < 0) | (before >= self.oldest)
            reached = complete & (before >= 0)
            before = np.where(reached, self.read(self.previous, self.cells(before)), -1)
        self.complete[:, slot] = complete
        self._check(step.obs[self.index], step.turn[self.index], self.cells(now), "at a decision")

    def _link_to_ends(self, time: int, step: Step, part_ended: Array, was_open: Array) -> None:
        """See `Ring`; compares the final observations."""
        super()._link_to_ends(time, step, part_ended, was_open)
        cells, wanted = self.cells(was_open), part_ended & (was_open >= 0)
        self._check(step.final_obs[self.index], wanted, cells, "at the end", self.read(self.next, cells))

    def _forget(self, slot: int) -> None:
        """See `Ring`; rows whose stacks need a frame of this slot become incomplete."""
        following = self.next[:, slot]
        for _ in range(self.deepest - 1):
            player, env = np.nonzero((following >= 0) & (following <= self.now))
            cells = self.cells(following)[player, env]
            known = self.read(self.next, cells)
            self.drawable_count -= self._drawable_at(player, cells)
            self.complete.reshape(-1)[cells] = False
            self._withdraw(following[player, env], player, env)
            following = np.full_like(following, -1)
            following[player, env] = known
        super()._forget(slot)

    def places_at(self, cells: Array) -> dict[str, Array]:
        """See `Rows`; of a stack, those of its frames, [*cells.shape, frames], oldest first."""
        chain = self._chain(cells)
        return {name: self._of_stack(name, cells, chain) for name in self.obs}

    def places_after(self, cells: Array, pointers: Array) -> dict[str, Array]:
        """See `Rows`; a stack at an end holds the frames of the last decision but its first, and the final frame."""
        places, ended = self.place_after(cells, pointers), pointers < -1
        chain = self._chain(np.where(ended, cells, places))
        if np.count_nonzero(ended):
            chain[ended] = np.concatenate([chain[ended][:, 1:], places[ended][:, None]], 1)
        return {name: self._of_stack(name, places, chain) for name in self.obs}

    def _of_stack(self, name: str, places: Array, chain: Array) -> Array:
        """Return the newest places of a chain [..., deepest] for a stack, or `places` for another array."""
        return chain[..., -self.depths[name] :] if name in self.depths else places

    def _chain(self, cells: Array) -> Array:
        """Return the cells of the frames of the deepest stack, [*cells.shape, deepest], oldest first."""
        chain = np.empty((*cells.shape, self.deepest), np.int64)
        chain[..., -1] = cells
        for i in range(self.deepest - 2, -1, -1):
            newer = chain[..., i + 1]
            before = self.read(self.previous, newer)
            chain[..., i] = np.where(before >= 0, self.shifted(newer, before), newer)
        return chain

    def _check(self, obs: Obs, wanted: Array, cells: Array, when: str, pointers: Array | None = None) -> None:
        """Compare the environment's stacks with the rebuilt stacks; raises SpecError if they differ.

        wanted: [P, E] bool.  cells: [P, E], the rows to rebuild from.
        pointers: [P, E], pointers of the rows to end entries, for final observations.
        """
        if self.now >= CHECKED_IN_FULL:
            wanted = wanted & (np.arange(self.num_envs) == self.now % self.num_envs)
        player, env = np.nonzero(wanted & self.read(self.complete, cells))
        if len(player) == 0:
            return
        there = cells[player, env]
        rebuilt = self.named(self.obs_at(there) if pointers is None else self.after(there, pointers[player, env])[0])
        for name in self.depths:
            came = self.named(obs)[name][player, env]
            same = (came == rebuilt[name]).reshape(len(there), -1).all(1)
            if not same.all():
                raise SpecError(self._misfit(name, player[~same][0], env[~same][0], when))

    def _misfit(self, name: str, player: int, env: int, when: str) -> str:
        return (
            f"player {self.names[player]!r} in environment {env}, batch step {self.now}: the stacked frames "
            f"of image {name!r} {when} are not those that this player saw at its own decisions in this episode, with "
            "the first one repeated before it. "
            "Stack frames in that way (gymnasium's FrameStackObservation, padding_type='reset'), or build the "
            "environment without declaring a frame stack, so that whole images are stored"
        )
