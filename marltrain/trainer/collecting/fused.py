"""FusedCollector: several batch steps of a native game in one compiled call.

Its results are bit-identical to those of `SyncCollector`. It returns to Python when work is due by env steps or by
episodes, and when a ring buffer needs more memory. Updates that compiled code supports are made inside the call; before
other updates it returns. With carries, counts of actions, and teams that learn from transitions it also returns when a
player has no turn; with joined observations or recorded fields, when an episode or a player's part ends, too; with a
set of policies in a seat when an episode ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from marltrain.core.layout import VECTOR, Array, map_tree
from marltrain.core.spec import Step
from marltrain.envs.native.batch import FINE
from marltrain.jit.threads import Threads, give_way
from marltrain.jit.views import address_of
from marltrain.policies.agents.members_acting import MembersActing
from marltrain.policies.agents.mixed import MixedLearner
from marltrain.policies.backends.base import Backend
from marltrain.policies.compiled.acting import CompiledActing
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.policies.learner.programs.act_program import ActProgram
from marltrain.policies.memory.compiled.ring_kernel import ring_record, takes
from marltrain.policies.memory.compiled.states_kernel import StatesTable
from marltrain.policies.memory.ring import Ring
from marltrain.policies.memory.states import OWN, GlobalStates
from marltrain.trainer.collecting.ended_episodes import EndedTable
from marltrain.trainer.collecting.episodes import RunningEpisodes
from marltrain.trainer.collecting.fused_games import FusedGames, native_games
from marltrain.trainer.collecting.fused_kernel import (
    ACT,
    ALL_ACT,
    ANY_STEP,
    COUNTS,
    FUSED,
    MOST,
    MOVE,
    NO_ENDS,
    RECORD,
    fused_program,
)
from marltrain.trainer.collecting.rollout import Collected, SyncCollector
from marltrain.trainer.collecting.shared_rewards import SharedRewards
from marltrain.trainer.seats.seats import LearnerSeats
from marltrain.trainer.seats.team_reward import TeamRewards
from marltrain.trainer.updating.scheduler import UpdateScheduler

ROWS_OF_A_BLOCK = 16
"""Least number of decisions of a batch step for which a thread is used."""


def can_fuse(sync: SyncCollector) -> bool:
    """Return whether compiled code supports the environments, the agents and the ring buffers."""
    envs, actors, streams = sync.envs, sync.recorder.actors, sync.recorder.streams
    if native_games(envs) is None or len(envs.spec.groups) > MOST:
        return False
    if envs.spec.turn_based and needed_steps(sync) != ANY_STEP:
        return False
    for seated, view in zip(actors.learners, actors.views, strict=True):
        ring, acts = streams.rings.get(seated.group), compiled_acts(seated)
        if acts is None or not isinstance(view.index, slice):
            return False
        by_set = isinstance(acts[1], MembersActing)  # such rows are not learned from
        if ring is not None and not (takes(ring) and (by_set or set(ring.extras) <= set(acts[1].extras))):
            return False
    only_vectors = all(list(group.layout.shapes) == [VECTOR] for group in envs.spec.groups)
    joined = any(states.kind != OWN for states in streams.states.values())
    return len(streams.states) <= 1 and len(actors.learners) <= MOST and (only_vectors or not joined)


class ActPreparer(Protocol):
    """Prepares acts of compiled code: `Actor`, or `MembersActing` of a set of policies."""

    @property
    def backend(self) -> Backend:
        """The backend, whose threads are used."""

    @property
    def counts(self) -> Array:
        """See `Actor`."""

    @property
    def settings(self) -> Array:
        """See `Actor`."""

    def prepare(self, acting: Any, rngs: Any) -> tuple[int, int]:
        """See `Actor.prepare`."""

    def made(self, acts: int) -> None:
        """See `Actor.made`."""


CompiledActs = tuple[ActPreparer, CompiledActing | ActProgram | MembersActing]
"""How compiled code acts for a learner: what prepares acts, and their arguments."""


def compiled_acts(seated: LearnerSeats) -> CompiledActs | None:
    """Return how compiled code acts for a learner; None if it does not."""
    learner = seated.learner
    if isinstance(learner, MixedLearner):
        members = MembersActing(learner.pool)
        return members, members
    if learner.actor is None or not learner.actor.noise.ahead:
        return None
    acting = learner.actor.compiled()
    return None if acting is None else (learner.actor, acting)


def needed_steps(sync: SyncCollector) -> int:
    """Return which steps compiled code records: ANY_STEP, ALL_ACT or NO_ENDS."""
    envs, actors, streams = sync.envs, sync.recorder.actors, sync.recorder.streams
    joined = any(states.kind != OWN for states in streams.states.values())
    native = native_games(envs)
    if (native is not None and native.batch.records_fields) or joined:
        return NO_ENDS
    learners = [seated.learner for seated in actors.learners]
    carried = any(each.actor is not None and (each.actor.carried or each.actor.counts.size) for each in learners)
    apart = not all(_side_by_side(envs.spec.groups[seated.group].players) for seated in actors.learners)
    if carried and apart:
        return NO_ENDS
    replayed = any(isinstance(each, AlgorithmLearner) and each.team and not each.needs.on_policy for each in learners)
    return ALL_ACT if carried or replayed else ANY_STEP


def _side_by_side(players: Sequence[int]) -> bool:
    return list(players) == list(range(players[0], players[0] + len(players)))


PrepareUpdates = Callable[[UpdateScheduler, int, int], int]
"""(scheduler, batch steps, address of its agents' settings) -> batch steps allowed; see `UpdateScheduler`."""


class FusedCollector:
    """Makes as many batch steps as possible in one compiled call; see the module docstring."""

    def __init__(
        self,
        sync: SyncCollector,
        episodes: RunningEpisodes,
        schedulers: Sequence[UpdateScheduler],
        prepare_updates: PrepareUpdates,
        team_rewards: TeamRewards | None = None,
    ) -> None:
        """Fill in the arguments of the kernel that stay the same.

        sync: makes single batch steps.  episodes: the running ones.  schedulers: the schedulers of all learners.
        prepare_updates: prepares their updates.
        team_rewards: the rewards to learn from, not computed by a function; None: the players' own.
        """
        self.sync, self.recorder, self.plain = sync, sync.recorder, needed_steps(sync)
        self._ended = EndedTable(episodes)
        self._schedulers, self._prepare, self._team_rewards = schedulers, prepare_updates, team_rewards
        self.actors, self.rings = self.recorder.actors, list(self.recorder.streams.rings.values())
        self.games, spec = FusedGames(sync.envs), sync.envs.spec
        self._acting = [acts for seated in self.actors.learners if (acts := compiled_acts(seated)) is not None]
        self._ring_tables: list[Array] = []
        self._exploring: list[Array] | None = None
        self._capacities: list[tuple[int, int]] = []
        self._record, self._counts = np.zeros(1, FUSED), np.zeros(1, COUNTS)
        self._threads, self._wrong = Threads(), np.empty(0, np.int64)
        self._division: tuple[int, bool] | None = None
        self._envs = sync.envs.num_envs
        self._decisions = self._envs * len(spec.players)
        record = self._record[0]
        record["game"], record["batch"] = self.games.batch.entry, self.games.batch.address
        record["columns"], record["rotation"] = self.games.columns, self.games.rotation
        record["envs"], record["players"], record["plain"] = self._envs, len(spec.players), self.plain
        record["episodes"] = self._ended.address
        record["actors"], record["rings"], record["groups"] = len(self._acting), len(self.rings), len(spec.groups)
        record["counts"], record["give_way"] = address_of(self._counts), give_way()
        self._fill("act", [acting.entry for _, acting in self._acting])
        self._fill("actor", [acting.address for _, acting in self._acting])
        settings = [address_of(actor.settings) for actor, _ in self._acting]
        self._settings_of = dict(zip(map(id, self.actors.learners), settings, strict=True))
        self._address = address_of(self._record)

    def advance(self, step: Step, most: int, episodes: int) -> Collected:
        """Make batch steps until an update is due that compiled code does not make, or a step needs Python."""
        most = min([most, *(ring.room for ring in self.rings)])
        if most < 2 or (self.plain != ANY_STEP and not all(turn.all() for turn in step.turn)):
            return self.sync.advance(step, most, episodes)
        self._refresh(step)
        if not self._dealt():
            return self.sync.advance(step, most, episodes)
        self._ended.start(episodes)
        for ring, table in zip(self.rings, self._ring_tables, strict=True):
            table["open"] = address_of(ring.open)
        parts = zip(self._acting, self.actors.rngs, strict=True)
        drawn = [actor.prepare(acting, rngs) for (actor, acting), rngs in parts]
        for i, (actor, acting) in enumerate(self._acting):
            acting.start_from(self.actors.carry(i, step), actor.counts)
        self._fill("noise", [first for first, _ in drawn])
        self._fill("time", [ring.now for ring in self.rings])
        self._record["most"] = self._prepare_updates(min([most, *(left for _, left in drawn)]))
        streams = self.recorder.streams
        streams.torn = True  # an interrupt may occur between the call and the counts
        result, recorded = self._run()
        for i, (actor, acting) in enumerate(self._acting):
            actor.made(result)
            self.actors.carries[i] = acting.carried()
        begun = result if recorded else result - 1
        for ring in self.rings:
            ring.advanced(result, begun)
        for states in streams.states.values():
            states.advanced(begun)
        streams.torn = False
        self.games.stepped(int(self._wrong.max()))
        updates = filter(None, (scheduler.take_metrics() for scheduler in self._schedulers))
        return Collected(step, result, recorded, updates, self._ended.taken())

    def _dealt(self) -> bool:
        """Set the members of sets that play now; return whether compiled code can act for them."""
        cast, learners, views = self.actors.cast, self.actors.learners, self.actors.views
        for seated, view, (_, acting) in zip(learners, views, self._acting, strict=True):
            if isinstance(acting, MembersActing):
                numbers = cast.of(seated.agents[0], view.seats)
                if numbers is None or not acting.deal(numbers):
                    return False
        return True

    def _run(self) -> tuple[int, bool]:
        """Make the batch steps; return their number, and whether the outcome of the last one is recorded."""
        self._divide()
        self._counts[...] = 0
        self._wrong[...] = FINE
        self._threads.run(fused_program(), self._address, len(self._wrong))
        return int(self._counts["moved"][0]), not self._counts["special"][0]

    def _divide(self) -> None:
        """Divide the environments into blocks, one for each thread, and batch steps into phases."""
        envs, record = self._envs, self._record[0]
        threads = max(actor.backend.threads() for actor, _ in self._acting)
        blocks = max(1, min(threads, self._decisions // ROWS_OF_A_BLOCK, envs))
        apart = blocks > 1 and any(acting.reads_other_rows for _, acting in self._acting)
        if (kind := (blocks, apart)) == self._division:
            return
        self._division, self._wrong = kind, np.empty(blocks, np.int64)
        for _, acting in self._acting:
            acting.divide(blocks)
        record["blocks"], record["wrong"] = blocks, address_of(self._wrong)
        parts = [ACT, MOVE, RECORD] if apart else [ACT | MOVE, RECORD]
        record["phases"] = len(parts)
        self._fill("parts", parts)

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
        """Refresh the addresses of arrays that may be reallocated: exploration flags, grown ring buffers and ends."""
        stored: list[Ring | GlobalStates] = [*self.rings, *self.recorder.streams.states.values()]
        capacities = [(each.capacity, len(each.ends.time)) for each in stored]
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
        self._ended.set_step(self.games.joined(step))
        for name in ("ended", "terminated", "truncated"):
            record[name] = address_of(getattr(step, name))
        record["learned"] = address_of(step.reward)
        if self._team_rewards is not None:
            self._shared = SharedRewards(self._team_rewards, step.reward)
            record["shared"], record["learned"] = self._shared.address, address_of(self._shared.rewards)

    def _set_arrays(self, i: int, acting: CompiledActing | ActProgram | MembersActing, step: Step) -> None:
        """Let learner i act on the observations of a Step, and write to the actions of the game."""
        seated, view = self.actors.learners[i], self.actors.views[i]
        group, identity = seated.group, seated.agents[0].identity
        legal, kept = step.legal[group], self.recorder.extras.get(group, {})
        if isinstance(acting, MembersActing):
            acting.set_turn(view.take(step.turn[group]))
        hot = self.actors.numbers[i][..., None] == np.arange(len(identity))
        acting.set_arrays(
            obs=map_tree(view.take, step.obs[group]), legal=None if legal is None else view.take(legal),
            explore=self.actors.exploring[i], action=view.take(self.games.actions[group]),
            player=hot.astype(np.float32) if identity else None,
            extras={name: view.take(kept[name]) for name in acting.extras if name in kept},
        )  # fmt: skip
        if isinstance(acting, ActProgram) and self.plain != NO_ENDS:
            first = self.sync.envs.spec.groups[group].players[view.index.start]
            acting.restart_where(step.terminated[first:], step.truncated[first:])

    def _table(self, ring: Ring, step: Step) -> Array:
        return ring_record(ring, step, self.games.actions[ring.index], self.recorder.extras[ring.index])

    def _fill(self, name: str, values: list[int]) -> None:
        self._record[name][0, : len(values)] = values
