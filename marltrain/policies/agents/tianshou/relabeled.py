"""A tianshou buffer over a batch of transitions with other goals, which are not those of the streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tianshou.data import Batch, to_numpy

from marltrain.core.layout import Array, map_tree
from marltrain.policies.agents.tianshou.buffer import StreamBuffer, ToRaw, observed
from marltrain.policies.batches.batch import Transitions
from marltrain.policies.memory.hindsight import HindsightReader
from marltrain.policies.memory.memory_numbers import MemoryNumbers
from marltrain.policies.memory.needs import Needs
from marltrain.policies.memory.ring import Ring


class RelabeledBuffer(StreamBuffer):
    """The transitions of one update, drawn when tianshou samples; an index is a row of this batch.

    Transitions stand alone, so that the algorithm's `n_step_return_horizon` must be 1.

    transitions: [1, B], those of the last sample.  informed: whether the last update gave errors of rows.
    """

    transitions: Transitions

    def look_at(self, sample: Callable[[int], Transitions]) -> RelabeledBuffer:
        """Prepare one update.  sample: function (count) -> transitions [1, count]."""
        self._sample, self.informed = sample, False
        return self

    @property
    def done(self) -> Array:
        """[B] bool, always True: no row follows another."""
        return np.ones(self.maxsize, bool)

    @property
    def truncated(self) -> Array:
        """[B] bool: whether values after the row count."""
        return self.transitions.discount[0] > 0

    def sample_indices(self, batch_size: int | None) -> Array:
        """Draw the transitions of this update; return 0 to B - 1."""
        result = self.transitions = self._sample(batch_size or len(self))
        self.maxsize = result.reward.shape[1]
        self._meta = Batch(rew=result.reward[0], terminated=result.discount[0] == 0)
        return np.arange(self.maxsize)

    def next(self, index: Any) -> Array:
        """Return the rows themselves."""
        return np.asarray(index)

    prev = next

    def unfinished_index(self) -> Array:
        """Return no rows."""
        return np.zeros(0, np.int64)

    def __getitem__(self, index: Any) -> Batch:
        """Return rows as a Batch."""
        result, terminated = self.transitions, self._meta.terminated[index]
        obs, next_obs = (map_tree(lambda array: array[0][index], each) for each in (result.obs, result.next_obs))
        legal, next_legal = (None if each is None else each[0][index] for each in (result.legal, result.next_legal))
        return Batch(
            obs=observed(obs, legal), act=self.to_raw(result.action[0][index]),
            rew=result.reward[0][index].astype(float),
            terminated=terminated, truncated=~terminated, done=np.ones_like(terminated),
            obs_next=observed(next_obs, next_legal), info=Batch(), policy=Batch(),
        )  # fmt: skip


class WeightedBuffer(RelabeledBuffer):
    """A `RelabeledBuffer` with importance weights, in the manner of tianshou's `PrioritizedReplayBuffer`."""

    def sample(self, batch_size: int | None) -> tuple[Any, Array]:
        """Return the rows of this update with their weights, and their indices."""
        batch, indices = super().sample(batch_size)
        batch.weight = self.transitions.weight[0]
        return batch, indices

    def update_weight(self, index: Array, new_weight: Any) -> None:
        """Keep the sizes of the rows' errors, from which `RelabeledView` makes their priorities."""
        errors = np.abs(to_numpy(new_weight)).reshape(1, len(index))
        self.transitions.errors, self.informed = errors.astype(np.float32), True


class RelabeledView(HindsightReader):
    """A `HindsightReader` that passes its transitions on as a `RelabeledBuffer`."""

    def __init__(
        self, ring: Ring, seats: Sequence[Sequence[int]], needs: Needs, to_raw: ToRaw,
        numbers: MemoryNumbers | None = None,
    ) -> None:  # fmt: skip
        """Create the reader of one agent; for `to_raw` see `StreamBuffer`."""
        super().__init__(ring, seats, needs, numbers)
        prioritized = needs.replay is not None and needs.replay.prioritized is not None
        self.buffer = (WeightedBuffer if prioritized else RelabeledBuffer)(ring, to_raw)

    def sample(  # type: ignore[override]  # in place of Transitions
        self, rngs: Sequence[np.random.Generator | None], gamma: Array, batch_size: int
    ) -> RelabeledBuffer:
        """Return the buffer, which draws with `rngs[0]` when tianshou samples; tianshou applies the discount."""
        draw = super().sample
        return self.buffer.look_at(lambda count: draw(rngs, np.ones(1), count))

    def learned(self, batch: Any) -> None:
        """See `Reader`."""
        super().learned(batch.transitions)
