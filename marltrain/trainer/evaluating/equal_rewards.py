"""Teams that learn from one reward: a test finds rewards that differ before the first update does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from marltrain.core.errors import AgentError
from marltrain.core.layout import Array
from marltrain.core.remedies import unequal_rewards
from marltrain.core.spec import EnvSpec, Step
from marltrain.policies.memory.one_reward import compare
from marltrain.trainer.seats.seats import Seats, TeamSeats
from marltrain.trainer.seats.team_reward import TeamRewards


class EqualRewards:
    """Checks each batch step of a test: the players of a team have equal rewards, as `TeamReader` requires.

    teams: of each team that is checked, the name of its algorithm and its players [N], indices in spec order.
    """

    def __init__(
        self, spec: EnvSpec, seats: Sequence[Seats], team_rewards: TeamRewards | None, learning: Array
    ) -> None:
        """Find the teams that learn from one reward.

        seats: those of the learners that are updated.  team_rewards: the rewards to learn from; None: the players' own.
        learning: [P] bool, the seats that learn; a team without any is not checked.
        """
        self._spec, self._team_rewards = spec, team_rewards
        self.teams = [
            (seated.learner.algorithm.name, np.sort(np.concatenate([held.players.ravel() for held in seated.members])))
            for seated in seats
            if isinstance(seated, TeamSeats) and seated.learner.algorithm.one_reward
            and seated.reading(learning).learn.any() and not (team_rewards is not None and team_rewards.one_for_all)
        ]  # fmt: skip
        self._acted: Array = np.zeros(0, bool)
        self._steps = 0

    def record_actions(self, step: Step) -> None:
        """Store which players act in a Step, before the environments overwrite it."""
        self._acted = _by_player(self._spec, step.turn)

    def check(self, step: Step, dropped: Array) -> None:
        """Raise AgentError, with the players and their rewards, if those of a team differ in the next Step.

        A player counts if it acted in the Step before, and its transition is closed by this one.
        dropped: [E] bool, environments whose episode was abandoned in between.
        """
        self._steps += 1
        rewards = step.reward if self._team_rewards is None else self._team_rewards(step.reward)
        counts = self._acted & (_by_player(self._spec, step.turn) | step.terminated | step.truncated | step.ended)
        counts[:, dropped] = False
        for name, players in self.teams:
            _, env = compare(rewards[players], counts[players])
            if env is not None:
                data = [f"{self._spec.names[p]} {rewards[p, env]:g}" for p in players if counts[p, env]]
                raise AgentError(
                    f"{name}: the players of a team learn from one reward, and theirs differ in test environment {env} "
                    f"at step {self._steps} of the test: {', '.join(data)}. {unequal_rewards()}"
                )


def _by_player(spec: EnvSpec, by_group: Sequence[Array]) -> Array:
    """Return flags of the groups' players, each [P, E] bool, as one array in spec order, [P, E] bool."""
    flags = np.zeros((len(spec.players), by_group[0].shape[1]), bool)
    for group, values in zip(spec.groups, by_group, strict=True):
        flags[list(group.players)] = values
    return flags
