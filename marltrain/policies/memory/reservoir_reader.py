"""Transitions from the ring with decisions from a reservoir beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from marltrain.core.layout import Array
from marltrain.policies.batches.batch import ReservoirTransitions
from marltrain.policies.batches.player_one_hot import identified
from marltrain.policies.memory.needs import Needs
from marltrain.policies.memory.readers import UniformReader
from marltrain.policies.memory.reservoir import Reservoir
from marltrain.policies.memory.ring import Ring

if TYPE_CHECKING:
    from marltrain.policies.memory.memory_numbers import MemoryNumbers


HELD = "reservoir_rows"
"""Name of the metric of the decisions that an agent's reservoirs hold."""


class ReservoirReader(UniformReader):
    """A `UniformReader` whose batches also hold decisions of the agents' reservoirs; see `Reservoir`."""

    def __init__(
        self, ring: Ring, seats: Sequence[Sequence[int]], needs: Needs, numbers: MemoryNumbers | None = None
    ) -> None:
        """Store the reservoir of the ring."""
        super().__init__(ring, seats, needs, numbers)
        if ring.reservoir is None:
            raise TypeError("ReservoirReader needs Storage(reservoir=...)")
        self.reservoir: Reservoir = ring.reservoir

    def metrics(self) -> dict[str, Array]:
        """Return the number of decisions in the agents' reservoirs as `HELD`, beside other metrics."""
        held = np.array([self.reservoir.held[players].sum() for players in self.seats], np.float64)
        return {**super().metrics(), HELD: held}

    def sample(self, rngs: Sequence[np.random.Generator | None], gamma: Array, batch_size: int) -> ReservoirTransitions:
        """See `UniformReader`; agent k then draws as many decisions of its reservoir from `rngs[k]`."""
        made, kept = super().sample(rngs, gamma, batch_size), self.reservoir
        found = kept.draw(self.seats, rngs, batch_size)
        there = np.array([kept.held[players].any() for players in self.seats])
        obs, count = kept.obs_at(found), len(self.needs.identity)
        if count:
            obs = identified(self.ring.group.layout, obs, self.identities[found[0]], count)
        weight = np.broadcast_to(there[:, None] / batch_size, found[0].shape).astype(np.float32)
        return ReservoirTransitions(
            **vars(made), kept_obs=obs, kept_legal=kept.legal_at(found), kept_action=kept.actions_at(found),
            kept_weight=weight,
        )  # fmt: skip
