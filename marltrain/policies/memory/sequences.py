"""Readers of sequences: consecutive decisions of one player, drawn from the streams, also in turn with rollouts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from marltrain.errors import AgentError, ConfigError
from marltrain.layout import Array
from marltrain.policies.batch import Needs, Rollout, SequenceTransitions
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
        return self._rollout(*self._drawn(rngs, batch_size), np.asarray(gamma, np.float64)[:, None])

    def _drawn(self, rngs: Sequence[np.random.Generator | None], batch_size: int) -> tuple[Array, Array, Array]:
        """Draw sequences; return cells, and whether there is a row and whether the next row follows it, [K, B] each."""
        available = np.where([rng is not None for rng in rngs], self.size(), 0)
        if not np.count_nonzero(available):
            raise AgentError("no agent of the learner has a closed row to learn from yet; ask `size()` first")
        first = self.choice.draw(rngs, available.tolist(), -(-batch_size // self.needs.sequence)).cells
        return self._sequences(first, available > 0)

    def _sequences(self, first: Array, have: Array) -> tuple[Array, Array, Array]:
        """Return the sequences that begin at cells [K, N], of the agents where `have` [K] is True; see `_drawn`.

        For recurrent networks, the number of rows is always that of N complete sequences.
        """
        ring, cells = self.ring, [first]
        goes = [np.broadcast_to(have[:, None], first.shape)]  # whether the sequence has a row at this place
        for _ in range(1, self.needs.sequence):
            pointers = ring.read(ring.next, cells[-1])
            onward = ring.shifted(cells[-1], pointers)
            closed = ring.read(ring.next, onward) != -1
            goes.append(goes[-1] & (pointers >= 0) & closed & ring.may_learn(onward))
            cells.append(np.where(goes[-1], onward, cells[-1]))
        present = np.stack(goes, -1)
        linked = np.concatenate([present[..., 1:], np.zeros((*first.shape, 1), bool)], -1)
        counts = present.sum((1, 2))
        valid = np.arange(present[0].size if self.needs.block else counts.max()) < counts[:, None]
        packed, chained = np.zeros(valid.shape, np.int64), np.zeros(valid.shape, bool)
        found = np.stack(cells, -1)[present]
        packed[...] = found[0]
        packed[valid], chained[valid] = found, linked[present]
        return packed, valid, chained


class SequenceTransitionReader(SequenceReader):
    """A `SequenceReader` of transitions, for recurrent networks off-policy."""

    def sample(  # type: ignore[override]
        self, rngs: Sequence[np.random.Generator | None], gamma: Array, batch_size: int
    ) -> SequenceTransitions:
        """See `SequenceReader`; the number of rows is a multiple of `needs.sequence`."""
        cells, valid, linked = self._drawn(rngs, batch_size)
        made = self._transitions(cells, valid.astype(np.float32), np.asarray(gamma, np.float64))
        return SequenceTransitions(**vars(made), begins=~np.concatenate([linked[:, -1:], linked[:, :-1]], 1))


class ReplayedRolloutReader(RolloutReader):
    """A `RolloutReader` that also draws sequences of earlier rows, see `SequenceReader`."""

    def __init__(self, ring: Ring, seats: Sequence[Sequence[int]], needs: Needs) -> None:
        """Start with the next decisions; sequences may also hold earlier ones."""
        super().__init__(ring, seats, needs)
        self.sequences = SequenceReader(ring, seats, needs)

    def sample(self, rngs: Sequence[np.random.Generator | None], gamma: Array, batch_size: int) -> Rollout:
        """Draw sequences; see `SequenceReader.sample`."""
        return self.sequences.sample(rngs, gamma, batch_size)


def reader_class(needs: Needs) -> type[Reader]:
    """Return the class of the reader that fits `needs`."""
    if needs.on_policy:
        return ReplayedRolloutReader if needs.sequence else RolloutReader
    if needs.block:
        return SequenceTransitionReader
    return SequenceReader if needs.sequence else transition_reader(needs, UniformReader)


def transition_reader(needs: Needs, usual: type[UniformReader]) -> type[UniformReader]:
    """Return the class of a reader of transitions: `usual`, the one with other goals, or the one with triplets."""
    if needs.replay is None or not needs.replay.with_goals:
        return usual
    if needs.replay.triplets is not None:
        from marltrain.policies.memory.triplets import TripletReader  # loads numba

        return TripletReader
    from marltrain.policies.memory.hindsight import HindsightReader  # loads numba

    return HindsightReader
