"""Elastic runners: a run goes on with fewer runners after a loss, and with more once others have started.

Whenever their number changes, all environments are divided among the runners anew. Results stay the same: seeds and
random numbers belong to environments, see `ActingLearner`.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from marltrain.core.errors import ConfigError, WorkerError
from marltrain.core.layout import Array
from marltrain.envs.faults import DIED, WINDOW, Fault
from marltrain.envs.workers.pool import STARTING, Loss
from marltrain.envs.workers.ray_pool import RayPool
from marltrain.envs.workers.shared import Block, Shared
from marltrain.envs.workers.vector import shares
from marltrain.envs.workers.worker import RESTORE, STARTED, Task
from marltrain.processes.ray_actors import Actor, ActorError
from marltrain.storage.files import pack_arrays
from marltrain.trainer.cluster.runners import RunnerPool, RunnerVectorEnv

LOGGER = logging.getLogger("marltrain")
LOOKING = 1.0
"""Minimum seconds between two looks for runners that have started."""
PATIENCE = 0.2
"""Seconds of one wait for a runner that a run cannot go on without."""
ANSWERED = 5.0
"""Seconds in which an answer that is ready is read."""


class ElasticPool(RunnerPool):
    """Runners whose number changes.  waiting: actors without environments; they run, or do not run yet."""

    def __init__(self, least: int, tasks: Sequence[Task], shared: Shared, *arguments: Any) -> None:
        """Start with those runners that start within the timeout; see RayPool.

        least: of them, else others are waited for. Raises WorkerError if none starts.
        """
        self.waiting: list[Actor] = []
        self._least, self._shared = least, shared
        super().__init__(tasks, shared, *arguments)

    @property
    def actors(self) -> list[Actor]:
        """The runners, in the order of their environments."""
        return list(self._actors)

    @property
    def tasks(self) -> list[Task]:
        """The tasks of the runners."""
        return list(self._tasks)

    def start_another(self) -> None:
        """Start an actor; Ray holds it back until a node has its resources."""
        actor = Actor(self._cluster, self._served, self._resources, "another runner")
        actor.call("about")
        self.waiting.append(actor)

    @property
    def running(self) -> list[Actor]:
        """The waiting actors that run."""
        return [actor for actor in self.waiting if actor.node]

    def look(self, patience: float = 0.0) -> list[ActorError | ConfigError]:
        """Find out which of the waiting actors run; return the errors of those that cannot, which wait no longer.

        patience: seconds in which one may start.
        """
        errors: list[ActorError | ConfigError] = []
        starting = [actor for actor in self.waiting if not actor.node]
        if starting:
            starting[0].ready(patience)
        for actor in starting:
            if actor.ready(0.0):
                try:
                    actor.confirm(ANSWERED)
                except (ActorError, ConfigError) as error:
                    self.waiting.remove(actor)
                    errors.append(error)
        return errors

    def divide(self, actors: Sequence[Actor], snapshot: bytes, timeout: float) -> list[bytes | Loss]:
        """Divide the environments among actors, and bring them to a snapshot.

        Actors execute the orders that they have before. Returns the answers to the snapshot if no actor was lost, else
        the losses.  timeout: seconds for orders under way and the snapshot.
        """
        self._give(actors)
        until = time.monotonic() + timeout + STARTING
        built = [self._built(w, max(until - time.monotonic(), 0.0)) for w in self._all]
        if losses := [answer for answer in built if isinstance(answer, Loss)]:
            return [*losses]
        self.order(RESTORE, snapshot)
        return self.wait(timeout=timeout)

    def too_few(self, why: str, left: int, wanted: int) -> WorkerError:
        """Close all runners; return the error of a run with fewer runners than it needs.  why: "", or a sentence."""
        self.close()
        return WorkerError(
            f"{why}{left} of {wanted} runners are there (min_runners={self._least}), and no other one started within "
            f"{self.starting:g} s: it needs {self.needs}, which no node seems to have now. Start a node that has them, "
            "free them, or lower min_runners"
        )

    def close(self) -> None:
        """See WorkerPool."""
        for actor in self.waiting:
            actor.kill()
        self.waiting.clear()
        super().close()

    def _open(self) -> None:
        """Start the runners, and build the environments in those that have started."""
        try:
            for _ in self._all:
                self.start_another()
            self._give(self._first())
            for answer in self._answers(self._starting):
                if isinstance(answer, Loss):
                    raise self.error(answer)
        except BaseException:
            self.close()
            raise

    def _first(self) -> list[Actor]:
        """Return the runners that have started once all have, or after the timeout."""
        begun, wanted = time.monotonic(), len(self.waiting)
        while (count := len(self.running)) < wanted:
            waited = time.monotonic() - begun
            if waited > self.starting:
                raise self.too_few("", count, wanted)
            if waited > self.starting - STARTING and count >= self._least:
                LOGGER.warning("%d of %d runners have started; the others join later", count, wanted)
                break
            for error in self.look(PATIENCE):
                raise error if isinstance(error, ConfigError) else WorkerError(str(error)) from error
        return self.running

    def _give(self, actors: Sequence[Actor]) -> None:
        """Let actors build their shares of the environments."""
        cuts = list(itertools.pairwise(shares(self._tasks[0].num_envs, len(actors))))
        self._tasks = [
            replace(self._tasks[0], low=low, high=high, number=w, num_workers=len(cuts))
            for w, (low, high) in enumerate(cuts)
        ]
        self._actors[:] = actors
        self.waiting = [actor for actor in self.waiting if actor not in actors]
        self._all = range(len(cuts))
        self._columns = [self._shared.part(task.low, task.high, w) for w, task in enumerate(self._tasks)]
        self._blocks = [Block.empty(task.spec, task.high - task.low) for task in self._tasks]
        self._changed, self._confirmed = [True for _ in cuts], [True for _ in cuts]
        self.lacking = set(self._all)
        self._number += 1
        self._numbers = [STARTED for _ in cuts]
        for w, (actor, task) in enumerate(zip(actors, self._tasks, strict=True)):
            actor.name = f"{self._held_by(w)}, on node {actor.node}"
            actor.call("start", task.to_bytes())


class ElasticVectorEnv(RunnerVectorEnv):
    """Environments in runners that may become fewer, and more again.

    A lost runner's environments go to the others at once, while another actor is started. It joins at the end of a
    fragment. After more than `max_env_restarts` losses no actor is started until the first of them are long ago.
    """

    _pool: ElasticPool

    def __init__(self, source: Any, num_envs: int, *, least: int, num_workers: int, **arguments: Any) -> None:
        """Start `num_workers` runners, see `RayVectorEnv`.  least: the number that the run cannot go on without."""
        self._least = least
        super().__init__(source, num_envs, num_workers=num_workers, **arguments)
        if not self.spec.reproducible:
            self.close()
            raise ConfigError(
                f"min_runners={least}: {self.source.name} is not reproducible, so that its episodes cannot go on in "
                "other runners. Leave min_runners out"
            )
        self._tasks = self._pool.tasks
        self._wanted, self._look_at = num_workers, 0.0

    def joining(self) -> bool:
        """See `RunnerVectorEnv`; looks at most once a second, and starts the runners that are missing."""
        now = time.monotonic()
        if now < self._look_at or len(self._tasks) == self._wanted:
            return False
        self._look_at = now + LOOKING
        if not self._fault_log.full(self._env_steps):
            for _ in range(self._wanted - len(self._tasks) - len(self._pool.waiting)):
                self._pool.start_another()
        self._look(len(self._tasks))
        return bool(self._pool.running)

    def recover(
        self, losses: Sequence[Loss], snapshot: Mapping[str, Array], kept: Mapping[str, Array], timeout: float
    ) -> bool:
        """Divide the environments among the other runners and those that have started; see `RunnerVectorEnv`."""
        data = pack_arrays(snapshot)
        while True:
            actors = self._remaining(losses)
            self.put_back(kept)
            answers = self._pool.divide(actors, data, timeout)
            self._tasks = self._pool.tasks
            losses = [answer for answer in answers if isinstance(answer, Loss)]
            if not losses:
                break
        for answer in answers:
            if not isinstance(answer, Loss):
                self._check_restored_all(answer)
        self.put_back(kept)
        return True

    def _made_pool(self, *arguments: Any) -> RayPool:
        return ElasticPool(self._least, *arguments)

    def _remaining(self, losses: Sequence[Loss]) -> list[Actor]:
        """Return the runners with which the run goes on; waits if they are too few.

        Raises WorkerError if no other one starts, EnvError if too many were lost.
        """
        lost = {loss.worker for loss in losses}
        actors = [actor for w, actor in enumerate(self._pool.actors) if w not in lost]
        for loss in losses:
            self._note(loss.kind, loss.description, len(actors))
        self._look(len(actors))
        until = time.monotonic() + self._pool.starting
        while len(actors) + len(joining := self._pool.running) < self._least:
            if time.monotonic() > until:
                raise self._pool.too_few(f"{losses[-1].description}. ", len(actors), self._wanted)
            if not self._pool.waiting:
                self._pool.start_another()
            self._look(len(actors), PATIENCE)
        for actor in joining:
            LOGGER.warning("%s, has started: %d of %d runners collect", actor.name, len(actors) + 1, self._wanted)
            actors.append(actor)
        return actors

    def _look(self, left: int, patience: float = 0.0) -> None:
        """Look which actors have started; note those that could not.  left: runners without them."""
        for error in self._pool.look(patience):
            self._note(DIED, str(error), left)

    def _note(self, kind: str, description: str, left: int) -> None:
        """Report a lost runner, and start another one; raises EnvError if too many were lost.

        left: number of the others.
        """
        used_up = self._fault_log.full(self._env_steps)
        follows = f"The run goes on with {left} of {self._wanted} runners"
        if left < self._least:
            follows = f"{left} of {self._wanted} runners are left, and the run waits for min_runners={self._least}"
        elif used_up:
            follows += (
                f". max_env_restarts={self._fault_policy.max_env_restarts} within {WINDOW:,} env steps are used up: no "
                "other one is started for now"
            )
        fault = Fault(kind, -1, -1, -1, -1, f"{description}. {follows}")
        self.on_faults([fault])
        if used_up and left >= self._least:
            LOGGER.warning("%s", fault.message)
            return
        self._fault_log.add([fault], self._env_steps)
        self._pool.start_another()
