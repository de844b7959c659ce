"""Columns: the environments of a runner among all, by game and by match."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.policies.learner.noise import Draw


class Columns:
    """Environments `low` to `high` of M matches of E environments each; match m has m * E to (m + 1) * E.

    Agents of a runner have rows for W environments of the players of all matches; a cell (match, environment) that the
    runner does not hold is not valid. Without matches, M is 1 and all cells are valid.

    width: W, the most that one match has.  cells: [M, W] int64, the runner's environment in each cell; 0 if not valid.
    valid: [M, W] bool.
    """

    def __init__(self, low: int, high: int, num_envs: int, matches: int = 1) -> None:
        """Take the range; num_envs: E."""
        self._low, self._high, self._num_envs, self.matches = low, high, num_envs, matches
        own, starts = np.arange(low, high), num_envs * np.arange(matches)
        first = np.clip(low - starts, 0, num_envs)
        counts = np.clip(high - starts, 0, num_envs) - first
        self.width = int(counts.max())
        self._match = own // num_envs
        self._place = own % num_envs - first[self._match]
        self.valid: Array = np.arange(self.width) < counts[:, None]
        self.cells: Array = np.zeros(self.valid.shape, np.int64)
        self.cells[self._match, self._place] = own - low
        self._envs = np.where(self.valid, first[:, None] + np.arange(self.width), 0)  # among those of a match

    def take(self, array: Array, players: Array) -> Array:
        """Return the cells of rows [K, S, E, ...] of players [K, S], [K, S, W, ...]."""
        agents, seats = np.arange(len(players))[:, None, None], np.arange(players.shape[1])[:, None]
        taken: Array = array[agents, seats, self._envs[players % self.matches]]
        return taken

    def put(self, part: Array, into: Array, players: Array) -> None:
        """Write the valid cells of rows [K, S, W, ...] into rows [K, S, E, ...]."""
        match = players % self.matches
        agents, seats, cells = self.valid[match].nonzero()
        into[agents, seats, self._envs[match][agents, seats, cells]] = part[agents, seats, cells]

    def by_match(self, array: Array) -> Array:
        """Return rows [P, n, ...] of a game's players as those of all matches' players, [P * M, W, ...]."""
        return array[:, self.cells].reshape(-1, self.width, *array.shape[2:])

    def by_game(self, array: Array) -> Array:
        """Return rows [P * M, W, ...] of all matches' players as those of a game's players, [P, n, ...]."""
        split = array.reshape(-1, self.matches, *array.shape[1:])
        result: Array = split[:, self._match, self._place]
        return result

    def cut(self, draw: Draw, players: Array) -> Draw:
        """Return a function that draws the noise of all environments, as in one process, and returns that of its cells.

        players: [K, S], whose rows act.
        """
        seats, own = players.shape[1], self._envs[players % self.matches][:, None]
        agents, places = np.arange(len(players))[:, None, None, None], np.arange(seats)[:, None]

        def drawn(rngs: Sequence[np.random.Generator], rows: int) -> dict[str, Array]:
            acts, cut = rows // (seats * self.width), {}
            for name, values in draw(rngs, acts * seats * self._num_envs).items():
                shape = values.shape[2:]
                split = values.reshape(len(values), acts, seats, self._num_envs, *shape)
                if self.matches == 1:
                    mine = np.ascontiguousarray(split[:, :, :, self._low : self._high])
                else:
                    mine = split[agents, np.arange(acts)[:, None, None], places, own]
                cut[name] = mine.reshape(len(values), rows, *shape)
            return cut

        return drawn


class Joined:
    """Joins the carries of all runners."""

    def __init__(self, held: Sequence[Columns], players: Array, num_envs: int) -> None:
        """Take the environments of the runners; players: [K, S], of a learner.  num_envs: E."""
        self._held, self._players, self._num_envs = held, players, num_envs

    def of(self, parts: Sequence[Any]) -> Any:
        """Return carries [K, S, W, ...] as one, [K, S, E, ...]; rows of runners that lack it are 0, None if all do."""
        known = [part for part in parts if part is not None]
        if not known:
            return None
        if isinstance(known[0], dict):
            names = dict.fromkeys(name for part in known for name in part)
            return {name: self.of([None if part is None else part.get(name) for part in parts]) for name in names}
        if isinstance(known[0], tuple):
            places = range(len(known[0]))
            return tuple(self.of([None if part is None else part[i] for part in parts]) for i in places)
        whole = np.zeros((*self._players.shape, self._num_envs, *known[0].shape[3:]), known[0].dtype)
        for columns, part in zip(self._held, parts, strict=True):
            if part is not None:
                columns.put(part, whole, self._players)
        return whole
