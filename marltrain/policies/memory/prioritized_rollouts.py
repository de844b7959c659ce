"""Rollouts that also hold sequences of earlier rows, drawn by priorities."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from marltrain.core.layout import Array
from marltrain.policies.batches.batch import Rollout
from marltrain.policies.memory.memory_numbers import MemoryNumbers
from marltrain.policies.memory.needs import Needs
from marltrain.policies.memory.priorities import PrioritizedChoice
from marltrain.policies.memory.readers import RolloutReader
from marltrain.policies.memory.ring import Ring
from marltrain.storage.state import State


class PrioritizedRolloutReader(RolloutReader):
    """A `RolloutReader` whose rollouts also hold sequences of up to `needs.sequence` earlier decisions.

    The first row of a sequence is drawn by priorities. A row has a priority from the update on that learned from it as
    a new row. A sequence ends early at an end of its player's part, and before a row without a priority, such as a new
    row or one outside the memory's window.
    """

    draws = True

    def __init__(
        self, ring: Ring, seats: Sequence[Sequence[int]], needs: Needs, numbers: MemoryNumbers | None = None
    ) -> None:
        """Start with the next decisions and without priorities.

        numbers: the agents' settings of the memory that may change; None: those of `needs.replay`.
        """
        super().__init__(ring, seats, needs)
        self.choice = PrioritizedChoice(ring, self.seats, needs, numbers)

    def take(self, gamma: Array, rngs: Sequence[np.random.Generator | None] = ()) -> Rollout:
        """Return the rollout, mark its rows as taken, and add sequences of earlier rows; see `RolloutReader.take`.

        Agent k with n new rows gets ceil(n * needs.replay_share / needs.sequence) sequences, drawn with `rngs[k]`; none
        without a generator, or before it has rows with priorities. The rows of a sequence have the importance weight of
        its first row, at most 1; new rows have a weight of 1.
        """
        seat, cells = self.claim()
        agent = self._agent[seat]
        counts, held = np.bincount(agent, minlength=len(self.seats)), self.choice.size()
        agents, found, weights = [agent], [cells], [np.ones(len(cells), np.float32)]
        for k, rng in enumerate(rngs):
            count = math.ceil(counts[k] * self.needs.replay_share / self.needs.sequence)
            if rng is None or not held[k] or not count:
                continue
            drawn, weight = self._sequences(k, rng, count)
            agents.append(np.full(len(drawn), k))
            found.append(drawn)
            weights.append(weight)
        agent, fresh = np.concatenate(agents), np.arange(sum(map(len, found))) < len(cells)
        order = np.argsort(agent, kind="stable")
        result = self._packed(agent[order], np.concatenate(found)[order], gamma)
        valid = result.weight > 0
        result.weight[valid] = np.concatenate(weights)[order]
        result.fresh, result.rows = valid.copy(), np.full(valid.shape, -1)
        result.fresh[valid], result.rows[valid] = fresh[order], self.choice.numbers_of(np.concatenate(found)[order])
        return result

    def _sequences(self, k: int, rng: np.random.Generator, count: int) -> tuple[Array, Array]:
        """Return the cells and the weights of the rows of `count` sequences of agent k, one after another, each [n]."""
        ring = self.ring
        drawn = self.choice.draw(
            [rng if i == k else None for i in range(len(self.seats))], [1] * len(self.seats), count
        )
        cells, present = [drawn.cells[k]], [np.ones(count, bool)]
        for _ in range(1, self.needs.sequence):
            pointers = ring.read(ring.next, cells[-1])
            onward = ring.shifted(cells[-1], pointers)
            present.append(present[-1] & (pointers >= 0) & self.choice.rated(k, onward))
            cells.append(np.where(present[-1], onward, cells[-1]))
        there = np.stack(present, 1)
        importance = np.ones(count, np.float32) if drawn.weight is None else drawn.weight[k]
        return np.stack(cells, 1)[there], np.broadcast_to(importance[:, None], there.shape)[there]

    def learned(self, batch: Rollout) -> None:
        """See `Reader`; the errors become the rows' priorities."""
        if batch.rows is not None and batch.errors is not None:
            self.choice.learned(batch.rows, batch.errors, batch.weight)

    def state(self) -> State:
        """Return which rows have been taken, and the priorities."""
        result = super().state()
        result.add("choice", self.choice.state())
        return result

    def restore(self, state: State) -> None:
        """See `Reader`; raises SaveError for priorities of rows that cannot be drawn."""
        super().restore(state)
        self.choice.restore(state.part("choice"))
