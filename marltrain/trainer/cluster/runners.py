"""The environments of all runners, as the driver sees them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from marltrain.core.errors import AgentError, EnvError
from marltrain.core.layout import Array
from marltrain.core.spec import Step
from marltrain.envs.faults import DIED, TIMEOUT, Fault
from marltrain.envs.vector import VectorEnv
from marltrain.envs.workers.pool import STARTING, Loss
from marltrain.envs.workers.ray_pool import RayPool, copy_arrays, copy_outcome
from marltrain.envs.workers.ray_vector import RayVectorEnv
from marltrain.envs.workers.worker import RESTORE
from marltrain.envs.wrapper import VectorEnvWrapper
from marltrain.processes.ray_actors import ActorError
from marltrain.storage.files import pack_arrays
from marltrain.trainer.cluster.messages import Acting, Fragment, Request
from marltrain.trainer.cluster.runner import RunnerActor
from marltrain.trainer.collecting.rollout import NotRepeatedError


class RunnerPool(RayPool):
    """Runners: actors that take orders as those of environments do, and collect fragments.

    lacking: the runners that do not hold the learners yet.
    """

    _kind = "runner"
    _served: ClassVar[type] = RunnerActor

    def __init__(self, tasks: Sequence[Any], *arguments: Any) -> None:
        """See RayPool."""
        self.lacking = set(range(len(tasks)))
        super().__init__(tasks, *arguments)

    def request(self, w: int, request: Request, acting: Any) -> Any:
        """Order a fragment from one runner, which collects it after those ordered before; return the call.

        acting: reference to a list of `Acting`, which all runners share.
        """
        self._check_open()
        call = self._actors[w].call("collect", request, acting)
        self.lacking.discard(w)
        self._changed[w] = False
        return call

    def fragment(self, w: int, call: Any, steps: int, timeout: float) -> Fragment | Loss:
        """Wait for a fragment of one runner; raises EnvError or AgentError for an error in it.

        call: of its order, see `request`.
        """
        try:
            fragment: Fragment = self._actors[w].result(timeout, call)
        except ActorError as lost:
            if lost.hung:
                return Loss(w, TIMEOUT, f"{lost} ({self._limit}; raise it if {steps} batch steps take longer)")
            return Loss(w, DIED, str(lost))
        if fragment.failure is not None:
            message, traceback = fragment.failure
            kind = AgentError if fragment.of_agents else EnvError
            raise kind(f"{message}\n\nThe traceback of {self._kind} {w}:\n{traceback}")
        return fragment

    def put(self, acting: Sequence[Acting | None]) -> Any:
        """Store what all runners read in the object store; return its reference."""
        return self._cluster.ray.put(list(acting))

    def outcome(self, w: int) -> Array | None:
        """Return the columns of runner w as bytes if this process may have changed them, else None."""
        return self.as_bytes(w) if self._changed[w] else None

    @property
    def starting(self) -> float:
        """Seconds that a runner has to start and to build its environments."""
        return self._starting or STARTING

    @property
    def needs(self) -> str:
        """What a runner needs to start, in words."""
        return "one free CPU" if self._resources is None else f"resources={dict(self._resources)}"

    def show(self, w: int, outcome: Array) -> None:
        """Take over the columns after a batch step of runner w."""
        self._blocks[w].outcome[...] = outcome
        copy_outcome(self._blocks[w].arrays, self._columns[w])

    def as_bytes(self, w: int) -> Array:
        """Return the columns of runner w as bytes."""
        copy_outcome(self._columns[w], self._blocks[w].arrays)
        return self._blocks[w].outcome

    def show_actions(self, w: int, actions: Array) -> None:
        """Take over the actions of runner w."""
        self._blocks[w].actions[...] = actions
        copy_arrays(self._blocks[w].arrays.actions, self._columns[w].actions)

    def _start(self, w: int) -> None:
        super()._start(w)
        self.lacking.add(w)


class RunnerVectorEnv(RayVectorEnv):
    """Environments that live in runners. They are stepped by the runners only: see `RunnerCollector`.

    known: the data that leads to the present Step, if it came with a fragment; None: runners are asked for it.
    """

    _pool: RunnerPool
    known: Mapping[str, Array] | None = None

    def __init__(self, source: Any, num_envs: int, *, replaces: bool, **arguments: Any) -> None:
        """Start the runners, see `RayVectorEnv`.  replaces: whether another one takes the place of a lost one."""
        self._replaces = replaces
        super().__init__(source, num_envs, **arguments)

    @property
    def pool(self) -> RunnerPool:
        """The runners."""
        return self._pool

    @property
    def columns(self) -> list[slice]:
        """The environments of each runner."""
        return [slice(task.low, task.high) for task in self._tasks]

    @property
    def actions(self) -> tuple[Array, ...]:
        """The actions of the last batch step, of each group."""
        return self._actions

    def kept(self) -> dict[str, Array]:
        """Return copies of the arrays of the present Step, and of the lengths of its episodes."""
        return {name: array.copy() for name, array in self._shown().items()}

    def put_back(self, kept: Mapping[str, Array]) -> None:
        """Write arrays that `kept` returned back."""
        for name, array in self._shown().items():
            array[...] = kept[name]

    def shown(self, outcomes: Sequence[Array], reports: Sequence[bytes]) -> None:
        """Take over one batch step of all runners: its columns and the faults that environments survived."""
        self.faults, self.recorded, self.known = (), (), None
        self._env_steps += self.num_envs
        for w, outcome in enumerate(outcomes):
            self._pool.show(w, outcome)
        if any(reports):
            self._collect_faults(reports, cut=True)

    def snapshot(self) -> dict[str, Array]:
        """Return the data that leads to the present Step."""
        return self._snapshot()

    def rewind(self, snapshot: Mapping[str, Array], kept: Mapping[str, Array], timeout: float) -> None:
        """Bring all runners back to a snapshot and its Step; a runner that is lost on the way is replaced."""
        self.put_back(kept)
        self._pool.order(RESTORE, pack_arrays(snapshot))
        losses = []
        for answer in self._pool.wait(timeout=timeout):
            if isinstance(answer, Loss):
                losses.append(answer)
            else:
                self._check_restored_all(answer)
        if losses:
            self.recover(losses, snapshot, kept, timeout)
        self.put_back(kept)

    def joining(self) -> bool:
        """Return whether runners have started that `recover`, without losses, gives environments."""
        return False

    def recover(
        self, losses: Sequence[Loss], snapshot: Mapping[str, Array], kept: Mapping[str, Array], timeout: float
    ) -> bool:
        """Bring the environments of lost runners to a snapshot in others, within `timeout` seconds.

        Returns whether all environments were divided among the runners anew and brought there; here, each lost runner
        is replaced instead. Raises WorkerError if none is to be replaced, and EnvError if too many were lost.
        """
        for loss in losses:
            self._replaced(loss, snapshot, kept, timeout)
        return False

    def _replaced(self, loss: Loss, snapshot: Mapping[str, Array], kept: Mapping[str, Array], timeout: float) -> None:
        """Start another runner in place of a lost one."""
        if not self._replaces:
            raise self._pool.error(loss)
        answer: bytes | Loss = loss
        while isinstance(answer, Loss):
            fault = Fault(answer.kind, -1, -1, -1, -1, f"{answer.description}. Its fragment is collected again")
            self.on_faults([fault])
            self._fault_log.add([fault], self._env_steps)
            self.put_back(kept)
            answer = self._pool.replace(loss.worker, RESTORE, pack_arrays(snapshot), timeout)
        self._check_restored_all(answer)
        self.put_back(kept)

    def replayed(self, snapshot: Mapping[str, Array]) -> int:
        """Return the most env steps that an environment replays to reach a snapshot."""
        return 0 if self.source.game is not None else int(snapshot["length"].max())

    def recv(self) -> Step:
        """Return the present Step, which `shown` made."""
        return self._step

    def _made_pool(self, *arguments: Any) -> RayPool:
        return RunnerPool(*arguments)

    def _snapshot(self) -> dict[str, Array]:
        return super()._snapshot() if self.known is None else dict(self.known)

    def _shown(self) -> dict[str, Array]:
        return self._step.arrays() | {"length": self._shared.length}

    def _check_restored_all(self, answer: bytes) -> None:
        """Raise NotRepeatedError if an environment has not returned to where it was."""
        if restarted := json.loads(answer)["restarted"]:
            e, reason = restarted[0]
            raise NotRepeatedError(
                f"environment {e} cannot be brought back to the start of a runner's fragment: {reason}. Use vector="
                '"ray", which drops running episodes when an actor is lost'
            )


def runner_envs(envs: VectorEnv) -> RunnerVectorEnv:
    """Return the environments of the runners that a vector environment shows."""
    while isinstance(envs, VectorEnvWrapper):
        envs = envs.envs
    if not isinstance(envs, RunnerVectorEnv):
        raise TypeError(f"{type(envs).__name__} has no runners")
    return envs
