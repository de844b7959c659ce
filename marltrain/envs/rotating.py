"""RotatingVectorEnv: the players of a vector environment change seats from episode to episode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.core.spec import EnvSpec, Step, empty_actions
from marltrain.envs.vector import VectorEnv
from marltrain.envs.wrapper import VectorEnvWrapper


class Rotation:
    """The seats of the entries of a line-up, which change from episode to episode.

    Seats are in cycles of equal spaces: in turn j, an entry has the seat that is j places further in its cycle.
    cycles: None: all seats of equal spaces; for teams, those at the same place of each team.
    """

    def __init__(self, spec: EnvSpec, cycles: Sequence[Sequence[int]] | None = None) -> None:
        """Take the cycles of players, by their indices; players in no cycle keep their seats."""
        self._cycles = [np.array(c) for c in ([g.players for g in spec.groups] if cycles is None else cycles)]
        self._groups = [list(group.players) for group in spec.groups]
        self._place = np.array([place for _, place in spec.place])

    def seats(self, turns: Array) -> Array:
        """Return the players whose seats the entries have, [P, n] int64; turns: [n] int64."""
        seats = np.repeat(np.arange(len(self._place))[:, None], len(turns), 1)
        for cycle in self._cycles:
            seats[cycle] = cycle[(np.arange(len(cycle))[:, None] + turns) % len(cycle)]
        return seats

    def rows(self, seats: Array) -> list[Array]:
        """Return the rows in their groups of the seats [P, n] of entries, for each group [P, n]."""
        return [self._place[seats[players]] for players in self._groups]

    def rows_of(self, players: Array, turns: Array) -> Array:
        """Return the rows in their group of the seats of entries `players` [K, S], [K, S, n]."""
        rows: Array = self._place[self.seats(turns)[players]]
        return rows


class RotatingVectorEnv(VectorEnvWrapper):
    """A vector environment whose arrays have the entries of a line-up in place of seats.

    Episode j of environment e is turn j + e of a `Rotation`. Rows of players in all arrays of a Step, and of actions,
    are then those of the entries. Seats follow from the numbers of episodes, so they are no state.

    seats: [P, E] int64, index of the player that each entry controls in the running episode.
    ended_seats: the same, of the episode to which the rewards and ends of the last Step belong.
    """

    def __init__(self, envs: VectorEnv, rotation: Rotation) -> None:
        """Take the environments, which this one then owns."""
        self.rotation = rotation
        self.envs, self.spec, self.num_envs, self.source = envs, envs.spec, envs.num_envs, envs.source
        self._step = Step.empty(self.spec, self.num_envs)
        self._actions = empty_actions(self.spec, self.num_envs)
        self._columns = np.arange(self.num_envs)[None]
        self.seats = self.ended_seats = np.zeros((len(self.spec.players), self.num_envs), np.int64)
        self._rows: list[Array] = []

    def reset(self, seed: int) -> Step:
        """See VectorEnv."""
        step = self.envs.reset(seed)
        self._turn(step.episode)
        self.ended_seats = self.seats
        return self._seen(step, self._rows)

    def send(self, actions: tuple[Array, ...]) -> None:
        """See VectorEnv."""
        for rows, given, own in zip(self._rows, actions, self._actions, strict=True):
            own[rows, self._columns] = given
        self.envs.send(self._actions)

    def recv(self) -> Step:
        """See VectorEnv."""
        step, before = self.envs.recv(), self._rows
        self.ended_seats = self.seats
        if np.count_nonzero(step.ended):
            self._turn(step.episode)
        return self._seen(step, before)

    def restore(self, saved: Mapping[str, Array]) -> tuple[Step, list[tuple[int, str]]]:
        """See VectorEnv."""
        step, restarted = self.envs.restore(saved)
        self._turn(step.episode)
        self.ended_seats = self.seats
        return self._seen(step, self._rows), restarted

    def _turn(self, episodes: Array) -> None:
        """Set the seats of the running episodes, by their numbers [E]."""
        self.seats = self.rotation.seats(episodes + np.arange(self.num_envs))
        self._rows = self.rotation.rows(self.seats)

    def _seen(self, step: Step, before: list[Array]) -> Step:
        """Return a Step by entries; before: the seats of the episodes to which rewards and ends belong."""
        own, columns = self._step, self._columns
        for g in range(len(self.spec.groups)):
            for name, rows in (("obs", self._rows), ("legal", self._rows), ("turn", self._rows), ("alive", self._rows),
                               ("final_obs", before), ("final_legal", before)):  # fmt: skip
                _copy(getattr(step, name)[g], getattr(own, name)[g], (rows[g], columns))
        for name in ("reward", "terminated", "truncated"):
            _copy(getattr(step, name), getattr(own, name), (self.ended_seats, columns))
        own.start_reward[...] = step.start_reward[self.seats, columns]
        own.state, own.final_state, own.ended, own.episode = step.state, step.final_state, step.ended, step.episode
        return own


def _copy(given: Any, own: Any, place: tuple[Array, Array]) -> None:
    """Copy an array [P, E, ...], or those of a mapping, with its players in other places."""
    if isinstance(given, dict):
        for name, array in given.items():
            _copy(array, own[name], place)
    elif given is not None:
        own[...] = given[place]
