"""What the driver and the runners send each other."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cloudpickle
import numpy as np

from marltrain.core.errors import ConfigError
from marltrain.core.layout import Array
from marltrain.envs.rotation import Rotation
from marltrain.envs.workers.worker import WorkerFailure
from marltrain.policies.agents.agent import Agent
from marltrain.policies.interface.algorithm import Algorithm
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.policies.memory.ring_part import RingPart
from marltrain.trainer.cluster.initial_priorities import NewErrors, RatingTask
from marltrain.trainer.seats.seats import LearnerSeats


def packed(algorithm: Algorithm, who: str) -> bytes:
    """Return the class of an algorithm, its settings, layout and action space, pickled by cloudpickle.

    who: the agents in messages.  Raises ConfigError if that fails.
    """
    try:
        return bytes(cloudpickle.dumps((type(algorithm), algorithm.settings, algorithm.layout, algorithm.action_space)))
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"the agent of {who}: {algorithm.name}'s class and settings cannot be sent to Ray actors: {error}"
        ) from error


def unpacked(made_of: bytes) -> Any:
    """Return the algorithm that `packed` packed; trusted, because the bytes come from the driver."""
    kind, *arguments = cloudpickle.loads(made_of)
    return kind(*arguments)


@dataclass(frozen=True)
class ActingTask:
    """One learner and its seats, as a runner needs them to act.

    made_of: the algorithm, see `packed`.
    backend: name of its framework.  num_agents: K.  group, players, rows, frozen: see `LearnerSeats`.
    identity: see `Agent`.  who: the agents in messages.  needed: the outputs of acts that the learner needs.
    follows: of a set of policies, the number among the sets of `Cast` of the one whose draws it follows; -1: a learner.
      A set has no algorithm of its own.
    """

    made_of: bytes
    backend: str
    num_agents: int
    group: int
    players: Array
    rows: Array
    frozen: Array
    names: tuple[str, ...]
    identity: tuple[str, ...]
    who: str
    needed: tuple[str, ...]
    follows: int = -1

    @classmethod
    def of(cls, seated: LearnerSeats, follows: int = -1) -> ActingTask:
        """Return the task of a learner or a set; raises ConfigError for one that runners cannot hold."""
        learner = seated.learner
        if follows >= 0:
            return cls(
                b"", "", 1, seated.group, seated.players, seated.rows, seated.frozen, seated.names, (), seated.who, (),
                follows,
            )  # fmt: skip
        if not isinstance(learner, AlgorithmLearner) or not can_act_elsewhere(seated):
            raise ConfigError(
                "runners act with agents of marltrain's own algorithms over NetworkSpecs; the agent of "
                f"{seated.who} is of another kind. Leave runners out"
            )
        return cls(
            packed(learner.algorithm, seated.who), learner.backend.name, learner.num_agents, seated.group,
            seated.players, seated.rows, seated.frozen, seated.names, tuple(seated.agents[0].identity), seated.who,
            () if learner.needs is None else tuple(learner.needs.columns),
        )  # fmt: skip

    def algorithm(self) -> Any:
        """Return the algorithm."""
        return unpacked(self.made_of)


def can_act_elsewhere(seated: LearnerSeats) -> bool:
    """Return whether actors can act with a learner: its algorithm is sent to them, its networks are NetworkSpecs."""
    return isinstance(seated.learner, AlgorithmLearner) and not seated.learner.weights.custom


@dataclass(frozen=True)
class ActingTasks:
    """All learners of a run.  extras: group -> name -> the recorded outputs of acts, (shape [P, E, ...], dtype).

    sets: number of sets of policies that draw members.
    rating: for runners that compute first priorities; None: they compute none.
    rotation: how entries of the line-up change seats; None: they keep them.
    matches: names of those among which the environments are divided; () without.
    """

    tasks: tuple[ActingTask, ...]
    extras: Mapping[int, Mapping[str, tuple[tuple[int, ...], Any]]]
    sets: int = 0
    rating: RatingTask | None = None
    rotation: Rotation | None = None
    matches: tuple[str, ...] = ()


@dataclass(frozen=True)
class PartTask:
    """Members of a set that are computed together, as they are sent to a runner.

    made_of: the algorithm, see `packed`; of a member that is computed alone the agent, pickled by cloudpickle.
    backend: name of the algorithm's framework; "" of a member that is computed alone.
    learner, row: of an agent as it is at present, the number of its learner and its row in it; else -1.
    """

    made_of: bytes
    backend: str = ""
    learner: int = -1
    row: int = -1

    def algorithm(self) -> Any:
        """Return the algorithm."""
        return unpacked(self.made_of)

    def agent(self) -> Agent:
        """Return the agent; trusted, because the bytes come from the driver."""
        agent: Agent = cloudpickle.loads(self.made_of)
        return agent


@dataclass(frozen=True)
class MembersNews:
    """Changes of the members of a set since the last order to a runner.

    parts: by name, those that are new.  rows: of each part, the rows by the numbers of members.
    sizes: of stacks.  arrived: of each stack, row -> the state of a new member, see `FrozenStack.export`.
    """

    parts: Mapping[str, PartTask]
    rows: Mapping[str, Mapping[int, int]]
    sizes: Mapping[str, int]
    arrived: Mapping[str, Mapping[int, tuple[dict[str, Any], dict[str, Array]]]]


@dataclass(frozen=True)
class Acting:
    """The state with which a learner acts.

    nets: name -> weights of its networks.  statistics: name -> key -> running statistics.
    hyper: name -> [K] float64.  counts: [K, A] int64, see `Actor`.
    """

    nets: Mapping[str, Array]
    statistics: Mapping[str, Mapping[str, Array]]
    hyper: Mapping[str, Array]
    counts: Array

    @classmethod
    def now(cls, learner: AlgorithmLearner) -> Acting:
        """Return copies of the present state; with overlapping updates, of the acting copies."""
        nets = {name: learner.actor.nets[name] for name in learner.weights.online}
        statistics = learner.copies.statistics or learner.weights.statistics
        return cls(
            {name: np.array(learner.backend.numpy(net.flat)) for name, net in nets.items()},
            {name: {key: value.copy() for key, value in kept.values().items()} for name, kept in statistics.items()},
            {name: values.copy() for name, values in learner.hyper.values.items()},
            learner.actor.counts.copy(),
        )


@dataclass(frozen=True)
class Start:
    """The start of a fragment, for one runner.

    rngs: of each learner its generators, see `generators`.  carries: of each learner arrays [K, S, n, ...], or None.
    outcome: the columns of the present Step (see `Block`) if they have changed, else None.
    rows: group -> the rows that are not rated yet, for runners that compute first priorities.
    """

    rngs: tuple[Any, ...]
    carries: tuple[Any, ...]
    outcome: Array | None
    rows: Mapping[int, RingPart]


@dataclass(frozen=True)
class Request:
    """An order to collect a fragment, for one runner.

    steps: T batch steps.  explore: of each learner [K, S, n] bool.
    start: where the fragment starts; None: at the end of the one that was ordered before it.
    acting_tasks: the learners, for a runner that does not hold them.
    learning: group -> the players that learn, [P] bool, for runners that compute first priorities.
    begun: [T, sets, n] int64, members of the episodes that begin with the Step before each act, of each set of `Cast`;
      if there is a start, row 0 has those of all running episodes.
    members: number of a set among the learners -> members that the runner does not hold yet.
    """

    steps: int
    explore: tuple[Array, ...]
    start: Start | None
    acting_tasks: ActingTasks | None
    learning: Mapping[int, Array]
    begun: Array
    members: Mapping[int, MembersNews]


@dataclass(frozen=True)
class Fragment:
    """The T batch steps of one runner.

    outcomes, actions: [T, bytes] uint8, pieces of a `Block`.  extras: group -> name -> [T, P, n, ...].
    reports: batch step -> `Report.to_bytes`, where there was anything to report.
    carries, counts, rngs: of each learner, after the last act.  snapshot: of the environments after the last step.
    seconds: of acting and stepping.
    errors: number of a learner -> errors of the rows whose outcome became known, if runners compute first priorities.
    failure: an error that ended the fragment, of the agents or of the environments; everything else is then empty.
    """

    outcomes: Array
    actions: Array
    extras: Mapping[int, Mapping[str, Array]]
    reports: Mapping[int, bytes]
    carries: tuple[Any, ...]
    counts: tuple[Array, ...]
    rngs: tuple[Any, ...]
    snapshot: Mapping[str, Array]
    seconds: float
    errors: Mapping[int, NewErrors]
    failure: WorkerFailure | None = None
    of_agents: bool = False

    @classmethod
    def failed(cls, failure: WorkerFailure, *, of_agents: bool) -> Fragment:
        """Return the empty fragment of an error."""
        nothing = np.empty((0, 0), np.uint8)
        return cls(nothing, nothing, {}, {}, (), (), (), {}, 0.0, {}, failure, of_agents)


def size_of(value: Any) -> int:
    """Return the bytes of all arrays and byte strings in a message."""
    if isinstance(value, np.ndarray):
        return int(value.nbytes)
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, Mapping):
        return sum(map(size_of, value.values()))
    if isinstance(value, tuple | list):
        return sum(map(size_of, value))
    return sum(map(size_of, vars(value).values())) if hasattr(value, "__dataclass_fields__") else 0
