"""SubprocVectorEnv: E environments in worker processes of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from marltrain.core.processor import usable_cores
from marltrain.envs.faults import FaultPolicy
from marltrain.envs.registry import resolve
from marltrain.envs.vector import check_timeout
from marltrain.envs.workers.processes import FEWER, ProcessPool, worker_context
from marltrain.envs.workers.shared import shared_arrays, shared_size
from marltrain.envs.workers.vector import WorkerVectorEnv
from marltrain.processes.children import within_limits


class SubprocVectorEnv(WorkerVectorEnv):
    """Environments in worker processes. Each worker holds several environments and writes into shared memory.

    The episodes are bit-identical to those of DummyVectorEnv, for any number of workers.
    """

    _pool: ProcessPool

    def __init__(
        self,
        source: Any,
        num_envs: int,
        *,
        num_workers: int | None = None,
        role: str = "train",
        with_state: bool = False,
        recording: bool = False,
        handling: FaultPolicy | None = None,
        record: Sequence[str] = (),
    ) -> None:
        """Start `num_workers` processes (default: one per core, at most one per environment)."""
        workers = usual_workers(num_envs) if num_workers is None else num_workers
        super().__init__(
            resolve(source), num_envs, workers,
            role=role, with_state=with_state, recording=recording, handling=handling, record=record,
        )  # fmt: skip
        timeout = self._fault_policy.env_timeout
        check_timeout(timeout, vector="subproc", native=self.source.game is not None)
        with within_limits(FEWER):
            memory = worker_context().RawArray("B", shared_size(self.spec, num_envs, workers))
        shared = shared_arrays(self.spec, num_envs, workers, memory)
        self._open(shared, ProcessPool(self._tasks, memory, timeout))


def usual_workers(num_envs: int) -> int:
    """Return the default number of workers: one per core, at most one per environment."""
    return min(num_envs, usable_cores())
