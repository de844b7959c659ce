"""A tianshou buffer that is a view of the streams; tianshou reads the arrays of the ring.

An index is a cell of the ring (see `memory.ring`): one decision of one player in one environment. Next transitions and
ends of traces are those of the same player, independent of the other players' decisions and ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tianshou.data import Batch, ReplayBuffer, to_numpy

from marltrain.core.layout import Array, Obs
from marltrain.policies.memory.choice import Chosen
from marltrain.policies.memory.memory_numbers import MemoryNumbers
from marltrain.policies.memory.needs import Needs
from marltrain.policies.memory.readers import RolloutReader, UniformReader
from marltrain.policies.memory.ring import Ring

Draw = Callable[[int | None], Array]
ToRaw = Callable[[Array], Array]


def observed(obs: Obs, legal: Array | None) -> Any:
    """Return observations in tianshou's format: an array or a Batch of parts; with `legal`, Batch(obs=, mask=)."""
    seen = Batch(obs) if isinstance(obs, dict) else obs
    return seen if legal is None else Batch(obs=seen, mask=legal)


class StreamBuffer(ReplayBuffer):
    """Read-only tianshou view of one group's ring; it returns only rows that may be learned from.

    `look` is called for each update. It sets the rows and reads the columns again, because a ring that has grown has
    new arrays.
    """

    def __init__(self, ring: Ring, to_raw: ToRaw) -> None:
        """Create the view of a ring; `to_raw` converts actions to raw actions if the latter are not stored."""
        super().__init__(0)
        self.ring, self.to_raw = ring, to_raw

    def __deepcopy__(self, memo: dict[int, Any]) -> StreamBuffer:
        """Return the view itself: some algorithms store their last buffer, and their copies must not copy the ring."""
        return self

    def look(self, draw: Draw) -> StreamBuffer:
        """Prepare one update.

        draw: function (count) -> cells; the count None or 0 means all rows, in order.
        """
        ring = self.ring
        arrays = {name: _flat(column) for name, column in ring.obs.items()}
        obs = next(iter(arrays.values())) if len(arrays) == 1 else arrays
        self._meta = Batch(
            obs=observed(obs, None if ring.legal is None else _flat(ring.legal)),
            act=_flat(ring.extras.get("raw", ring.action)), rew=_flat(ring.reward), terminated=_flat(ring.terminated),
        )  # fmt: skip
        self.maxsize = ring.reward.size
        self._draw = draw
        self._named: list[Array] = []
        return self

    def __len__(self) -> int:
        """Return the number of rows that can be drawn."""
        return int(self.ring.drawable_count.sum())

    @property
    def done(self) -> Array:
        """[P * C * E] bool: whether the row is its player's last row of the episode."""
        return _flat(self.ring.next) < -1

    @property
    def truncated(self) -> Array:
        """[P * C * E] bool: whether a limit ended the player's part after the row."""
        return self.done & ~_flat(self.ring.terminated)

    def sample_indices(self, batch_size: int | None) -> Array:
        """Return the rows of this update."""
        self._named = [self._draw(batch_size)]
        return self._named[0]

    def next(self, index: Any) -> Array:
        """Return the same player's next row, or the row itself at an end or if the next row may not be learned from.

        The latter are open rows and rows decided while the seat did not learn.
        """
        index = np.asarray(index)
        following, known = self._following(index)
        onward = np.where(known, following, index)
        self._named.append(onward.reshape(-1))
        return onward

    def prev(self, index: Any) -> Array:
        """Return the same player's previous row, or the row itself if it is the first of its episode."""
        ring, index = self.ring, np.asarray(index)
        inner, env = np.divmod(index, ring.num_envs)
        player, slot = np.divmod(inner, ring.capacity)
        time = ring.now - (ring.now - slot) % ring.capacity
        leads_here = ring.next[player, :, env] == time[..., None]
        before = (player * ring.capacity + leads_here.argmax(-1)) * ring.num_envs + env
        return np.where(leads_here.any(-1), before, index)

    def unfinished_index(self) -> Array:
        """Return the rows used in this update whose next row may not be learned from yet.

        tianshou marks them in a column of flags for the whole buffer, and then reads only the rows used in the update.
        """
        named = np.unique(np.concatenate(self._named))
        _, known = self._following(named)
        return named[~known & (self.ring.read(self.ring.next, named) >= 0)]

    def __getitem__(self, index: Any) -> Batch:
        """Return rows as a Batch; the end table provides the observations after ends."""
        ring = self.ring
        cells = self._draw(None)[index] if isinstance(index, slice) else np.asarray(index)
        pointers = ring.read(ring.next, cells)
        terminated, done = ring.read(ring.terminated, cells), pointers < -1
        raw = ring.extras.get("raw")
        return Batch(
            obs=observed(ring.obs_at(cells), ring.legal_at(cells)),
            act=self.to_raw(ring.read(ring.action, cells)) if raw is None else ring.read(raw, cells),
            # tianshou compiles its return kernels for rewards of this type when a policy is made
            rew=ring.read(ring.reward, cells).astype(np.float64),
            terminated=terminated, truncated=done & ~terminated, done=done,
            obs_next=observed(*ring.after(cells, pointers)), info=Batch(), policy=Batch(),
        )  # fmt: skip

    def _following(self, cells: Array) -> tuple[Array, Array]:
        """Return the cells of the next rows, and whether each exists and may be learned from."""
        ring = self.ring
        pointers = ring.read(ring.next, cells)
        following = ring.shifted(cells, pointers)
        return following, (pointers >= 0) & ring.drawable(following)


class PrioritizedBuffer(StreamBuffer):
    """A view that draws by priorities, with the interface of tianshou's `PrioritizedReplayBuffer`.

    Batches have `weight`, the importance weights of their rows. After the update tianshou calls `update_weight` with
    the rows' errors, which become priorities.

    informed: whether the last update gave errors.
    """

    def look_at(self, choose: Callable[[int | None], Chosen], learned: Callable[[Array, Array], None]) -> StreamBuffer:
        """Prepare one update.

        choose: function (count) -> rows; the count None or 0 means all rows, in order.
        learned: function (rows' numbers [B], errors [B] float32), called after the update.
        """
        self._learned, self.informed = learned, False

        def draw(count: int | None) -> Array:
            self._chosen = choose(count)
            return self._chosen.cells[0]

        return self.look(draw)

    def sample(self, batch_size: int | None) -> tuple[Any, Array]:
        """Return the rows of this update with their weights, and their cells."""
        batch, cells = super().sample(batch_size)
        if self._chosen.weight is not None:
            batch.weight = self._chosen.weight[0]
        return batch, cells

    def update_weight(self, index: Array, new_weight: Any) -> None:
        """Set the priorities of the rows of this update to the sizes of their errors + epsilon."""
        if self._chosen.rows is not None:
            errors = np.abs(to_numpy(new_weight)).reshape(len(index)).astype(np.float32)
            self._learned(self._chosen.rows[0], errors)
            self.informed = True


def _flat(column: Array) -> Array:
    """Return a ring column [P, C, E, ...] as a view [P * C * E, ...]."""
    return column.reshape(-1, *column.shape[3:])


class ReplayView(UniformReader):
    """Reader of uniformly drawn rows, as a `StreamBuffer`."""

    def __init__(
        self, ring: Ring, seats: Sequence[Sequence[int]], needs: Needs, to_raw: ToRaw,
        numbers: MemoryNumbers | None = None,
    ) -> None:  # fmt: skip
        """Create the reader of one agent; for `to_raw` see `StreamBuffer`."""
        super().__init__(ring, seats, needs, numbers)
        prioritized = needs.replay is not None and needs.replay.prioritized is not None
        self.buffer = (PrioritizedBuffer if prioritized else StreamBuffer)(ring, to_raw)

    def sample(  # type: ignore[override]  # in place of Transitions
        self, rngs: Sequence[np.random.Generator | None], gamma: Array, batch_size: int
    ) -> StreamBuffer:
        """Return the buffer, which draws with `rngs[0]` when tianshou samples; tianshou applies the discount."""

        def choose(count: int | None) -> Chosen:
            return self.choice.draw(rngs, self.size().tolist(), count) if count else Chosen(self._all()[None])

        def learned(rows: Array, errors: Array) -> None:
            self.choice.learned(rows[None], errors[None], np.ones((1, len(rows)), np.float32))

        if isinstance(self.buffer, PrioritizedBuffer):
            return self.buffer.look_at(choose, learned)
        return self.buffer.look(lambda count: choose(count).cells[0])

    def learned(self, batch: Any) -> None:
        """See `Reader`; tianshou has already called `PrioritizedBuffer.update_weight`."""

    def _all(self) -> Array:
        ring, seats = self.ring, self.seats[0]
        times = np.arange(ring.oldest, ring.now + 1)
        cells = (seats[:, None] * ring.capacity + times % ring.capacity) * ring.num_envs
        every = (cells[:, None, :] + np.arange(ring.num_envs)[:, None]).reshape(-1)
        return every[ring.drawable(every)]


class RolloutView(RolloutReader):
    """Reader of each row once, as a `StreamBuffer`."""

    def __init__(self, ring: Ring, seats: Sequence[Sequence[int]], needs: Needs, to_raw: ToRaw) -> None:
        """Create the reader of one agent; for `to_raw` see `StreamBuffer`."""
        super().__init__(ring, seats, needs)
        self.buffer = StreamBuffer(ring, to_raw)

    def take(self, gamma: Array) -> StreamBuffer:  # type: ignore[override]  # in place of a Rollout
        """Return the buffer with the rows that were closed since the last call; tianshou applies the discount."""
        _, cells = self.claim()
        return self.buffer.look(lambda _: cells)
