"""The class that runs in a Ray actor: a chunk of the environments, whose arrays are sent with orders and answers."""

from __future__ import annotations

from typing import Any

from marltrain.core.layout import Array
from marltrain.envs.native.batch import GameBatch
from marltrain.envs.python.chunk import Chunk
from marltrain.envs.workers.shared import Block
from marltrain.envs.workers.worker import STARTED, Answer, Order, Task, WorkerFailure, answer, build
from marltrain.processes.ray_actors import Served


class EnvActor(Served):
    """Environments in a Ray actor, controlled like those of a worker process; see `worker`."""

    _task: Task
    _block: Block
    _chunk: Chunk | GameBatch

    def start(self, task_bytes: bytes) -> tuple[bytes, None]:
        """Build the environments of a task, see `Task.to_bytes`, in place of others; return the answer STARTED."""
        try:
            self.close()
            self._task = Task.from_bytes(task_bytes)
            self._block = Block.empty(self._task.spec, self._task.high - self._task.low)
            self._chunk = build(self._task, self._block.arrays)
        except Exception as error:
            return Answer(STARTED, WorkerFailure.of(error)).to_bytes(), None
        return Answer(STARTED).to_bytes(), None

    def serve(self, order: bytes, actions: Array | None, outcome: Array | None) -> tuple[bytes, Array]:
        """Execute an order; return the answer and the arrays after it.

        order: see `Order.to_bytes`.  actions, outcome: bytes of a Block, [bytes] uint8; None: as they were.
        """
        for own, sent in ((self._block.actions, actions), (self._block.outcome, outcome)):
            if sent is not None:
                own[...] = sent
        given = answer(self._chunk, self._task, self._block.arrays.actions, Order.from_bytes(order))
        return given.to_bytes(), self._block.outcome

    def close(self) -> None:
        """Close the environments."""
        chunk: Any = getattr(self, "_chunk", None)
        if chunk is not None:
            chunk.close()
