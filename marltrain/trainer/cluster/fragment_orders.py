"""Orders of fragments: batch steps that all runners collect, and the weights and states at their start."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.envs.matches import MatchesVectorEnv, divided, games_of
from marltrain.envs.rotating import RotatingVectorEnv
from marltrain.envs.vector import VectorEnv
from marltrain.envs.workers.pool import STARTING, Loss
from marltrain.policies.agents.agent_learner import each_array
from marltrain.policies.agents.mixed import MixedLearner
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.policies.memory.ring_part import RingPart
from marltrain.trainer.cluster.columns import Columns, Joined
from marltrain.trainer.cluster.initial_priorities import DriverRating
from marltrain.trainer.cluster.messages import Acting, ActingTask, ActingTasks, Fragment, Request, Start, size_of
from marltrain.trainer.cluster.runners import runner_envs
from marltrain.trainer.cluster.sent_members import SentMembers, generators, set_generators
from marltrain.trainer.collecting.rollout import Recorder
from marltrain.trainer.events.counters import Traffic
from marltrain.trainer.seats.team_reward import TeamRewards

SLOWER = 10.0
"""How many times as long as the last fragment took, per batch step in its slowest runner, the next may take."""


@dataclass(frozen=True)
class Version:
    """What agents act by from some moment on.

    acting: of each learner; None of a set of policies.  reference: of `acting` in the object store.
    exploring: of each learner [K, S * E] bool.
    times_due: see `UpdateScheduler`, of each scheduler.
    learning: group -> the players that learn, if runners compute first priorities.
    """

    acting: list[Acting | None]
    reference: Any
    exploring: Sequence[Array]
    times_due: Sequence[int]
    learning: Mapping[int, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class Origin:
    """The start of a fragment in all environments.

    snapshot: the data that leads to the present Step.  step: copies of its arrays.
    rngs: of each learner its generators, see `generators`.  carries: of each learner arrays [K, S, E, ...], or None.
    members: [sets, E] int64, those that play.
    rows: group -> the rows that are not rated yet, if runners compute first priorities.
    """

    snapshot: Mapping[str, Array]
    step: dict[str, Array]
    rngs: tuple[Any, ...]
    carries: tuple[Any, ...]
    members: Array
    rows: Mapping[int, RingPart] = field(default_factory=dict)


@dataclass(frozen=True)
class Order:
    """A fragment of `steps` batch steps, ordered from all runners.

    origin: its start; None: the end of the one that was ordered before it.
    begun: see `Request`, [T, sets, E].
    calls: of each runner.  starting: seconds that each runner has to build the learners first.
    """

    steps: int
    version: Version
    origin: Origin | None
    begun: Array
    calls: list[Any]
    starting: list[float]


@dataclass(frozen=True)
class Received:
    """Fragments of `steps` batch steps, of all runners.  origin: their start.  begun: see `Order`."""

    steps: int
    version: Version
    origin: Origin
    begun: Array
    fragments: list[Fragment]


NO_MEMBERS = np.zeros((0, 0), np.int64)
NOTHING = Received(0, Version([], None, [], []), Origin({}, {}, (), (), NO_MEMBERS), NO_MEMBERS[None], [])
"""Before the first fragment."""


class Orders:
    """Orders fragments from all runners and receives them in the same order; lost runners are replaced.

    The driver's generators, carries and counts are those after the fragments that were received last.

    pending: orders whose fragments are not received yet, the oldest first.
    seconds_per_step: seconds per batch step of the last fragments, in the slowest runner; 0 before the first ones.
    snapshot: the data that leads to the end of the fragments that were received last, or to the start; None: unknown.
    """

    def __init__(
        self, seen: VectorEnv, recorder: Recorder, timeout: float, traffic: Traffic, rating: DriverRating | None,
        team_rewards: TeamRewards | None,
    ) -> None:  # fmt: skip
        """Describe the learners for the runners; see `RunnerCollector`.

        seen: the environments as the agents see them.  rating: None if runners rate no rows.
        """
        games, matches = games_of(seen), seen.names if isinstance(seen, MatchesVectorEnv) else ()
        rotation = games.rotation if isinstance(games, RotatingVectorEnv) else None
        self._num_envs, self._matches, envs = seen.num_envs, divided(seen), runner_envs(seen)
        self._rating = rating
        self.envs, self.actors, self.traffic, self._timeout = envs, recorder.actors, traffic, timeout
        self.actors.actions, self.cast = tuple(self.by_agents(own) for own in envs.actions), recorder.actors.cast
        extras = {
            group: {name: (array.shape, array.dtype) for name, array in kept.items()}
            for group, kept in recorder.extras.items()
        }
        seats, follows = self.actors.learners, self.cast.follows
        self._acting_tasks = ActingTasks(
            tuple(ActingTask.of(seated, follows.get(id(seated.agents[0]), -1)) for seated in seats), extras,
            len(self.cast.sets), None if rating is None else rating.task(team_rewards), rotation, matches,
        )  # fmt: skip
        self.learners = [seated.learner for seated in seats]
        self._members = {
            i: SentMembers(seated.learner.pool, seats, seated.who)
            for i, seated in enumerate(seats) if isinstance(seated.learner, MixedLearner)
        }  # fmt: skip
        self._last: Received | None = None
        self.pending: deque[Order] = deque()
        self.seconds_per_step = 0.0
        self.snapshot: Mapping[str, Array] | None = None

    @property
    def weights_size(self) -> int:
        """Bytes of what agents act by."""
        return size_of(self._acting())

    def _acting(self) -> list[Acting | None]:
        return [Acting.now(each) if isinstance(each, AlgorithmLearner) else None for each in self.learners]

    def newest(self, times_due: Sequence[int]) -> Version:
        """Return what agents act by now, and store it where the runners read it.  times_due: of each scheduler."""
        acting = self._acting()
        self.traffic.sent += size_of(acting)
        learning = {} if self._rating is None else self._rating.learning()
        return Version(acting, self.envs.pool.put(acting), self.actors.exploring, times_due, learning)

    def outdated(self, version: Version) -> bool:
        """Return whether masks or hyperparameters have changed since a version."""
        if version.exploring is not self.actors.exploring and any(
            not np.array_equal(old, new) for old, new in zip(version.exploring, self.actors.exploring, strict=True)
        ):
            return True
        return any(
            not np.array_equal(values, acting.hyper[name])
            for learner, acting in zip(self.learners, version.acting, strict=True)
            if acting is not None and isinstance(learner, AlgorithmLearner)
            for name, values in learner.hyper.values.items()
        )

    def here(self) -> Origin:
        """Return the present state, if all fragments that were received are used up."""
        if self.snapshot is None:
            self.snapshot = self.envs.snapshot()
        carries = tuple(each_array(carry, self._by_env) for carry in self.actors.carries)
        rngs = tuple(generators(learner) for learner in self.learners)
        rows = {} if self._rating is None else self._rating.parts()
        return Origin(self.snapshot, self.envs.kept(), rngs, carries, self.cast.playing, rows)

    def place(
        self, parts: Sequence[int], version: Version, origin: Origin | None = None, begun: Array | None = None
    ) -> None:  # fmt: skip
        """Order fragments of these lengths; origin: `here()`, or None for the end of the one that was ordered last.

        begun: see `Order`, of all parts together; None: the members are drawn now, independent of the division.
        """
        if begun is None:
            steps = sum(parts)
            begun = self.cast.plan(steps) if origin is None else _from(origin, self.cast.plan(steps - 1))
        for steps in parts:
            order = Order(steps, version, origin, begun[:steps], [], [])
            self._request_all(order, origin)
            self.pending.append(order)
            origin, begun = None, begun[steps:]
        self._reserve()

    def _reserve(self) -> None:
        """Keep the members that runners may need until the fragments are used up."""
        last = [] if self._last is None else [self._last.origin.members[None], self._last.begun]
        self.cast.reserve([*last, *(order.begun for order in self.pending)])

    def forget(self) -> None:
        """Forget the last fragment, to which runners will not return."""
        self._last = None
        self._reserve()

    def receive(self) -> Received:
        """Wait for the oldest order, which starts at the present Step, and take over what holds after it."""
        order = self.pending[0]
        origin = self.here() if order.origin is None else order.origin
        fragments: list[Fragment] = []
        while (w := len(fragments)) < len(self.envs.columns):
            limit = self._limit(order.steps) + order.starting[w]
            found = self.envs.pool.fragment(w, order.calls[w], order.steps, limit)
            if not isinstance(found, Loss):
                fragments.append(found)
            elif self._recover(found, origin):
                fragments = []
        self.pending.popleft()
        self.traffic.collect_with(len(fragments))
        self.seconds_per_step = max(part.seconds for part in fragments) / order.steps
        self.traffic.received += size_of(fragments)
        self.traffic.fragments += 1
        self._take_over(order.version, fragments)
        self._last = Received(order.steps, order.version, origin, order.begun, fragments)
        self._reserve()
        return self._last

    def go_back(self, origin: Origin) -> None:
        """Bring all runners, and the Step, back to the start of a fragment; pending orders are collected in vain.

        Ray cannot take calls of an actor back: it would wait for the missing ones, and then give up the actor.
        """
        limit = self._to_return(origin)
        self.pending.clear()
        self.envs.rewind(origin.snapshot, origin.step, limit)

    def let_join(self) -> None:
        """Give environments to runners that have started, if all fragments that were received are used up."""
        if self.envs.joining():
            origin = self.here()
            self.envs.recover((), origin.snapshot, origin.step, self._to_return(origin))
            self._order_again(origin)

    def _to_return(self, origin: Origin) -> float:
        """Return the seconds that runners may take for all pending orders, and then to the start of a fragment."""
        return self._limit(self.envs.replayed(origin.snapshot) + sum(order.steps for order in self.pending))

    def _order_again(self, origin: Origin) -> None:
        """Order all pending fragments again, the first from its start."""
        for order in self.pending:
            self._request_all(order, origin if order is self.pending[0] else None)

    def _request_all(self, order: Order, origin: Origin | None) -> None:
        """Order a fragment from every runner."""
        order.calls.clear()
        order.starting.clear()
        for w in range(len(self.envs.columns)):
            order.starting.append(self._to_start(w))
            order.calls.append(self._request(w, order, origin))

    def _request(self, w: int, order: Order, origin: Origin | None) -> Any:
        """Order a fragment from one runner; return the call."""
        pool, own, columns = self.envs.pool, self.envs.columns[w], self._held(w)
        start = None
        if origin is not None:
            carries = tuple(
                each_array(carry, partial(columns.take, players=seated.players))
                for carry, seated in zip(origin.carries, self.actors.learners, strict=True)
            )
            rows = {group: part.columns(own) for group, part in origin.rows.items()}
            start = Start(origin.rngs, carries, pool.outcome(w), rows)
        exploring = tuple(
            columns.take(self._by_env(array), seated.players)
            for array, seated in zip(order.version.exploring, self.actors.learners, strict=True)
        )
        begun, fresh = order.begun if origin is None else _from(origin, order.begun[1:]), w in pool.lacking
        members = {i: news for i, sent in self._members.items() if (news := sent.news(w, fresh=fresh)) is not None}
        request = Request(
            order.steps, exploring, start, self._acting_tasks if fresh else None,
            order.version.learning, np.ascontiguousarray(begun[:, :, own]), members,
        )  # fmt: skip
        self.traffic.sent += size_of(request)
        return pool.request(w, request, order.version.reference)

    def _recover(self, loss: Loss, origin: Origin) -> bool:
        """Order all pending fragments again after the loss of a runner.

        From another one in its place; or from all runners, with other environments: then returns True.
        """
        w, now, before = loss.worker, self.envs.kept(), len(self.envs.columns)
        limit = self._to_return(origin)
        divided = self.envs.recover([loss], origin.snapshot, origin.step, limit)
        self.envs.put_back(now)
        if divided:
            self.seconds_per_step *= max(1.0, before / len(self.envs.columns))  # each has more environments
            self._order_again(origin)
            return True
        for order in self.pending:
            order.starting[w] = self._to_start(w)
            order.calls[w] = self._request(w, order, origin if order is self.pending[0] else None)
        return False

    def _to_start(self, w: int) -> float:
        """Return the seconds that a runner has to build the learners, if its next fragment is its first."""
        return STARTING if w in self.envs.pool.lacking else 0.0

    def _take_over(self, version: Version, fragments: Sequence[Fragment]) -> None:
        """Set generators, carries and counts to those after the fragments."""
        first, held = fragments[0], [self._held(w) for w in range(len(fragments))]
        for i, (learner, acting) in enumerate(zip(self.learners, version.acting, strict=True)):
            set_generators(learner, first.rngs[i])
            if acting is not None and learner.actor is not None:
                learner.actor.counts[...] = acting.counts + sum(part.counts[i] - acting.counts for part in fragments)
            joined = Joined(held, self.actors.learners[i].players, self._num_envs)
            carry = joined.of([part.carries[i] for part in fragments])
            if carry is not None:
                self.actors.carries[i] = each_array(carry, lambda a: a.reshape(len(a), -1, *a.shape[3:]))
        self.snapshot = {name: np.concatenate([part.snapshot[name] for part in fragments]) for name in first.snapshot}

    def _limit(self, steps: int) -> float:
        """Return the seconds that a runner may take for a number of batch steps, collected or replayed."""
        return self._timeout + SLOWER * self.seconds_per_step * steps

    def _by_env(self, array: Array) -> Array:
        """Return rows [K, S * E, ...] of a learner as [K, S, E, ...]."""
        return array.reshape(len(array), -1, self._num_envs, *array.shape[2:])

    def by_agents(self, array: Array) -> Array:
        """Return an array [P, M * E, ...] of a game's players as that of all matches' players, [P * M, E, ...]."""
        return array.reshape(-1, self._num_envs, *array.shape[2:])

    def by_game(self, array: Array) -> Array:
        """Return an array [P * M, E, ...] as that of a game's players, [P, M * E, ...]; `by_agents` backwards."""
        return array.reshape(-1, self._matches * self._num_envs, *array.shape[2:])

    def _held(self, w: int) -> Columns:
        """Return the environments of runner w."""
        own = self.envs.columns[w]
        return Columns(own.start, own.stop, self._num_envs, self._matches)


def _from(origin: Origin, begun: Array) -> Array:
    """Return the members of episodes from a start on; begun: see `Order`, [T - 1, sets, E]."""
    return np.concatenate([origin.members[None], begun])
