"""Learner actors as the driver sees them: calls, lost actors, and the shares of agents that each of them holds."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from marltrain.core.errors import AgentError, WorkerError
from marltrain.envs.faults import DIED, TIMEOUT, Fault, FaultLog, FaultPolicy
from marltrain.envs.workers.pool import STARTING
from marltrain.policies.learner.learner_snapshot import Trained
from marltrain.processes.children import here_only
from marltrain.processes.ray_actors import Actor, ActorError, Cluster, end_actors
from marltrain.trainer.cluster.learner_actor import LearnerActor
from marltrain.trainer.cluster.learner_messages import LearningTask, UpdateAnswer, UpdateOrder
from marltrain.trainer.cluster.messages import size_of
from marltrain.trainer.events.counters import Traffic

SLOWER = 10.0
"""How many times as long as the last update of a share took, the next may take."""
UPDATE = "update"
LOSSES = 3
"""Losses of an actor in a row, without an answer in between, that end the run."""


class LearnerActors:
    """Ray actors in which agents learn. `Share.call` sends orders to them.

    report: called with each fault.  traffic: counts the bytes of arrays.  clock: env steps of the run, for faults.
    lost: whether an actor was lost and not replaced.  leaving: returns whether the run is to end at once.
    """

    def __init__(
        self, number: int, cluster: Cluster, resources: Mapping[str, float] | None, timeout: float, policy: FaultPolicy
    ) -> None:
        """Start the actors; `hold` gives them their learners.

        resources: see `Actor`.  timeout: seconds that an actor may take to answer, in addition to `SLOWER` times what
          the ordered updates took the last time, and 60 s before its first update.
        policy: of it, `on_fault="raise"` and `max_env_restarts`.
        """
        self._cluster, self._resources, self._timeout, self._policy = cluster, resources, timeout, policy
        self._log, self.clock, self.lost = FaultLog(policy), 0, False
        self.report: Callable[[Sequence[Fault]], object] = list
        self.leaving: Callable[[], bool] = bool
        self.traffic = Traffic()
        self._shares: list[list[Share]] = [[] for _ in range(number)]
        self._actors: list[Actor] = []
        self._losses = [0] * number  # of each actor, since its last answer
        self.close = weakref.finalize(self, here_only(end_actors), self._actors, cluster)
        for a in range(number):
            self._actors.append(self._started(a))

    def hold(self, tasks: Sequence[tuple[int, LearningTask, slice, str]]) -> list[Share]:
        """Build the learners of shares at the same time.

        tasks: of each share the number of the actor, the task, the agents among those of the learner, and their names.

        Raises AgentError if one cannot be built, and WorkerError if an actor is lost meanwhile.
        """
        result = []
        for a, task, rows, names in tasks:
            result.append(Share(self, a, sum(map(len, self._shares)), task, rows, names))
            self._shares[a].append(result[-1])
        try:
            for a in sorted({a for a, *_ in tasks}):
                self._actors[a].confirm(self._timeout + STARTING)
            sent = [(share, share.send("hold", share.task)) for share in result]
            for share, call in sent:
                self.value(share.actor, call, STARTING)
        except ActorError as lost:
            needs = f". It needs {self._needs}: start a node that has them, or free them" if lost.hung else ""
            raise WorkerError(f"{lost}; learners could not be built there{needs}") from lost
        return result

    def send(self, a: int, method: str, share: int, *arguments: Any) -> Any:
        """Start a call of a method of `LearnerActor`; return its reference."""
        self.traffic.to_learners += size_of(arguments)
        return self._actors[a].call("serve", method, share, *arguments)

    def value(self, a: int, call: Any, extra: float = 0.0) -> Any:
        """Wait for the result of a call; raises ActorError if the actor is lost, AgentError for an error in it.

        extra: seconds that it may take in addition.
        """
        failure, result = self._actors[a].result(self._limit(a) + extra, call)
        if failure is not None:
            message, traceback = failure
            raise AgentError(f"{message}\n\nThe traceback of learner actor {a}:\n{traceback}")
        self.traffic.from_learners += size_of(result)
        return result

    @property
    def given_up(self) -> bool:
        """Whether actors are no longer waited for: one was lost and not replaced, or the run is to end at once."""
        return self.lost or self.leaving()

    def answered(self, a: int) -> None:
        """Note that an actor has done what it was asked for."""
        self._losses[a] = 0

    def replace(self, a: int, lost: ActorError) -> None:
        """Start another actor in place of a lost one, and bring its shares to where they were.

        Raises WorkerError with on_fault="raise", without Ray, if no other actor starts, and after `LOSSES` in a row;
        EnvError if too many were lost.
        """
        if self.lost:
            raise WorkerError(f"{lost}; it is not replaced, because another loss has ended the run") from lost
        error: ActorError | None = lost
        self.lost = True
        while error is not None:
            self._note(a, error)
            try:
                self._restart(a, error)
                for share in self._shares[a]:
                    share.restore()
                error = None
            except ActorError as again:
                error = again
        self.lost = False

    def _restart(self, a: int, lost: ActorError) -> None:
        """Start another actor; raises WorkerError if it does not start within its limit."""
        limit = self._timeout + STARTING
        self._actors[a] = self._started(a)
        try:
            self._actors[a].confirm(limit)
        except ActorError as error:
            if not error.hung:
                raise
            raise WorkerError(
                f"{lost}. Another actor in its place did not start within {limit:g} s: it needs {self._needs}, which "
                "no node seems to have now. Start a node that has them, free them, or change learner_resources"
            ) from error

    @property
    def _needs(self) -> str:
        """What an actor needs to start, in words."""
        return "one free CPU" if self._resources is None else f"learner_resources={dict(self._resources)}"

    def _started(self, a: int) -> Actor:
        return Actor(self._cluster, LearnerActor, self._resources, f"learner actor {a}")

    def _limit(self, a: int) -> float:
        """Return the seconds that the calls of an actor may take."""
        at_work = [share for share in self._shares[a] if share.waiting]
        first = STARTING if any(share.fresh for share in at_work) else 0.0  # code is compiled
        return self._timeout + first + SLOWER * sum(share.seconds * share.waiting for share in at_work)

    def _note(self, a: int, lost: ActorError) -> None:
        """Report a lost actor; raises an error if that is not survived."""
        if not self._cluster.ray.is_initialized():
            raise WorkerError(f"{lost}. Call ray.shutdown() after the run only") from lost
        if self._policy.on_fault == "raise":
            raise WorkerError(
                f"{lost}. {self._remedy(lost)}, or leave on_fault out: lost actors are replaced"
            ) from lost
        hint = " (timeout; raise it if an update takes longer)" if lost.hung else ""
        fault = Fault(
            TIMEOUT if lost.hung else DIED, -1, -1, -1, -1,
            f"{lost}{hint}. Its agents go on from their last state, and the updates since are made again",
        )  # fmt: skip
        self.report([fault])
        self._log.add([fault], self.clock)
        self._losses[a] += 1
        if self._losses[a] == LOSSES:
            names = ", ".join(share.names for share in self._shares[a])
            raise WorkerError(
                f"learner actor {a}, which holds {names}, was lost {LOSSES} times in a row without an answer in "
                f"between. The last time: {lost}. {self._remedy(lost)}"
            ) from lost

    def _remedy(self, lost: ActorError) -> str:
        if lost.hung:
            return f"If an update takes longer, raise timeout (now {self._timeout:g} s)"
        return 'If it ran out of memory, use more learners, smaller batches, or learner_resources={"memory": bytes}'


class Share:
    """Some agents of a learner, or a team, in an actor. It keeps what brings them back if the actor is lost.

    actor: the number of the actor.  rows: the agents among those of the learner.  names: of the agents.
    confirmed: the last state that the driver has.  seconds: that the last update took.
    waiting: updates ordered since the last answer.  fresh: whether its actor has made no update yet.
    """

    def __init__(
        self, actors: LearnerActors, actor: int, number: int, task: LearningTask, rows: slice, names: str
    ) -> None:
        """Store the task; `load` sets a state.  number: of the share, among all."""
        self.actor, self.task, self.rows, self.names = actor, task, rows, names
        self.seconds, self.waiting, self.fresh = 0.0, 0, True
        self._actors, self._number = actors, number
        self.confirmed: Trained | None = None
        self._log: list[UpdateOrder] = []  # the updates since
        self._log_size = self._state_size = 0  # bytes
        self._open: tuple[Any, ...] = ()  # the call that is under way
        self._call: Any = None

    def send(self, method: str, *arguments: Any) -> Any:
        """Start a call and return its reference, without keeping it."""
        self.waiting += method == UPDATE
        return self._actors.send(self.actor, method, self._number, *arguments)

    def load(self, state: Trained) -> None:
        """Set the state of the agents."""
        self._confirm(state)
        self.call("load", state)
        self.result()

    def call(self, method: str, *arguments: Any) -> None:
        """Start a call; `result` waits for it."""
        if method == UPDATE:
            self._log += arguments
            self._log_size += size_of(arguments)
        self._open, self._call = (method, *arguments), self.send(method, *arguments)

    def result(self) -> Any:
        """Return the result of the last call; a lost actor is replaced."""
        while True:
            try:
                result = self._actors.value(self.actor, self._call)
                break
            except ActorError as lost:
                self._actors.replace(self.actor, lost)
            except AgentError:
                self._open = ()
                raise
        self._actors.answered(self.actor)
        self._open, self.waiting = (), 0
        if isinstance(result, UpdateAnswer):
            self.seconds, self.fresh = result.seconds, False
        elif isinstance(result, Trained):
            self._confirm(copy.deepcopy(result))  # what Ray gives occupies the object store
        return result

    def finish(self) -> None:
        """Wait for a call that an error has left under way."""
        if self._open:
            self.result()

    def restore(self) -> None:
        """Bring the agents back in a new actor: load the confirmed state, and make the updates since again."""
        self.waiting, self.fresh = 0, True
        self._actors.value(self.actor, self.send("hold", self.task), STARTING)
        if self.confirmed is not None:
            self._actors.value(self.actor, self.send("load", self.confirmed))
        for order in self._log:
            self._call = self.send(UPDATE, order)
        if self._open and self._open[0] != UPDATE:
            self._call = self.send(*self._open)

    @property
    def outgrown(self) -> bool:
        """Whether the kept updates are larger than the state: it is then cheaper to get the state."""
        return self._log_size > self._state_size

    def _confirm(self, state: Trained) -> None:
        self.confirmed, self._state_size = state, size_of(state)
        self._log, self._log_size = [], 0
