"""Transitions that were made outside of a run: they are stored beside its own rows, and drawn with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from marltrain.core.layout import Array, Obs, arrays_of, assign_obs, map_tree
from marltrain.core.spec import EnvSpec, Step
from marltrain.policies.batches.batch import Transitions
from marltrain.policies.memory.readers import Reader
from marltrain.policies.memory.streams import Storage, Streams
from marltrain.storage.state import State

BLOCK = 8
"""Transitions of a player that enter the memory at once."""


@dataclass(frozen=True)
class ObservedRows:
    """B transitions of one player, in the arrays of the training loop.

    obs, next_obs: [B, *O].  legal, next_legal: [B, A] bool, or None for players without legal actions.
    action: [B, ...].  reward: [B] float32.  terminated: [B] bool.
    """

    obs: Obs
    legal: Array | None
    action: Array
    reward: Array
    terminated: Array
    next_obs: Obs
    next_legal: Array | None

    def __len__(self) -> int:
        """Return B."""
        return len(self.reward)

    @property
    def size(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self._arrays())

    def _arrays(self) -> list[Array]:
        held = [getattr(self, f.name) for f in fields(self)]
        return [array for value in held if value is not None for array in arrays_of(value)]

    def part(self, rows: slice) -> ObservedRows:
        """Return some of the rows."""
        return self._each(lambda array: array[rows])

    @classmethod
    def joined(cls, parts: Sequence[ObservedRows]) -> ObservedRows:
        """Return the rows of all parts, which have arrays of the same names."""
        columns = {f.name: [getattr(part, f.name) for part in parts] for f in fields(cls)}
        return cls(**{name: _joined(values) for name, values in columns.items()})

    def _each(self, change: Callable[[Array], Array]) -> ObservedRows:
        values: dict[str, Any] = {f.name: map_tree(change, getattr(self, f.name)) for f in fields(self)}
        return ObservedRows(**values)


class ObservedMemory:
    """The transitions of the players of a group, each an episode of one step in the streams of `BLOCK` environments.

    A player's transitions wait until there are `BLOCK` of them. They can be drawn when the next block comes.

    streams: what readers read; the newest `capacity` transitions of the player that has most stay there.
    """

    def __init__(self, spec: EnvSpec, group: int, capacity: int) -> None:
        """Allocate the memory; raises ConfigError if it is too large."""
        self.streams = Streams(spec, BLOCK, {group: Storage(-(-capacity // BLOCK))})
        self._group, self._place = group, spec.place
        self._step = Step.empty(spec, BLOCK)
        self._waiting: dict[int, list[ObservedRows]] = {}
        self._actions = np.zeros_like(self.streams.rings[group].action[:, 0])

    def add(self, player: int, rows: ObservedRows) -> None:
        """Add transitions of a player, an index in spec order."""
        self._waiting.setdefault(player, []).append(rows)
        if sum(map(len, self._waiting[player])) < BLOCK:
            return
        waiting = {player: ObservedRows.joined(parts) for player, parts in self._waiting.items()}
        low = dict.fromkeys(waiting, 0)
        while len(waiting[player]) - low[player] >= BLOCK:
            block = {p: own.part(slice(low[p], low[p] + BLOCK)) for p, own in waiting.items() if low[p] < len(own)}
            self._write(block)
            low = {p: min(low[p] + BLOCK, len(own)) for p, own in waiting.items()}
        self._waiting = {p: [own.part(slice(low[p], None))] for p, own in waiting.items() if low[p] < len(own)}

    def _write(self, block: dict[int, ObservedRows]) -> None:
        """Store a block: its observations and decisions now, its outcome with the Step of the next block."""
        step, g = self._step, self._group
        step.turn[g][...] = False
        for player, rows in block.items():
            row, n = self._place[player][1], len(rows)
            step.turn[g][row, :n] = True
            assign_obs(step.obs[g], (row, slice(n)), rows.obs)
            self._actions[row, :n] = rows.action
            if (legal := step.legal[g]) is not None:
                legal[row, :n] = rows.legal
        self.streams.record_step(step)
        self.streams.record_actions(g, self._actions, {})
        for array in (step.reward, step.terminated, step.truncated):
            array[...] = 0
        step.ended[...] = True
        for player, rows in block.items():
            row, n = self._place[player][1], len(rows)
            step.reward[player, :n], step.terminated[player, :n] = rows.reward, rows.terminated
            step.truncated[player, :n] = ~rows.terminated
            assign_obs(step.final_obs[g], (row, slice(n)), rows.next_obs)
            if (legal := step.final_legal[g]) is not None:
                legal[row, :n] = rows.next_legal


class ObservedReader(Reader):
    """Draws transitions uniformly from the rows of a run and from an `ObservedMemory` together."""

    def __init__(self, own: Reader, observed: Reader) -> None:
        """Take two uniform readers of transitions for the same agents."""
        self.ring, self.needs, self.seats = own.ring, own.needs, own.seats
        self._own, self._observed = own, observed

    def size(self) -> Array:
        """See `Reader`."""
        total: Array = self._own.size() + self._observed.size()
        return total

    def sample(self, rngs: Sequence[np.random.Generator | None], gamma: Array, batch_size: int) -> Transitions:
        """Draw transitions [K, batch_size]; see `UniformReader.sample`.

        Each comes from the observed rows with a probability that is their share of all rows.
        """
        drawing = np.array([rng is not None for rng in rngs])
        own, observed = self._own.size() * drawing, self._observed.size() * drawing
        if not observed.any() or not own.any():
            only: Transitions = (self._observed if observed.any() else self._own).sample(rngs, gamma, batch_size)
            return only
        share = observed / np.maximum(own + observed, 1)
        pick = np.array([
            np.zeros(batch_size, bool) if rng is None or part == 0 else rng.random(batch_size) < part
            for rng, part in zip(rngs, share, strict=True)
        ])  # fmt: skip
        first, second = (reader.sample(rngs, gamma, batch_size) for reader in (self._own, self._observed))
        return Transitions(
            **{f.name: _picked(pick, getattr(first, f.name), getattr(second, f.name)) for f in fields(Transitions)}
        )

    def state(self) -> State:
        """Return the state of the reader of the run's rows; observed rows are not saved."""
        return self._own.state()

    def restore(self, state: State) -> None:
        """See `Reader`."""
        self._own.restore(state)


def _picked(pick: Array, first: Any, second: Any) -> Any:
    """Return `second` where `pick` [K, B] is True, else `first`; mappings and None as they are."""
    if isinstance(first, dict):
        return {name: _picked(pick, value, second[name]) for name, value in first.items()}
    if first is None:
        return None
    return np.where(pick.reshape(*pick.shape, *[1] * (first.ndim - 2)), second, first)


def _joined(values: Sequence[Any]) -> Any:
    """Return arrays [b, ...], or mappings of them, as one."""
    first = values[0]
    if isinstance(first, dict):
        return {name: np.concatenate([value[name] for value in values]) for name in first}
    return None if first is None else np.concatenate(values)
