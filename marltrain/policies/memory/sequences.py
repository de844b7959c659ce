"""Readers of sequences: consecutive decisions of one player, drawn from the streams, also in turn with rollouts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from marltrain.core.errors import AgentError, ConfigError
from marltrain.core.layout import Array
from marltrain.policies.backends.row_memory import RowMemory
from marltrain.policies.batches.batch import Rollout, SequenceTransitions
from marltrain.policies.memory.needs import Needs
from marltrain.policies.memory.readers import Reader, RolloutReader, UniformReader
from marltrain.policies.memory.ring import Ring


class SequenceReader(UniformReader):
    """Reader of sequences of up to `needs.sequence` decisions; their first rows are drawn as `UniformReader` draws.

    A sequence ends early at an end, before an open row, and before a decision made while the seat did not learn.
    Because first rows are drawn uniformly, the first rows of an episode are in fewer sequences than later ones.
    """

    def __init__(self, ring: Ring, seats: Sequence[Sequence[int]], needs: Needs) -> None:
        """Raise ConfigError if `needs.sequence` is below 1."""
        if needs.sequence < 1:
            raise ConfigError(f"a sequence must have at least 1 row, got Needs(sequence={needs.sequence})")
        super().__init__(ring, seats, needs)

    def sample(  # type: ignore[override]
        self, rngs: Sequence[np.random.Generator | None], gamma: Array, batch_size: int
    ) -> Rollout:
        """Draw ceil(batch_size / needs.sequence) sequences for each agent; agent k uses `rngs[k]`.  gamma: [K].

        Returns a `Rollout` in which one sequence follows another; `cut` is True at the last row of each. Padding
        follows an agent's rows. An agent without a generator or without available rows gets only padding. Raises
        AgentError if all agents do.
        """
        first, have = self._first(rngs, -(-batch_size // self.needs.sequence))
        return self._rollout(
            *self._packed(*self._onward(first, have, self.needs.sequence)), np.asarray(gamma, np.float64)
        )

    def _first(self, rngs: Sequence[np.random.Generator | None], count: int) -> tuple[Array, Array]:
        """Draw the first cells of `count` sequences of each agent, [K, N]; return which agents have rows, too, [K]."""
        available = np.where([rng is not None for rng in rngs], self.size(), 0)
        if not np.count_nonzero(available):
            raise AgentError("no agent of the learner has a closed row to learn from yet; ask `size()` first")
        return self.choice.draw(rngs, available.tolist(), count).cells, available > 0

    def _onward(self, first: Array, have: Array, length: int) -> tuple[Array, Array]:
        """Return the cells of sequences that begin at cells [K, N], and whether there is a row, [K, N, length] each.

        have: [K] bool, the agents that have rows.
        """
        ring, cells = self.ring, [first]
        goes = [np.broadcast_to(have[:, None], first.shape)]  # whether the sequence has a row at this place
        for _ in range(1, length):
            pointers = ring.read(ring.next, cells[-1])
            onward = ring.shifted(cells[-1], pointers)
            closed = ring.read(ring.next, onward) != -1
            goes.append(goes[-1] & (pointers >= 0) & closed & ring.may_learn(onward))
            cells.append(np.where(goes[-1], onward, cells[-1]))
        return np.stack(cells, -1), np.stack(goes, -1)

    def _packed(self, cells: Array, present: Array) -> tuple[Array, Array, Array]:
        """Return sequences [K, N, length] one after another, padding last.

        Returns cells, and whether there is a row and whether the next row follows it, [K, B] each. For recurrent
        networks, the number of rows is always that of N complete sequences.
        """
        linked = np.concatenate([present[..., 1:], np.zeros((*present.shape[:2], 1), bool)], -1)
        counts = present.sum((1, 2))
        valid = np.arange(present[0].size if self.needs.block else counts.max()) < counts[:, None]
        packed, chained = np.zeros(valid.shape, np.int64), np.zeros(valid.shape, bool)
        found = cells[present]
        packed[...] = found[0]
        packed[valid], chained[valid] = found, linked[present]
        return packed, valid, chained


class SequenceTransitionReader(SequenceReader):
    """A `SequenceReader` of transitions, for recurrent networks off-policy: one sequence in each block of rows.

    With a burn-in, up to `needs.burn_in` decisions of the episode come before the row that was drawn, which is at the
    same place of each block. At the start of an episode, and of the memory, there are fewer of them, or none.
    """

    def sample(  # type: ignore[override]
        self, rngs: Sequence[np.random.Generator | None], gamma: Array, batch_size: int
    ) -> SequenceTransitions:
        """Draw sequences with `batch_size` rows of weight 1, if none ends early; see `SequenceReader`."""
        burn_in = self.needs.burn_in
        learned = self.needs.sequence - burn_in
        first, have = self._first(rngs, -(-batch_size // learned))
        cells, present = self._onward(first, have, learned)
        for _ in range(burn_in):
            earlier, there = _before(self.ring, cells[..., 0])
            cells = np.concatenate([earlier[..., None], cells], -1)
            present = np.concatenate([(there & present[..., 0])[..., None], present], -1)
        begins, weight = ~present, present.astype(np.float32)
        begins[..., 1:] |= ~present[..., :-1]
        begins[..., 0], weight[..., :burn_in] = True, 0.0
        rows = len(cells), -1
        result = self.transitions(cells.reshape(rows), weight.reshape(rows), np.asarray(gamma, np.float64))
        return SequenceTransitions(**vars(result), begins=begins.reshape(rows))


class ReplayedRolloutReader(RolloutReader):
    """A `RolloutReader` that also draws sequences of earlier rows, see `SequenceReader`."""

    def __init__(self, ring: Ring, seats: Sequence[Sequence[int]], needs: Needs) -> None:
        """Start with the next decisions; sequences may also hold earlier ones."""
        super().__init__(ring, seats, needs)
        self.sequences = SequenceReader(ring, seats, needs)

    def mirror(self, memory: RowMemory) -> None:
        """See `Reader`."""
        super().mirror(memory)
        self.sequences.mirror(memory)

    def sample(self, rngs: Sequence[np.random.Generator | None], gamma: Array, batch_size: int) -> Rollout:
        """Draw sequences; see `SequenceReader.sample`."""
        return self.sequences.sample(rngs, gamma, batch_size)


def _before(ring: Ring, cells: Array) -> tuple[Array, Array]:
    """Return the cells of the players' decisions before those at `cells`, and whether there are such decisions.

    They are in the same episode, and drawable. Without such a decision, the cell is arbitrary.
    """
    times = ring.now - (ring.now - cells // ring.num_envs % ring.capacity) % ring.capacity
    found, searched, earlier = cells.copy(), np.ones(cells.shape, bool), times
    while searched.any():
        earlier = earlier - 1
        searched = searched & (earlier >= ring.oldest)
        there = ring.shifted(cells, earlier)
        acted = searched & ring.read(ring.acted, there)
        found = np.where(acted & (ring.read(ring.next, there) == times), there, found)
        searched = searched & ~acted
    return found, (found != cells) & ring.drawable(found)


def reader_class(needs: Needs) -> type[Reader]:
    """Return the class of the reader that fits `needs`."""
    if needs.on_policy:
        return ReplayedRolloutReader if needs.sequence else RolloutReader
    if needs.block:
        return SequenceTransitionReader
    return SequenceReader if needs.sequence else transition_reader(needs, UniformReader)


def transition_reader(needs: Needs, usual: type[UniformReader]) -> type[UniformReader]:
    """Return the class of a reader of transitions: `usual`, or one with other goals, triplets or a reservoir."""
    if needs.reservoir:
        from marltrain.policies.memory.reservoir_reader import ReservoirReader

        return ReservoirReader
    if needs.replay is None or not needs.replay.with_goals:
        return usual
    if needs.replay.triplets is not None:
        from marltrain.policies.memory.triplets import TripletReader  # loads numba

        return TripletReader
    from marltrain.policies.memory.hindsight import HindsightReader  # loads numba

    return HindsightReader
