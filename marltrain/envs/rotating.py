"""RotatingVectorEnv: the players of a vector environment change seats from episode to episode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.core.spec import Step, empty_actions
from marltrain.envs.rotation import OF_LAST_ACTIONS, OF_NEXT_ACTIONS, Rotation
from marltrain.envs.vector import VectorEnv
from marltrain.envs.wrapper import VectorEnvWrapper

if TYPE_CHECKING:
    from marltrain.envs.rotation_kernel import RotationTable


class RotatingVectorEnv(VectorEnvWrapper):
    """A vector environment whose arrays have the entries of a line-up in place of seats.

    Episode j of environment e is turn j + e of a `Rotation`. Rows of players in all arrays of a Step, and of actions,
    are then those of the entries. Seats follow from the numbers of episodes, so they are no state.

    seats: [P, E] int64, index of the player that each entry controls in the running episode.
    """

    def __init__(self, envs: VectorEnv, rotation: Rotation, first: int = 0) -> None:
        """Take the environments, which this one then owns.  first: number of the first one in the run."""
        self.rotation = rotation
        self.envs, self.spec, self.num_envs, self.source = envs, envs.spec, envs.num_envs, envs.source
        self._step = Step.empty(self.spec, self.num_envs)
        self._actions = empty_actions(self.spec, self.num_envs)
        self._columns, self._numbers = np.arange(self.num_envs)[None], first + np.arange(self.num_envs)
        self.seats = np.zeros((len(self.spec.players), self.num_envs), np.int64)
        self._rows: list[Array] = []

    def reset(self, seed: int) -> Step:
        """See VectorEnv."""
        return self._begun(self.envs.reset(seed))

    def send(self, actions: tuple[Array, ...]) -> None:
        """See VectorEnv."""
        for rows, given, own in zip(self._rows, actions, self._actions, strict=True):
            own[rows, self._columns] = given
        self.envs.send(self._actions)

    def recv(self) -> Step:
        """See VectorEnv."""
        step = self.envs.recv()
        self._copy_rows(step, OF_LAST_ACTIONS)
        if np.count_nonzero(step.ended):
            self._turn(step.episode)
        return self._seen(step)

    def restore(self, saved: Mapping[str, Array]) -> tuple[Step, list[tuple[int, str]]]:
        """See VectorEnv."""
        step, restarted = self.envs.restore(saved)
        return self._begun(step), restarted

    def seats_in(self, envs: Array, episodes: Array) -> Array:
        """Return the seats of the entries in episodes of environments `envs` [n], by their numbers [n]: [P, n]."""
        return self.rotation.seats(episodes + envs)

    def compiled(self, sent: Sequence[Array]) -> RotationTable:
        """Return the arguments with which compiled code moves rows between the entries and the seats of native games.

        sent: the actions that the games read, per group.  After steps of compiled code, call `follow`.
        """
        from marltrain.envs.rotation_kernel import RotationTable  # loads numba

        return RotationTable(self.spec, self.rotation, self.seats, self.envs._step, self._step, sent)

    def follow(self) -> None:
        """Go on from the seats that compiled code has set."""
        self._rows = self.rotation.rows(self.seats)

    def _begun(self, step: Step) -> Step:
        """Return a Step that no Step precedes, by entries."""
        self._turn(step.episode)
        self._copy_rows(step, OF_LAST_ACTIONS)
        return self._seen(step)

    def _turn(self, episodes: Array) -> None:
        """Set the seats of the running episodes, by their numbers [E]."""
        self.seats[...] = self.seats_in(self._numbers, episodes)
        self.follow()

    def _seen(self, step: Step) -> Step:
        """Return a Step by entries, whose rewards and ends are there."""
        own = self._step
        self._copy_rows(step, OF_NEXT_ACTIONS)
        own.state, own.final_state, own.ended, own.episode = step.state, step.final_state, step.ended, step.episode
        return own

    def _copy_rows(self, step: Step, names: Sequence[str]) -> None:
        """Copy arrays of a Step by seats into those by entries."""
        for name in names:
            given, own = getattr(step, name), getattr(self._step, name)
            if isinstance(own, tuple):
                for g, rows in enumerate(self._rows):
                    _copy(given[g], own[g], (rows, self._columns))
            else:
                own[...] = given[self.seats, self._columns]


def _copy(given: Any, own: Any, place: tuple[Array, Array]) -> None:
    """Copy an array [P, E, ...], or those of a mapping, with its players in other places."""
    if isinstance(given, dict):
        for name, array in given.items():
            _copy(array, own[name], place)
    elif given is not None:
        own[...] = given[place]
