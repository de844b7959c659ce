"""Streams: the trainer's record of every step, stored once; each learner reads the part of its players.

A player's row opens with its decision, gathers every reward until its own next decision or its end, whoever moved
meanwhile, and is whole from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from marltrain.errors import AgentError, ConfigError, EnvError, SaveError
from marltrain.files import State, check_memory
from marltrain.layout import Array
from marltrain.policies.batch import Column, Needs
from marltrain.policies.memory.readers import RolloutReader, UniformReader
from marltrain.policies.memory.ring import Ring
from marltrain.policies.memory.snapshot import check_shown, restore_ring, ring_state
from marltrain.spec import EnvSpec, Step

MakeReader = Callable[[Ring, Sequence[Sequence[int]], Needs], UniformReader | RolloutReader]


@dataclass(frozen=True)
class Plan:
    """What to keep of one group.

    rows: batch steps that stay readable at least.  columns: extras to keep of each decision.
    """

    rows: int
    columns: Mapping[str, Column] = field(default_factory=dict)


class Streams:
    """The record of E environments: one ring for each group that has a plan; the others are not recorded.

    Every batch step goes `arrived`, then reading, then `decided` for each recorded group, then the environments step.
    Row t of every group is batch step t.
    """

    def __init__(self, spec: EnvSpec, num_envs: int, plans: Mapping[int, Plan]) -> None:
        """Allocate the rings; raises ConfigError for an unknown group, and a plan of no rows or of too many."""
        self.spec, self.num_envs = spec, num_envs
        for group, plan in plans.items():
            if not 0 <= group < len(spec.groups) or plan.rows < 1:
                raise ConfigError(
                    f"a plan keeps at least 1 row of one of the groups 0 to {len(spec.groups) - 1}, got group {group} "
                    f"with rows={plan.rows}"
                )
        self.torn = False  # an interrupt fell into the middle of `arrived`: the groups may not be in step any more
        try:
            check_memory("the rings", self._size(plans))
            self.rings = {g: Ring(spec, g, num_envs, plan.rows, plan.columns) for g, plan in plans.items()}
        except (MemoryError, SaveError) as error:
            rows = max(plan.rows for plan in plans.values())
            raise ConfigError(
                f"what is learned from does not fit into memory: {rows:,} batch steps of {num_envs:,} environments. "
                "Lower capacity (off-policy), update_freq (on-policy) or num_train_envs"
            ) from error

    def _size(self, plans: Mapping[int, Plan]) -> int:
        """Return how many bytes the plans take."""
        steps = {g: Ring(self.spec, g, 1, 1, plan.columns).step_size for g, plan in plans.items()}
        return sum(steps[g] * plan.rows * self.num_envs for g, plan in plans.items())

    def arrived(self, step: Step, reward: Array | None = None) -> None:
        """Give rewards and ends to each player's open row; then the next row begins with what `step` shows.

        reward: [P, E] float32 of all players, in place of `step.reward`.
        Raises EnvError when an episode ended without saying so of every player that waited for something.
        """
        self.torn = True
        reward = step.reward if reward is None else reward
        some = np.count_nonzero(step.terminated) or np.count_nonzero(step.truncated)
        event = step.terminated | step.truncated if some else None
        if np.count_nonzero(step.ended):
            self._check_ended(step)
        for ring in self.rings.values():
            ring.arrived(step, reward, event)
        self.torn = False

    def learning(self, mask: Array) -> None:
        """Say from whose decisions transitions may be drawn, from the next decisions on, [P] bool; at first of all.

        Rows keep what held when they were decided. Rollouts are not bound by it: their readers drop rows.
        """
        for ring in self.rings.values():
            ring.learning[...] = mask[ring.players]

    def decided(self, group: int, action: Array, extras: Mapping[str, Array]) -> None:
        """Fill the newest row of a group: action [P, E, ...] and extras [P, E, ...], kept where it was the turn."""
        if group not in self.rings:
            raise AgentError(f"group {group} is not recorded: the plans name {sorted(self.rings)}")
        self.rings[group].decided(action, extras)

    def abandon(self, envs: Array | None = None) -> None:
        """Give up the running episodes, of all environments or of some, [n] int64: their open rows never become whole.

        Called before `arrived` brings the first Step of the episodes that follow.
        """
        for ring in self.rings.values():
            ring.abandon(envs)

    def restart(self, step: Step, envs: Array) -> None:
        """Give up the running episodes of some environments, [n] int64, which begin anew with what `step` shows.

        Between `arrived` and `decided`.
        """
        for ring in self.rings.values():
            ring.restart(step, envs)

    def state(self) -> State:
        """Return everything that is recorded."""
        return State.joined(**{str(group): ring_state(ring) for group, ring in self.rings.items()})

    def restore(self, state: State) -> None:
        """Become, while still empty, the streams that `state` was asked of; raises SaveError for others."""
        for group, ring in self.rings.items():
            restore_ring(ring, state.part(str(group)))

    def check_shown(self, step: Step, envs: Array) -> None:
        """Raise SaveError unless what was restored fits what the environments `envs`, [n] int64, show in a Step."""
        for ring in self.rings.values():
            check_shown(ring, step, envs)

    def reader(
        self, seats: Sequence[Sequence[int]], needs: Needs, make: MakeReader | None = None
    ) -> UniformReader | RolloutReader:
        """Return the view of a learner whose row k learns from the players `seats[k]`, all of one recorded group.

        make: makes the reader, where a learner has a kind of its own.
        An on-policy reader's rows are those decided from now on; it protects them until they are taken.
        Raises AgentError for seats of no or several groups, or columns that are not kept.
        """
        if needs.joint:
            raise ConfigError("streams keep no joint rows: needs.joint must be False")
        players = [player for row in seats for player in row]
        groups = {self.spec.place[player][0] for player in players}
        if len(groups) != 1 or not all(seats):
            raise AgentError(f"every row of a learner must read from players of one and the same group, got {seats}")
        ring = self.rings.get(groups.pop())
        if ring is None:
            raise AgentError(f"the group of players {players} is not recorded; give it a plan")
        missing = sorted(set(needs.columns) - set(ring.extras))
        if missing:
            raise AgentError(f"columns {missing} are needed but not kept; the group's plan keeps {sorted(ring.extras)}")
        rows = [[self.spec.place[player][1] for player in row] for row in seats]
        make = make or (RolloutReader if needs.on_policy else UniformReader)
        return make(ring, rows, needs)

    def _check_ended(self, step: Step) -> None:
        for ring in self.rings.values():
            players = list(ring.group.players)
            told = step.terminated[players] | step.truncated[players]
            silent = (ring.open >= 0) & step.ended & ~told
            if silent.any():
                row, env = np.argwhere(silent)[0]
                raise EnvError(
                    f"the episode of environment {env} ended, but nothing said that player {ring.names[row]!r}, who "
                    "waits for the outcome of its last decision, was terminated or truncated; a Step must say so"
                )
