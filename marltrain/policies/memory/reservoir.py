"""Reservoirs: equal samples of all decisions that players offered so far, however long ago they were made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from marltrain.core.errors import ConfigError
from marltrain.core.layout import Array, Obs
from marltrain.policies.memory.needs import Column, Needs
from marltrain.policies.memory.rows import Rows
from marltrain.storage.checks import actions, finite, within
from marltrain.storage.state import State

KEY = "reservoir_key"
"""Name of the extra by which an act offers its decision: a uniform random number in (0, 1], or 0 for no offer."""
COLUMN = Column()
KEYS, LEGAL = "key", "legal"
"""Names of columns of a reservoir."""


class Reservoir:
    """Of the decisions that each player of a group offered, those with the `capacity` largest keys.

    The keys are independent, so that each of N offered decisions is held with the same probability, capacity / N
    (Efraimidis and Spirakis 2006, with equal weights). Acts draw them (`KEY`): the reservoir has no random numbers.

    columns: obs/<array>, legal, action and key, [P, capacity, ...]; rows beyond `held` are not in use.
    held, offered: [P] int64, the decisions that are held, and those offered so far.
    heap: [P, capacity] int64, the places in use of each player as a heap: no key is smaller than that of the place
        before it, at half its number.
    """

    def __init__(self, rows: Rows, capacity: int) -> None:
        """Allocate it for the decisions of a ring."""
        self.group, self.capacity = rows.group, capacity
        kinds: dict[str, tuple[tuple[int, ...], Any]] = {
            **{f"obs/{name}": kind for name, kind in self.group.layout.shapes.items()},
            "action": (self.group.action_shape, self.group.action_dtype), KEYS: ((), np.float32),
        }  # fmt: skip
        players = self.group.size
        self.columns = {name: np.zeros((players, capacity, *shape), dtype) for name, (shape, dtype) in kinds.items()}
        if rows.legal is not None:
            self.columns[LEGAL] = np.ones((players, capacity, rows.legal.shape[-1]), bool)
        self.held, self.offered = np.zeros(players, np.int64), np.zeros(players, np.int64)
        self.heap = np.zeros((players, capacity), np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes of all columns and of the heap."""
        return sum(column.nbytes for column in self.columns.values()) + self.heap.nbytes

    def offer(self, rows: Rows, chosen: Array) -> None:
        """Take over those of the newest decisions that have a key; chosen: [P, E] bool, the rows with a decision."""
        from marltrain.policies.memory.compiled.reservoir_places import places_of  # loads numba

        keys = rows.extras[KEY][:, rows.now % rows.capacity]
        places = places_of(keys, chosen, self.columns[KEYS], self.heap, self.held, self.offered)
        player, env = np.nonzero(places >= 0)
        if not len(player):
            return
        place = places[player, env]  # where a place stands twice, its last row is kept
        cells = rows.cells(np.full(keys.shape, rows.now))[player, env]
        for name, array in rows.named(rows.obs_at(cells)).items():
            self.columns[f"obs/{name}"][player, place] = array
        self.columns["action"][player, place] = rows.read(rows.action, cells)
        if rows.legal is not None:
            self.columns[LEGAL][player, place] = rows.legal_at(cells)

    def draw(self, seats: Sequence[Array], rngs: Sequence[np.random.Generator | None], count: int) -> Array:
        """Draw held decisions uniformly, with replacement: players and places, [2, K, count] int64.

        seats: the players of each agent. Each of their offered decisions is equally likely to be drawn. An agent
        without a generator or without decisions gets place 0 of its first player.
        """
        found = np.zeros((2, len(seats), count), np.int64)
        for k, (players, rng) in enumerate(zip(seats, rngs, strict=True)):
            found[0, k] = players[0]
            offered = self.offered[players]
            if rng is None or not offered.any():
                continue
            if len(players) > 1:
                found[0, k] = rng.choice(players, count, p=offered / offered.sum())
            found[1, k] = rng.integers(self.held[found[0, k]])
        return found

    def obs_at(self, found: Array) -> Obs:
        """Return the observations of drawn decisions, [K, B, *O]; found: the result of `draw`."""
        arrays = {name: self.columns[f"obs/{name}"][found[0], found[1]] for name in self.group.layout.shapes}
        return arrays if len(arrays) > 1 else next(iter(arrays.values()))

    def legal_at(self, found: Array) -> Array | None:
        """Return the legal actions of drawn decisions, [K, B, A], or None."""
        return self.columns[LEGAL][found[0], found[1]] if LEGAL in self.columns else None

    def actions_at(self, found: Array) -> Array:
        """Return the actions of drawn decisions, [K, B, ...]."""
        return self.columns["action"][found[0], found[1]]

    def state(self) -> State:
        """Return the held decisions and the counts."""
        most = int(self.held.max())
        rows = {name: column[:, :most] for name, column in self.columns.items()}
        return State({}, {**rows, "held": self.held, "offered": self.offered})

    def restore(self, state: State) -> None:
        """Restore the state that `state` returned into an empty reservoir; raises SaveError if it does not fit."""
        players = len(self.held)
        held, offered = (state.array(name, np.int64, (players,)) for name in ("held", "offered"))
        within(state.place("held"), held, 0, self.capacity)
        within(state.place("offered"), offered, held, 2**62)
        used = np.arange(most := int(held.max())) < held[:, None]
        for name, column in self.columns.items():
            saved = state.array(name, column.dtype, (players, most, *column.shape[2:]))
            if name != LEGAL:
                finite(state.place(name), saved, used)
            column[:, :most] = saved
        actions(state.place("action"), self.columns["action"][:, :most], self.group.action_space)
        within(state.place(KEYS), self.columns[KEYS][:, :most], np.finfo(np.float32).tiny, 1.0, used)
        self.held[...], self.offered[...] = held, offered
        for count, keys, heap in zip(held, self.columns[KEYS], self.heap, strict=True):
            heap[:count] = np.argsort(keys[:count], kind="stable")


def check_reservoir(who: str, needs: Needs, *, team: bool) -> None:
    """Raise ConfigError for a reservoir beside a memory whose batches cannot hold its decisions.

    team: whether the agents learn together.
    """
    unfit = {
        "rollouts": needs.on_policy, "sequences": needs.sequence > 0, "the batches of a team": team,
        "hindsight or triplets": needs.replay is not None and bool(needs.replay.with_goals),
    }  # fmt: skip
    for what, given in unfit.items():
        if needs.reservoir and given:
            raise ConfigError(f"{who}: a reservoir stands beside transitions of a replay memory, not beside {what}")
