"""FusedCollector: several batch steps of a native game in one compiled call.

Its results are bit-identical to those of `SyncCollector`. It returns to Python when a checkpoint or the end of a budget
is due, when an episode or a player's part ends, and when a row needs special treatment. Updates that compiled code
supports are made inside the call; before other updates it returns.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from marltrain.core.layout import VECTOR, Array, map_tree
from marltrain.core.spec import Step
from marltrain.envs.native.batch import FINE, STEP
from marltrain.envs.native.vector import NativeVectorEnv
from marltrain.jit.compiling import compiled, program
from marltrain.jit.views import address_of, bools, call, f32, f64, record_at
from marltrain.policies.compiled.acting import CompiledActing
from marltrain.policies.learner.planned.rounds_kernel import ROUNDS, is_due, rounds_at
from marltrain.policies.learner.programs.act_program import ActProgram
from marltrain.policies.memory.compiled.ring_kernel import (
    ROWS,
    is_free,
    record_actions,
    record_step,
    ring_record,
    rows_at,
    takes,
)
from marltrain.policies.memory.compiled.states_kernel import STATES, StatesTable, has_room, state_arrived, states_at
from marltrain.policies.memory.ring import Ring
from marltrain.policies.memory.states import OWN
from marltrain.trainer.collecting.rollout import Collected, SyncCollector
from marltrain.trainer.collecting.shared_rewards import SHARED, SharedRewards, share, shared_at
from marltrain.trainer.seats.team_reward import TeamRewards
from marltrain.trainer.updating.scheduler import UpdateScheduler

MOST = 32
"""Maximum number of learners, ring buffers and groups."""
_ONE = ("most", "envs", "players", "actors", "rings", "groups", "schedulers", "game", "batch",
        "wrong", "remembered", "states", "shared")  # fmt: skip
_ARRAYS = ("reward", "learned", "returns", "ended", "terminated", "truncated")
_LISTS = ("act", "actor", "noise", "ring", "time", "turn", "size", "scheduler", "read")
FUSED = np.dtype([(n, np.int64) for n in (*_ONE, *_ARRAYS)] + [(name, np.int64, (MOST,)) for name in _LISTS])
"""Arguments of the fused kernel: numbers and addresses.

most: maximum batch steps.  envs, players, actors, rings, groups, schedulers: how many there are.
game: address of the game kernel.  batch: address of its arguments.
wrong: return value of the game kernel.  remembered: whether the outcome of the last step is recorded.
states: address of STATES, or 0 if no global states are stored.
shared: address of SHARED, or 0 if all players learn from their own rewards.
reward, learned, returns, ended, terminated, truncated: addresses of arrays; learned: the rewards to learn from.
act, actor: for each learner the address of the kernel that acts, and of its arguments; noise: number of its first act.
ring: addresses of ROWS, one for each ring buffer; time: batch step of its newest row, the same for all.
turn, size: for each group the address of its turn flags, and their number.
scheduler: addresses of ROUNDS; read: index of the ring buffer that each reads.
"""


def can_fuse(sync: SyncCollector) -> bool:
    """Return whether compiled code supports the environments, the agents and the ring buffers."""
    envs, actors, streams = sync.envs, sync.recorder.actors, sync.recorder.streams
    if not isinstance(envs, NativeVectorEnv) or envs.spec.turn_based or len(envs.spec.groups) > MOST:
        return False
    for seated, view in zip(actors.learners, actors.views, strict=True):
        actor, ring = seated.learner.actor, streams.rings.get(seated.group)
        acting = None if actor is None or not actor.noise.ahead else actor.compiled()
        if acting is None or not isinstance(view.index, slice):
            return False
        if ring is not None and not (takes(ring) and set(ring.extras) <= set(acting.extras)):
            return False
    only_vectors = all(list(group.layout.shapes) == [VECTOR] for group in envs.spec.groups)
    joined = any(states.kind != OWN for states in streams.states.values())
    return len(streams.states) <= 1 and len(actors.learners) <= MOST and (only_vectors or not joined)


PrepareUpdates = Callable[[UpdateScheduler, int, int], int]
"""(scheduler, batch steps, address of its agents' settings) -> batch steps allowed; see `UpdateScheduler`."""


class FusedCollector:
    """Makes as many batch steps as possible in one compiled call; see the module docstring."""

    def __init__(
        self,
        sync: SyncCollector,
        returns: Array,
        lengths: Array,
        schedulers: Sequence[UpdateScheduler],
        prepare_updates: PrepareUpdates,
        team_rewards: TeamRewards | None = None,
    ) -> None:
        """Fill in the arguments of the kernel that stay the same.

        sync: makes single batch steps.  returns: [P, E] float64 and lengths: [E] int64 of the running episodes.
        schedulers: the schedulers of all learners.  prepare_updates: prepares their updates.
        team_rewards: the rewards to learn from, not computed by a function; None: the players' own.
        """
        if not isinstance(sync.envs, NativeVectorEnv):
            raise TypeError("only a native game is stepped in compiled code: ask `can_fuse` first")
        self.sync, self.recorder, self.lengths = sync, sync.recorder, lengths
        self._schedulers, self._prepare, self._team_rewards = schedulers, prepare_updates, team_rewards
        self.actors, self.rings = self.recorder.actors, list(self.recorder.streams.rings.values())
        self.batch, spec = sync.envs.batch, sync.envs.spec
        self._acting = [
            (seated.learner.actor, acting)
            for seated in self.actors.learners
            if seated.learner.actor is not None and (acting := seated.learner.actor.compiled()) is not None
        ]
        self._ring_tables: list[Array] = []
        self._exploring: list[Array] | None = None
        self._capacities: list[int] = []
        self._record = np.zeros(1, FUSED)
        record = self._record[0]
        record["game"], record["batch"] = self.batch.entry, self.batch.address
        record["envs"], record["players"], record["returns"] = len(lengths), len(spec.players), address_of(returns)
        record["actors"], record["rings"], record["groups"] = len(self._acting), len(self.rings), len(spec.groups)
        self._fill("act", [acting.entry for _, acting in self._acting])
        self._fill("actor", [acting.address for _, acting in self._acting])
        settings = [address_of(actor.settings) for actor, _ in self._acting]
        self._settings_of = dict(zip(map(id, self.actors.learners), settings, strict=True))
        self._address = address_of(self._record)

    def advance(self, step: Step, most: int) -> Collected:
        """Make batch steps until an update is due that compiled code does not make, or a step needs Python."""
        most = min([most, *(ring.room for ring in self.rings)])
        if most < 2:
            return self.sync.advance(step, most)
        self._refresh(step)
        parts = zip(self._acting, self.actors.rngs, strict=True)
        drawn = [actor.prepare(acting, rngs) for (actor, acting), rngs in parts]
        for i, (actor, acting) in enumerate(self._acting):
            acting.start_from(self.actors.carry(i, step), actor.counts)
        self._fill("noise", [first for first, _ in drawn])
        self._fill("time", [ring.now for ring in self.rings])
        self._record["most"] = self._prepare_updates(min([most, *(left for _, left in drawn)]))
        streams = self.recorder.streams
        streams.torn = True  # an interrupt may occur between the call and the counts
        result: int = _program()(self._address)
        for i, (actor, acting) in enumerate(self._acting):
            actor.noise.skip(result)
            self.actors.carries[i] = acting.carried()
        recorded = bool(self._record["remembered"][0])
        begun = result if recorded else result - 1
        for ring in self.rings:
            ring.advanced(result, begun)
        for states in streams.states.values():
            states.advanced(begun)
        self.lengths += begun
        streams.torn = False
        self.batch.check(int(self._record["wrong"][0]))
        if self.batch.records_fields:
            self.batch.record_ends()
            self.sync.envs.recorded = self.batch.recorded
        return Collected(
            step, result, recorded, filter(None, (scheduler.take_metrics() for scheduler in self._schedulers))
        )

    def settle(self) -> None:
        """Nothing is ahead."""

    def _prepare_updates(self, most: int) -> int:
        """Prepare the updates of the next batch steps; return the number of steps allowed."""
        for scheduler in self._schedulers:
            most = min(most, self._prepare(scheduler, most, self._settings_of.get(id(scheduler.seated.acting[0]), 0)))
        prepared = [scheduler for scheduler in self._schedulers if scheduler.address]
        groups = [ring.index for ring in self.rings]
        self._record["schedulers"] = len(prepared)
        self._fill("scheduler", [scheduler.address for scheduler in prepared])
        self._fill("read", [groups.index(scheduler.seated.group) for scheduler in prepared])
        return most

    def _refresh(self, step: Step) -> None:
        """Refresh the addresses of arrays that may be reallocated: exploration flags and grown ring buffers."""
        capacities = [ring.capacity for ring in self.rings]
        if self._exploring is self.actors.exploring and self._capacities == capacities:
            return
        self._exploring, self._capacities = self.actors.exploring, capacities
        record = self._record[0]
        for i, (_, acting) in enumerate(self._acting):
            self._set_arrays(i, acting, step)
        self._ring_tables = [self._table(ring, step) for ring in self.rings]
        self._fill("ring", [address_of(table) for table in self._ring_tables])
        for states in self.recorder.streams.states.values():
            self._states_table = StatesTable(states, step)
            record["states"] = self._states_table.address
        self._fill("turn", [address_of(turn) for turn in step.turn])
        self._fill("size", [turn.size for turn in step.turn])
        for name in ("reward", "ended", "terminated", "truncated"):
            record[name] = address_of(getattr(step, name))
        record["learned"] = record["reward"]
        if self._team_rewards is not None:
            self._shared = SharedRewards(self._team_rewards, step.reward)
            record["shared"], record["learned"] = self._shared.address, address_of(self._shared.rewards)

    def _set_arrays(self, i: int, acting: CompiledActing | ActProgram, step: Step) -> None:
        """Let learner i act on the observations of a Step, and write to the actions of the game."""
        seated, view = self.actors.learners[i], self.actors.views[i]
        group, identity = seated.group, seated.agents[0].identity
        legal, kept = step.legal[group], self.recorder.extras.get(group, {})
        hot = self.actors.numbers[i][..., None] == np.arange(len(identity))
        acting.set_arrays(
            obs=map_tree(view.take, step.obs[group]), legal=None if legal is None else view.take(legal),
            explore=self.actors.exploring[i], action=view.take(self.batch.actions[group]),
            player=hot.astype(np.float32) if identity else None,
            extras={name: view.take(kept[name]) for name in acting.extras if name in kept},
        )  # fmt: skip

    def _table(self, ring: Ring, step: Step) -> Array:
        return ring_record(ring, step, self.batch.actions[ring.index], self.recorder.extras[ring.index])

    def _fill(self, name: str, values: list[int]) -> None:
        self._record[name][0, : len(values)] = values


@compiled
def fused_steps(address: int) -> int:
    """Make batch steps; return their number."""
    s = record_at(address, FUSED)
    result, s.remembered = 0, 1
    while result < s.most:
        for i in range(s.actors):
            call(s.act[i], (s.actor[i], s.noise[i] + result))
        for i in range(s.rings):
            record_actions(rows_at(s.ring[i]), s.time[i] + result, 0, s.envs)
        s.wrong = call(s.game, (s.batch, STEP, 0, s.envs, 0))
        result += 1
        if s.wrong != FINE or not is_common(s, result):
            s.remembered = 0
            return result
        if s.shared:
            share(shared_at(s.shared), 0, s.envs)
        for i in range(s.rings):
            record_step(rows_at(s.ring[i]), s.time[i] + result, s.learned, 0, s.envs)
        if s.states:
            state_arrived(states_at(s.states), s.time[0] + result, 0, s.envs)
        rewards, returns = f32(s.reward, s.players * s.envs), f64(s.returns, s.players * s.envs)
        for i in range(s.players * s.envs):
            returns[i] += rewards[i]
        if not learned(s, result):
            return result
    return result


@compiled
def learned(s: Any, made: int) -> bool:
    """Make the updates that are due; return whether their losses and gradients are finite."""
    for i in range(s.schedulers):
        u = rounds_at(s.scheduler[i])
        if is_due(u, made):
            call(u.program, (s.scheduler[i], s.time[s.read[i]] + made))
            if u.broken:
                return False
    return True


@compiled
def is_common(s: Any, made: int) -> bool:
    """Return whether the last step is ordinary and each ring buffer has a free row for the next step.

    In an ordinary step no episode or player's part ends, and all players have the turn.
    """
    everyone = s.players * s.envs
    if some(s.ended, s.envs) or some(s.terminated, everyone) or some(s.truncated, everyone):
        return False
    for i in range(s.groups):
        for has_turn in bools(s.turn[i], s.size[i]):
            if not has_turn:
                return False
    free = True
    for i in range(s.rings):
        free = free and is_free(rows_at(s.ring[i]), s.time[i] + made, 0, s.envs)
    if s.states:
        free = free and has_room(states_at(s.states), s.time[0] + made, 0, s.envs)
    return free


@compiled
def some(address: int, size: int) -> bool:
    """Return whether any of `size` flags at an address is set."""
    found = False
    for value in bools(address, size):
        found = found or value
    return found


@functools.cache
def _program() -> Any:
    return program(fused_steps, ROWS, STATES, SHARED, FUSED, ROUNDS)
