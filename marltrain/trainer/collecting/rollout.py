"""Batch steps: the agents' decisions, their record in the streams, and the step of the environments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from marltrain.core.errors import AgentError, SaveError, WorkerError
from marltrain.core.layout import Array, Obs, map_tree
from marltrain.core.spec import EnvSpec, Step, empty_actions
from marltrain.envs import VectorEnv
from marltrain.policies.batches.batch import Acted, ActInputs
from marltrain.policies.batches.player_one_hot import identified, numbers_of
from marltrain.policies.learner.actor import StartedAct
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.policies.memory.streams import Streams
from marltrain.storage.state import State
from marltrain.trainer.collecting.carries import described, moved, rebuilt, zeroed
from marltrain.trainer.collecting.cast import Cast
from marltrain.trainer.collecting.episodes import EndedEpisodes
from marltrain.trainer.seats.seats import LearnerSeats
from marltrain.trainer.updating.scheduler import UpdateMetrics

Noises = Mapping[str, Array]
"""Name -> random numbers of an act."""


class Begun(NamedTuple):
    """Decisions of a learner that were started; turn: [K, S * E] bool, the rows that act."""

    act: StartedAct
    turn: Array


class Actors:
    """Computes the actions of all learners in E environments, and owns their recurrent carries.

    purpose: name of the random streams: "act" in training, "test" in tests (these streams restart here).
    carries: of each learner, arrays [K, S * E, ...] in a dict or a tuple; None without, and before the first act.
    numbers: of each learner, [K, S * E] int64, the players of its rows as numbers in its agents' identity; -1 without.
    cast: the members that play, where a set of policies holds a seat.
    """

    def __init__(
        self, spec: EnvSpec, learners: Sequence[LearnerSeats], num_envs: int, purpose: str, cast: Cast | None = None
    ) -> None:
        """Allocate the arrays of actions; cast: None: that of a single match."""
        self.spec, self.learners, self.num_envs = spec, learners, num_envs
        self._training = purpose == "act"
        self.actions = empty_actions(spec, num_envs)
        self.rngs = [seated.learner.rngs(purpose) for seated in learners]
        self.carries: list[Any] = [None] * len(learners)
        self.cast = Cast(spec, learners, num_envs) if cast is None else cast
        self._see([seated.rows for seated in learners])
        self.explore(np.zeros(len(spec.players), bool))

    def explore(self, mask: Array) -> None:
        """Set the players that explore, [P] bool."""
        self.exploring = []
        for seated in self.learners:
            seats = mask[seated.players] & ~seated.frozen[:, None]
            self.exploring.append(np.repeat(seats, self.num_envs, 1))

    def rotate(self, tables: Sequence[Array]) -> None:
        """Set the seats of each learner's agents in each environment: [K, S, E] rows of their group (tests only)."""
        self._see(tables)

    def _see(self, tables: Sequence[Array]) -> None:
        self.views, self.numbers = [_View(table, self.num_envs) for table in tables], []
        for seated, view in zip(self.learners, self.views, strict=True):
            names = [self.spec.names[player] for player in self.spec.groups[seated.group].players]
            own = numbers_of(seated.agents[0].identity, names)
            self.numbers.append(view.take(np.repeat(own[:, None], self.num_envs, 1)))

    def decide(self, step: Step) -> list[Acted]:
        """Write the actions into `actions`; return each learner's decisions, [K, S * E, ...]."""
        return self.finish(self.start(step))

    def start(self, step: Step, noises: Sequence[Noises] | None = None) -> list[Begun]:
        """Start the decisions of all learners; on a GPU, they may be under way when this returns.

        The observations, turns and ends of `step` must stay until `finish`.
        noises: each learner's noise [K, S * E, ...], for learners that draw it ahead; None: it is drawn now.
        """
        return [self._begun(i, step, None if noises is None else noises[i]) for i in range(len(self.learners))]

    def finish(self, begun: Sequence[Begun]) -> list[Acted]:
        """Wait for the decisions that were started, and write the actions into `actions`; return the decisions."""
        decided = []
        for i, (seated, view, (act, turn)) in enumerate(zip(self.learners, self.views, begun, strict=True)):
            acted = act.result()
            actor = seated.learner.actor
            if self._training and actor is not None and actor.counts.size:
                actor.count(acted.action, turn & self.exploring[i])
            self.carries[i] = None if acted.carry is None else moved(acted.carry, self.carries[i], turn)
            view.put(self.actions[seated.group], acted.action)
            decided.append(acted)
        return decided

    def _begun(self, i: int, step: Step, noise: Noises | None) -> Begun:
        """Start the decisions of learner i."""
        seated, view, rngs = self.learners[i], self.views[i], self.rngs[i]
        legal, turn, learner = step.legal[seated.group], view.take(step.turn[seated.group]), seated.learner
        member = self.cast.of(seated.agents[0], view.seats) if self.cast.sets else None
        inputs = ActInputs(
            self._observed(i, step), None if legal is None else view.take(legal), self.exploring[i],
            self.carry(i, step), training=self._training, member=member,
        )  # fmt: skip
        if noise is not None and learner.actor is not None:
            return Begun(learner.actor.start_with(inputs, noise, rngs[0]), turn)
        if isinstance(learner, AlgorithmLearner):
            return Begun(learner.actor.start(inputs, rngs), turn)
        return Begun(StartedAct(learner.act(inputs, turn=turn, rngs=rngs)), turn)

    def _observed(self, i: int, step: Step) -> Obs:
        """Return the observations of learner i, [K, S * E, *O], with the players' one-hots if its agents have them."""
        seated, view = self.learners[i], self.views[i]
        obs, identity = map_tree(view.take, step.obs[seated.group]), seated.agents[0].identity
        if not identity:
            return obs
        return identified(self.spec.groups[seated.group].layout, obs, self.numbers[i], len(identity))

    def state(self) -> State:
        """Return the recurrent carries, and the members that play."""
        result = State.joined(**({"cast": self.cast.state()} if self.cast.sets else {}))
        result.info["carries"] = []
        for i, carry in enumerate(self.carries):
            result.info["carries"].append(described(carry, f"{i}", result.arrays))
        return result

    def restore(self, state: State) -> None:
        """Restore what `state` returned; raises SaveError if learners, names, dtypes or shapes differ."""
        if self.cast.sets:
            self.cast.restore(state.part("cast"))
        data = state.value("carries", list)
        if len(data) != len(self.carries):
            raise SaveError(f"{len(self.carries)} learners act here, and {len(data)} did when it was written")
        self.carries = []
        for carry, view, seated in zip(data, self.views, self.learners, strict=True):
            rows, actor = (view.agents, view.seats * self.num_envs), seated.learner.actor
            self.carries.append(rebuilt(carry, state, rows, None if actor is None else actor.carried))

    def carry(self, i: int, step: Step) -> Any:
        """Return the carry with which learner i decides; it is zero for seats whose player or episode just ended."""
        if self.carries[i] is not None:
            players = list(self.spec.groups[self.learners[i].group].players)
            over = self.views[i].take((step.terminated | step.truncated)[players] | step.ended)
            self.carries[i] = zeroed(self.carries[i], over)
        return self.carries[i]


class _View:
    """Converts [P, E, ...] arrays of a group to [K, S * E, ...] and back; without a copy if seats are in order."""

    def __init__(self, where: Array, num_envs: int) -> None:
        """Take the seats; where: rows of the group, [K, S], or [K, S, E] if they differ between environments."""
        self.agents, self.seats = where.shape[:2]
        flat = where.reshape(self.agents * self.seats, -1)
        first = int(flat[0, 0])
        in_order = flat.shape[1] == 1 and np.array_equal(flat[:, 0], first + np.arange(len(flat)))
        self.index: Any = (
            slice(first, first + len(flat)) if in_order
            else (flat, np.arange(num_envs)[None, :])
        )  # fmt: skip

    def take(self, array: Array) -> Array:
        """Return an array [P, E, ...] of the group as [K, S * E, ...]."""
        picked: Array = array[self.index]
        if self.seats == 1:  # the shapes are the same
            return picked
        return picked.reshape(self.agents, self.seats * array.shape[1], *array.shape[2:])

    def put(self, into: Array, values: Array) -> None:
        """Write values [K, S * E, ...] into an array [P, E, ...]."""
        if self.seats > 1:
            values = values.reshape(self.agents * self.seats, into.shape[1], *into.shape[2:])
        into[self.index] = values


Extras = dict[int, dict[str, Array]]
"""Group -> name -> an extra output of acts, [P, E, ...]."""


class Recorder:
    """Computes the actions of a batch step in training and records them in the streams."""

    def __init__(self, actors: Actors, streams: Streams, extras: Extras | None = None) -> None:
        """Take the arrays of the extra outputs of acts that the streams record, for each group; None: allocate them."""
        self.actors, self.streams = actors, streams
        self._who = [seated.who for seated in actors.learners]
        self.extras: Extras = {} if extras is None else extras
        for g, ring in streams.rings.items() if extras is None else ():
            self.extras[g] = {
                name: np.zeros((column.shape[0], *column.shape[2:]), column.dtype)
                for name, column in ring.extras.items()
            }

    def act(self, step: Step) -> None:
        """Compute actions and extras."""
        self.finish(self.actors.start(step))

    def finish(self, begun: Sequence[Begun]) -> None:
        """Write the actions and extras of decisions that were started."""
        actors = self.actors
        for seated, who, view, acted in zip(
            actors.learners, self._who, actors.views, actors.finish(begun), strict=True
        ):
            kept = self.extras.get(seated.group, {})
            needs = seated.learner.needs
            check_extras(who, () if needs is None else needs.columns, acted)
            for name, values in acted.extras.items():
                if name in kept:
                    view.put(kept[name], values)

    def record_actions(self) -> None:
        """Record the decisions of all environments in the streams."""
        for group in self.extras:
            self.streams.record_actions(group, self.actors.actions[group], self.extras[group])


def check_extras(who: str, needed: Iterable[str], acted: Acted) -> None:
    """Raise AgentError if an act lacks an output that the learner of the agent of `who` needs."""
    if missing := [name for name in needed if name not in acted.extras]:
        raise AgentError(
            f"the agent of {who} needs {', '.join(sorted(missing))} from its act, in addition to "
            f"the action; the act returned {', '.join(sorted(acted.extras)) or 'none of them'}"
        )


class Collected(NamedTuple):
    """Result of a collector call.

    step: the last Step.  steps: number of batch steps.
    recorded: whether the streams and the returns of the episodes already contain `step`; they contain earlier Steps.
    updates: iterates over the schedulers whose updates compiled code made between the batch steps; it counts the
    updates of each.
    ended: the episodes that ended in the recorded Steps; None if only `step` may have ended episodes.
    """

    step: Step
    steps: int
    recorded: bool = False
    updates: Iterable[UpdateMetrics] = ()
    ended: EndedEpisodes | None = None


class NotRepeatedError(WorkerError):
    """Environments that were to repeat steps, and did not."""


class Collector(Protocol):
    """Makes batch steps: agents act, the streams record the actions, the environments step."""

    def advance(self, step: Step, most: int, episodes: int) -> Collected:
        """Act on a Step and make at least one and at most `most` batch steps.

        It makes no further one after a batch step with which at least `episodes` have ended.
        """

    def settle(self) -> None:
        """Bring environments, generators and carries to the Step that was returned last, if they are ahead of it.

        Raises NotRepeatedError for environments that must repeat steps for this, and do not.
        """

    def close(self) -> None:
        """End the threads of the collector at the end of a run; a later `advance` starts new ones."""


class SyncCollector:
    """Makes one batch step at a time, for any environment; see `Collector`."""

    def __init__(self, envs: VectorEnv, recorder: Recorder) -> None:
        """Store the environments and the recorder."""
        self.envs, self.recorder = envs, recorder

    def advance(self, step: Step, most: int, episodes: int) -> Collected:
        """Make one batch step."""
        self.recorder.act(step)
        self.recorder.record_actions()
        self.envs.send(self.recorder.actors.actions)
        return Collected(self.envs.recv(), 1)

    def settle(self) -> None:
        """Nothing is ahead."""

    def close(self) -> None:
        """There are no threads."""
