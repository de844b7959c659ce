"""FusedCollector: several batch steps of a native game in one compiled call.

Its results are bit-identical to those of `SyncCollector`. It returns to Python when work is due by env steps or by
episodes, and when a ring buffer needs more memory. Updates that compiled code supports are made inside the call; before
other updates it returns. With teams that learn from transitions it also returns when a player has no turn; with
recorded fields, when an episode or a player's part ends, too; with a set of policies in a seat when an episode ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from marltrain.core.layout import Array, map_tree
from marltrain.core.spec import Step
from marltrain.envs.native.batch import FINE
from marltrain.jit.threads import Threads
from marltrain.jit.views import address_of
from marltrain.policies.agents.members_acting import MembersActing
from marltrain.policies.agents.mixed import MixedLearner
from marltrain.policies.backends.base import Backend
from marltrain.policies.compiled.acting import CompiledActing
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.policies.learner.programs.act_program import ActProgram
from marltrain.trainer.collecting.episodes import RunningEpisodes
from marltrain.trainer.collecting.fused_arguments import FusedArguments, can_record, records_fields
from marltrain.trainer.collecting.fused_kernel import (
    ACT,
    ALL_ACT,
    ANY_STEP,
    BEHIND,
    MOST,
    MOVE,
    NO_ENDS,
    RECORD,
    SETTLE,
    fused_program,
)
from marltrain.trainer.collecting.rollout import Collected, SyncCollector
from marltrain.trainer.seats.seats import LearnerSeats
from marltrain.trainer.seats.team_reward import TeamRewards
from marltrain.trainer.updating.scheduler import UpdateScheduler

ROWS_OF_A_BLOCK = 16
"""Least number of decisions of a batch step for which a thread is used."""


def can_fuse(sync: SyncCollector) -> bool:
    """Return whether compiled code supports the environments, the agents and the ring buffers."""
    envs, actors, streams = sync.envs, sync.recorder.actors, sync.recorder.streams
    if not can_record(sync) or len(actors.learners) > MOST:
        return False
    if envs.spec.turn_based and needed_steps(sync) != ANY_STEP:
        return False
    for seated, view in zip(actors.learners, actors.views, strict=True):
        ring, acts = streams.rings.get(seated.group), compiled_acts(seated)
        if acts is None or not isinstance(view.index, slice):
            return False
        by_set = isinstance(acts[1], MembersActing)  # such rows are not learned from
        if ring is not None and not (by_set or set(ring.extras) <= set(acts[1].extras)):
            return False
    return True


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
    envs, actors = sync.envs, sync.recorder.actors
    if records_fields(sync):
        return NO_ENDS
    learners = [seated.learner for seated in actors.learners]
    carried = any(each.actor is not None and each.actor.carried for each in learners)
    apart = not all(_side_by_side(envs.spec.groups[seated.group].players) for seated in actors.learners)
    if carried and apart:
        return NO_ENDS
    replayed = any(isinstance(each, AlgorithmLearner) and each.team and not each.needs.on_policy for each in learners)
    return ALL_ACT if replayed else ANY_STEP


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
        self._schedulers, self._prepare = schedulers, prepare_updates
        self.actors, self._arguments = self.recorder.actors, FusedArguments(sync, episodes, team_rewards, self.plain)
        self._acting = [acts for seated in self.actors.learners if (acts := compiled_acts(seated)) is not None]
        self._exploring: list[Array] | None = None
        self._threads, self._division = Threads(), (0, False, False)
        self._envs = sync.envs.num_envs
        self._decisions = self._envs * len(sync.envs.spec.players)
        self._arguments.record["actors"] = len(self._acting)
        self._arguments.fill("act", [acting.entry for _, acting in self._acting])
        self._arguments.fill("actor", [acting.address for _, acting in self._acting])
        settings = [address_of(actor.settings) for actor, _ in self._acting]
        self._settings_of = dict(zip(map(id, self.actors.learners), settings, strict=True))

    @property
    def blocks(self) -> int:
        """Number of blocks of environments in the last call."""
        return self._division[0]

    def advance(self, step: Step, most: int, episodes: int) -> Collected:
        """Make batch steps until an update is due that compiled code does not make, or a step needs Python."""
        given = self._arguments
        most = min(most, given.room)
        if most < 2 or (self.plain != ANY_STEP and not all(turn.all() for turn in step.turn)):
            return self.sync.advance(step, most, episodes)
        self._refresh(step)
        if not self._dealt():
            return self.sync.advance(step, most, episodes)
        parts = zip(self._acting, self.actors.rngs, strict=True)
        drawn = [actor.prepare(acting, rngs) for (actor, acting), rngs in parts]
        for i, (actor, acting) in enumerate(self._acting):
            acting.start_from(self.actors.carry(i, step), actor.counts)
        given.fill("noise", [first for first, _ in drawn])
        given.record["most"] = self._prepare_updates(min([most, *(left for _, left in drawn)]))
        given.start(episodes)
        result, recorded = self._run()
        for i, (actor, acting) in enumerate(self._acting):
            actor.made(result)
            self.actors.carries[i] = acting.carried()
        given.finish(result, result if recorded else result - 1)
        updates = filter(None, (scheduler.take_metrics() for scheduler in self._schedulers))
        return Collected(step, result, recorded, updates, given.ended.taken())

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
        given = self._arguments
        given.counts[...] = 0
        given.wrong[...] = FINE
        self._threads.run(fused_program(), given.address, len(given.wrong))
        return int(given.counts["moved"][0]), not given.special

    def _divide(self) -> None:
        """Divide the environments into blocks, one for each thread, and batch steps into phases.

        If compiled code makes no updates, a block's outcome is recorded with its next acts.
        """
        threads = max(actor.backend.threads() for actor, _ in self._acting)
        blocks = max(1, min(threads, self._decisions // ROWS_OF_A_BLOCK, self._envs))
        apart = blocks > 1 and any(acting.reads_other_rows for _, acting in self._acting)
        behind = not self._arguments.record["schedulers"]
        if (kind := (blocks, apart, behind)) == self._division:
            return
        self._division = kind
        for _, acting in self._acting:
            acting.divide(blocks)
        self._arguments.divide(np.full(blocks, FINE))
        acts, rest = [ACT, MOVE | SETTLE] if apart else [ACT | MOVE | SETTLE], [] if behind else [RECORD]
        self._arguments.phases([acts[0] | (BEHIND if behind else 0), *acts[1:], *rest])

    def settle(self) -> None:
        """Nothing is ahead."""

    def close(self) -> None:
        """End the threads."""
        self._threads.close()

    def _prepare_updates(self, most: int) -> int:
        """Prepare the updates of the next batch steps; return the number of steps allowed."""
        for scheduler in self._schedulers:
            most = min(most, self._prepare(scheduler, most, self._settings_of.get(id(scheduler.seated.acting[0]), 0)))
        prepared = [scheduler for scheduler in self._schedulers if scheduler.address]
        given = self._arguments
        groups = [ring.index for ring in given.rings]
        given.record["schedulers"] = len(prepared)
        given.fill("scheduler", [scheduler.address for scheduler in prepared])
        given.fill("read", [groups.index(scheduler.seated.group) for scheduler in prepared])
        return most

    def _refresh(self, step: Step) -> None:
        """Refresh the addresses of arrays that may be reallocated: exploration flags, grown ring buffers and ends."""
        if self._exploring is self.actors.exploring and not self._arguments.outdated:
            return
        self._exploring = self.actors.exploring
        for i, (_, acting) in enumerate(self._acting):
            self._set_arrays(i, acting, step)
        self._arguments.refresh(step)

    def _set_arrays(self, i: int, acting: CompiledActing | ActProgram | MembersActing, step: Step) -> None:
        """Let learner i act on the observations of a Step, and write to the actions of the game."""
        seated, view = self.actors.learners[i], self.actors.views[i]
        group, identity = seated.group, seated.agents[0].identity
        legal, kept = step.legal[group], self.recorder.extras.get(group, {})
        hot = self.actors.numbers[i][..., None] == np.arange(len(identity))
        acting.set_arrays(
            obs=map_tree(view.take, step.obs[group]), legal=None if legal is None else view.take(legal),
            explore=self.actors.exploring[i], action=view.take(self._arguments.games.actions[group]),
            player=hot.astype(np.float32) if identity else None,
            extras={name: view.take(kept[name]) for name in acting.extras if name in kept},
        )  # fmt: skip
        if not isinstance(acting, CompiledActing):
            acting.set_turn(view.take(step.turn[group]))
        if isinstance(acting, ActProgram) and self.plain != NO_ENDS:
            first = self.sync.envs.spec.groups[group].players[view.index.start]
            acting.restart_where(step.terminated[first:], step.truncated[first:])
