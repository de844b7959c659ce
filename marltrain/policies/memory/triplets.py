"""Triplets: transitions with two more rows of their episode, i < k < j (Park et al. 2025, arXiv:2510.22512)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from marltrain.core.layout import VECTOR, Array, Obs, Part
from marltrain.policies.batches.batch import Transitions, TripletTransitions
from marltrain.policies.memory.compiled.triplet_kernel import triplets_program
from marltrain.policies.memory.goals import goal_parts
from marltrain.policies.memory.needs import Needs
from marltrain.policies.memory.readers import UniformReader
from marltrain.policies.memory.ring import Ring

if TYPE_CHECKING:
    from marltrain.policies.memory.memory_numbers import MemoryNumbers

FAR = 2**62
"""An offset beyond the end of every episode."""


class TripletReader(UniformReader):
    """A `UniformReader` that gives each of its transitions two more rows of its episode; see `Triplets`.

    The choice of rows i, n-step sums and stacked frames are those of `UniformReader`. Triplets stop where its n-step
    sums do: at an end, before an open row, and before a decision made while the seat did not learn.
    """

    def __init__(
        self, ring: Ring, seats: Sequence[Sequence[int]], needs: Needs, numbers: MemoryNumbers | None = None
    ) -> None:
        """Raise ConfigError for observations without goals."""
        super().__init__(ring, seats, needs, numbers)
        triplets = None if needs.replay is None else needs.replay.triplets
        if triplets is None:
            raise TypeError("TripletReader needs Needs(replay=Replay(triplets=...))")
        self.triplets = triplets
        self._achieved, self._desired = goal_parts(ring.group.layout, "triplets")

    def sample(self, rngs: Sequence[np.random.Generator | None], gamma: Array, batch_size: int) -> TripletTransitions:
        """See `UniformReader`; agent k then draws the rows of its triplets from `rngs[k]`."""
        result, discounts = super().sample(rngs, gamma, batch_size), np.asarray(gamma, float)
        near, last = result.cells.copy(), result.cells.copy()
        offsets = np.stack([np.zeros(result.cells.shape, np.int64), np.ones(result.cells.shape, np.int64)])
        for k, rng in enumerate(rngs):
            if rng is not None and result.weight[k].any():
                self._choose(rng, float(discounts[k]), result.cells[k], near[k], last[k], offsets[:, k])
        return self._with_triplets(result, near, last, offsets.astype(np.float32))

    def _choose(
        self, rng: np.random.Generator, gamma: float, cells: Array, near: Array, last: Array, offsets: Array
    ) -> None:
        """Write the cells [B] of rows k and of the rows before j, and the offsets [2, B] of k and j."""
        ring, random = self.ring, rng.random((2, len(cells)))
        geometric = self.triplets.offsets == "geometric"
        wanted = _geometric(random[0], gamma) if geometric else np.zeros(len(cells), np.int64)
        triplets_program()(
            ring.next.reshape(-1), ring.learnable.reshape(-1), np.ascontiguousarray(cells), wanted, random,
            ring.capacity, ring.num_envs, near, last, offsets[0], offsets[1],
        )  # fmt: skip

    def _with_triplets(self, made: Transitions, near: Array, last: Array, offsets: Array) -> TripletTransitions:
        """Return the transitions with the rows at cells `near` [K, B] and the goals after the cells `last` [K, B]."""
        ring = self.ring
        after, _ = ring.after(last, ring.read(ring.next, last))
        between = self._obs(near)
        goal, near_goal = _part(after, self._achieved), _part(between, self._achieved)
        return TripletTransitions(
            **vars(made), goal_obs=self._towards(made.obs, goal), near_obs=self._towards(made.obs, near_goal),
            far_obs=self._towards(between, goal), far_legal=ring.legal_at(near),
            far_action=ring.read(ring.action, near), near_offset=offsets[0], offset=offsets[1],
        )  # fmt: skip

    def _towards(self, obs: Obs, goal: Array) -> Obs:
        """Return observations [K, B, ...] with the desired goal [K, B, G]; images are not copied."""
        vector = _vector(obs).copy()
        vector[..., self._desired.start : self._desired.stop] = goal
        return {**obs, VECTOR: vector} if isinstance(obs, dict) else vector


def _geometric(random: Array, gamma: float) -> Array:
    """Return offsets n [B] with P(n) = (1 - gamma) gamma^(n - 1), of numbers in [0, 1), by their distribution."""
    if gamma in (0.0, 1.0):
        return np.full(len(random), FAR if gamma else 1)
    return 1 + np.minimum(np.log1p(-random) / np.log(gamma), FAR).astype(np.int64)


def _vector(obs: Obs) -> Array:
    return obs[VECTOR] if isinstance(obs, dict) else obs


def _part(obs: Obs, part: Part) -> Array:
    """Return a part of observations as numbers [..., G]."""
    return _vector(obs)[..., part.start : part.stop]
