"""Streams: the trainer's record of all steps, each stored once; each learner reads the rows of its players.

A player's row begins with its decision. It sums all rewards until the player's next decision or the end of its part,
independent of the players that act in between. Until then the row is open, afterwards it is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from marltrain.core.errors import AgentError, ConfigError, EnvError
from marltrain.core.layout import Array
from marltrain.core.spec import EnvSpec, Step
from marltrain.policies.memory.frames import ring_of
from marltrain.policies.memory.joint_actions import JointActions
from marltrain.policies.memory.needs import Column, Needs
from marltrain.policies.memory.readers import Reader
from marltrain.policies.memory.reservoir import Reservoir
from marltrain.policies.memory.ring import Ring
from marltrain.policies.memory.sequences import reader_class
from marltrain.policies.memory.snapshot import check_shown, restore_ring, ring_state
from marltrain.policies.memory.states import GlobalStates, kind_of, states_size
from marltrain.storage.checks import memory_size
from marltrain.storage.state import State

MakeReader = Callable[[Ring, Sequence[Sequence[int]], Needs], Reader]


@dataclass(frozen=True)
class Storage:
    """What the ring of one group stores.

    rows: minimum number of batch steps that stay readable.  columns: extras stored with each decision.
    states: kinds of the global states that the group's learners read, see `StateNeed`.
    joint_actions: whether a learner of the group reads the actions of all players; all groups are then recorded.
    trees: number of trees over the rows of a player, see `PrioritizedChoice`: one for each agent and player that it
        reads.
    reservoir: decisions of each player that a reservoir holds; 0: no reservoir.
    """

    rows: int
    columns: Mapping[str, Column] = field(default_factory=dict)
    states: tuple[str, ...] = ()
    joint_actions: bool = False
    trees: int = 0
    reservoir: int = 0


class Streams:
    """The record of E environments: one ring for each group in `storage`; other groups are not recorded.

    The global states of the environments are stored once for all groups, if a learner reads them.

    Order of a batch step: `record_step`, then the readers, then `record_actions` for each recorded group, then the
    environment step. Row t of every group is batch step t.

    rings: by group.  states: global states by kind, see `StateNeed`.
    full_size: bytes of all rings, states and trees, when they hold all rows that stay readable.
    """

    def __init__(self, spec: EnvSpec, num_envs: int, storage: Mapping[int, Storage]) -> None:
        """Allocate the rings; raises ConfigError for an unknown group, or for no rows or too many rows."""
        self.spec, self.num_envs = spec, num_envs
        for group, kept in storage.items():
            if not 0 <= group < len(spec.groups) or kept.rows < 1:
                raise ConfigError(
                    f"storage keeps at least 1 row of one of the groups 0 to {len(spec.groups) - 1}, got group {group} "
                    f"with rows={kept.rows}"
                )
        self.torn = False  # True after an interrupt while rows are written: the groups may differ in time
        stored = {asked: kind_of(spec, asked) for kept in storage.values() for asked in kept.states}
        kinds = sorted(set(stored.values()))
        self.full_size = self._size(storage, kinds)
        try:
            if self.full_size > memory_size():  # a system that overcommits would allocate it
                raise MemoryError
            self.rings = {g: ring_of(spec, g, num_envs, kept.rows, kept.columns) for g, kept in storage.items()}
            for g, kept in storage.items():
                self.rings[g].reservoir = Reservoir(self.rings[g], kept.reservoir) if kept.reservoir else None
            self.states = {kind: GlobalStates(spec, num_envs, self._capacity, kind) for kind in kinds}
        except MemoryError as error:
            rows = max(kept.rows for kept in storage.values())
            states = sum(states_size(spec, num_envs, kind) for kind in kinds) * (rows + 1)
            part = f", {states / 1e9:,.1f} GB of them global states" if states else ""
            raise ConfigError(
                f"the rows to learn from do not fit into memory: {rows:,} batch steps of {num_envs:,} environments "
                f"take {self.full_size / 1e9:,.1f} GB{part}. Lower capacity (off-policy), update_freq (on-policy) or "
                "num_train_envs"
            ) from error
        joint = JointActions(spec, self.rings) if any(kept.joint_actions for kept in storage.values()) else None
        for ring in self.rings.values():
            ring.states = {asked: self.states[kind] for asked, kind in stored.items()}
            ring.joint, ring.every = joint, list(self.rings.values())

    @property
    def _capacity(self) -> int:
        """Batch steps that the largest ring holds."""
        return max(ring.capacity for ring in self.rings.values())

    @property
    def _stored(self) -> list[Ring | GlobalStates]:
        return [*self.rings.values(), *self.states.values()]

    @property
    def _reservoirs(self) -> dict[int, Reservoir]:
        return {group: ring.reservoir for group, ring in self.rings.items() if ring.reservoir is not None}

    def _size(self, storage: Mapping[int, Storage], kinds: Sequence[str]) -> int:
        """Return the bytes of all rings, of the trees over them, and of the global states of these kinds."""
        most = max((kept.rows for kept in storage.values()), default=0)
        total = sum(states_size(self.spec, self.num_envs, kind) for kind in kinds) * (most + 1)
        for g, kept in storage.items():
            rows = kept.rows + 1  # one row is being written
            one = ring_of(self.spec, g, self.num_envs, 1, kept.columns)
            total += one.step_size * rows + kept.reservoir * Reservoir(one, 1).nbytes
            if kept.trees:
                from marltrain.policies.memory.priorities import tree_size  # loads numba

                total += kept.trees * tree_size(rows * self.num_envs)
        return total

    def record_step(self, step: Step, reward: Array | None = None) -> None:
        """Add rewards and ends to each player's open row, then begin the next row with the observations of `step`.

        reward: [P, E] float32 of all players, in place of `step.reward`.
        Raises EnvError if an episode ended and a player with an open row is neither terminated nor truncated.
        """
        self.torn = True
        reward = step.reward if reward is None else reward
        some = np.count_nonzero(step.terminated) or np.count_nonzero(step.truncated)
        part_ended = step.terminated | step.truncated if some else None
        if np.count_nonzero(step.ended):
            self._check_ended(step)
        for ring in self.rings.values():
            ring.record_step(step, reward, part_ended)
        for states in self.states.values():
            states.record_step(step, self._capacity)
        self.torn = False

    def learning(self, mask: Array) -> None:
        """Set the learning players, [P] bool: transitions may be drawn from their next decisions; at first all players.

        A row keeps the value at the time of its decision. Rollouts ignore the mask; use `RolloutReader.drop`.
        """
        for ring in self.rings.values():
            ring.learning[...] = mask[ring.players]

    def goals_judged_by(self, reward: Callable[..., Any]) -> None:
        """Set the environment's rewards of goals, (achieved, desired, info) -> rewards [n]; see `Hindsight`."""
        for ring in self.rings.values():
            ring.goal_reward = reward

    def record_actions(self, group: int, action: Array, extras: Mapping[str, Array]) -> None:
        """Store action and extras, each [P, E, ...], in the newest row of a group; they count where `turn` is True."""
        if group not in self.rings:
            raise AgentError(f"group {group} is not recorded; recorded groups: {sorted(self.rings)}")
        self.rings[group].record_actions(action, extras)

    def abandon(self, envs: Array | None = None) -> None:
        """Abandon the open rows of all environments or of `envs` [n] int64; see `Ring.abandon`.

        Call it before `record_step` with the first Step of the next episodes.
        """
        for each in self._stored:
            each.abandon(envs)

    def restart(self, step: Step, envs: Array) -> None:
        """Abandon the running episodes of `envs` [n] int64; `step` is the first Step of their new episodes.

        Call it between `record_step` and `record_actions`.
        """
        for each in self._stored:
            each.restart(step, envs)

    def release(self) -> None:
        """End all readers made so far: rows need no longer stay for them. Call it before another run makes its own."""
        for ring in self.rings.values():
            ring.release()
        for states in self.states.values():
            states.mirrors = {}

    def state(self) -> State:
        """Return the complete state of all rings and global states."""
        parts = {str(group): ring_state(ring) for group, ring in self.rings.items()}
        parts |= {f"states/{kind}": states.state() for kind, states in self.states.items()}
        parts |= {f"reservoir/{group}": kept.state() for group, kept in self._reservoirs.items()}
        return State.joined(**parts)

    def restore(self, state: State) -> None:
        """Restore the state that `state` returned into empty streams; raises SaveError if it does not fit."""
        for group, ring in self.rings.items():
            restore_ring(ring, state.part(str(group)))
        for kind, states in self.states.items():
            states.restore(state.part(f"states/{kind}"), self.rings.values())
        for group, kept in self._reservoirs.items():
            kept.restore(state.part(f"reservoir/{group}"))

    def check_shown(self, step: Step, envs: Array) -> None:
        """Raise SaveError unless the restored newest row matches the Step of the environments `envs` [n] int64."""
        for ring in self.rings.values():
            check_shown(ring, step, envs)
        for states in self.states.values():
            states.check_shown(step, envs)

    def reader(self, seats: Sequence[Sequence[int]], needs: Needs, make: MakeReader | None = None) -> Any:
        """Return the reader of a learner whose agent k learns from the players `seats[k]` of one recorded group.

        make: constructor of a custom reader; None: the reader that fits `needs`.
        An on-policy reader reads only decisions made from now on. It protects their rows until they are taken.
        Raises AgentError for seats of no or several groups, or for columns that are not stored.
        """
        players = [player for row in seats for player in row]
        groups = {self.spec.place[player][0] for player in players}
        if len(groups) != 1 or not all(seats):
            raise AgentError(f"every row of a learner must read from players of one and the same group, got {seats}")
        ring = self.rings.get(groups.pop())
        if ring is None:
            raise AgentError(f"the group of players {players} is not recorded; add it to `storage`")
        missing = sorted(set(needs.columns) - set(ring.extras))
        if missing:
            raise AgentError(
                f"columns {missing} are needed but not stored; the group's ring stores {sorted(ring.extras)}"
            )
        if needs.joint_actions:
            self._check_joint(ring, needs)
        rows = [[self.spec.place[player][1] for player in row] for row in seats]
        return (make or reader_class(needs))(ring, rows, needs)

    def _check_joint(self, ring: Ring, needs: Needs) -> None:
        """Raise AgentError unless joint actions are stored, and ConfigError unless rollouts alone are read."""
        if ring.joint is None:
            raise AgentError("joint actions are needed but not stored; give Storage(joint_actions=True) to all groups")
        if not needs.on_policy or needs.sequence or needs.replay is not None:
            raise ConfigError(
                "joint actions are read for rollouts without earlier rows: leave Needs(joint_actions=) out"
            )

    def _check_ended(self, step: Step) -> None:
        for ring in self.rings.values():
            players = list(ring.group.players)
            part_ended = step.terminated[players] | step.truncated[players]
            silent = (ring.open >= 0) & step.ended & ~part_ended
            if silent.any():
                row, env = np.argwhere(silent)[0]
                raise EnvError(
                    f"the episode of environment {env} ended, but nothing said that player {ring.names[row]!r}, who "
                    "waits for the outcome of its last decision, was terminated or truncated; a Step must say so"
                )
