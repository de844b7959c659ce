"""The observations of all players, joined to a global state, for environments without a state of their own."""

from __future__ import annotations

from typing import Any

import numpy as np

from marltrain.core.errors import ConfigError
from marltrain.core.layout import Array
from marltrain.core.spec import EnvSpec, Step


def joined_size(spec: EnvSpec) -> int:
    """Return the number of values of the joined observations.

    Raises ConfigError for observations with images.
    """
    for group in spec.groups:
        if group.layout.images:
            raise ConfigError(
                f"{spec.name}: a global state of all observations needs vectors, and the observations of player "
                f"{spec.names[group.players[0]]!r} hold an image. Give the environment a method state(), or take an "
                "algorithm without a central critic"
            )
    return sum(group.size * (group.layout.vector_size + 1) for group in spec.groups)


class JoinedObservations:
    """Joins observations, group by group: for each player its last observation of the episode and its turn, 0 or 1.

    A player that is absent, has not observed anything yet or whose part has ended has zeros. In a final state, the
    players whose part ends have their final observations; in simultaneous games they have the turn.
    """

    def __init__(self, spec: EnvSpec) -> None:
        """Lay out the values; raises ConfigError for observations with images."""
        self.spec, self.size = spec, joined_size(spec)

    def __call__(self, previous: Array, step: Step, fresh: Array) -> tuple[Array, Array]:
        """Return the states [E, S] of the running episodes and, where `step.ended`, of the ended ones.

        previous: [E, S], the states of the Step before.  fresh: [E] bool, environments whose previous state belongs to
        an episode that was abandoned.
        """
        state = np.where((step.ended | fresh)[:, None], np.float32(0), previous)
        final = previous.copy()
        first = 0
        for g, group in enumerate(self.spec.groups):
            shape = (len(previous), group.size, group.layout.vector_size + 1)
            block = slice(first, first := first + shape[1] * shape[2])
            players = list(group.players)
            over = (step.terminated | step.truncated)[players].T
            now, then = state[:, block].reshape(shape), final[:, block].reshape(shape)
            now[over] = 0.0
            _write(now, step.obs[g], step.turn[g].T)
            now[..., -1] = step.turn[g].T
            then[..., -1] = False
            _write(then, step.final_obs[g], over)
            then[..., -1] = over & (not self.spec.turn_based)
            state[:, block], final[:, block] = now.reshape(len(now), -1), then.reshape(len(then), -1)
        return state, final


def _write(block: Array, obs: Any, where: Array) -> None:
    """Copy observations [P, E, V] into a block [E, P, V + 1] where `where` [E, P] is True."""
    block[..., :-1][where] = obs.transpose(1, 0, 2)[where]
