"""One worker process: a chunk of the environments, controlled over a pipe, written into memory shared with the parent.

The pipe carries only short messages. The parent sends a numbered `Order`. The worker's `Answer` holds the same number
and a `WorkerFailure` or the survived faults. Observations and actions never pass through the pipe. A closed pipe ends
the worker, also after the parent's death.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import cloudpickle
import numpy as np

from marltrain.children import end_with_the_parent, settle
from marltrain.envs.faults import Fault, FaultPolicy, decode_faults, encode_faults
from marltrain.envs.native.batch import GameBatch
from marltrain.envs.python.chunk import Chunk, Track
from marltrain.envs.recorded import Recorded
from marltrain.envs.registry import Source
from marltrain.errors import text_of, traceback_of
from marltrain.files import pack_arrays, unpack_arrays
from marltrain.layout import Allocate, Array
from marltrain.spec import EnvSpec, Step, empty_actions

STARTED = 0
"""The number of a worker's answer after it has built its environments."""
STEP, SNAPSHOT, RESTORE, BEGIN = -1, -2, -3, -4
"""Commands of an order. A number >= 0 is a run's seed: reset the environments with it."""
_ALIGNMENT = 64


class Order(NamedTuple):
    """A command for a worker: reset its environments with a run's seed, STEP, SNAPSHOT, RESTORE or BEGIN.

    BEGIN starts given episodes in a worker that replaces a lost one.

    data: for RESTORE, the snapshot; for BEGIN, the run's seed and the number of each environment's episode.
    """

    number: int
    command: int = STEP
    data: bytes = b""

    def to_bytes(self) -> bytes:
        """Return 16 bytes followed by the data; pickling a message would take longer than sending it."""
        return struct.pack("<qq", self.number, self.command) + self.data

    @classmethod
    def from_bytes(cls, message: bytes) -> Order:
        """Return the order that `to_bytes` encoded."""
        number, command = struct.unpack("<qq", message[:16])
        return cls(number, command, message[16:])


class WorkerFailure(NamedTuple):
    """An error in a worker: its message and the worker's traceback."""

    message: str
    traceback: str

    @classmethod
    def of(cls, error: Exception) -> WorkerFailure:
        """Return the description of a caught exception."""
        return cls(text_of(error), traceback_of(error))


class Answer(NamedTuple):
    """A worker's answer to one order. The parent skips the answer to an order that it has abandoned.

    data: the result of the order.
    """

    number: int
    failure: WorkerFailure | None = None
    data: bytes = b""

    def to_bytes(self) -> bytes:
        """Return 8 bytes followed by the failure or the data."""
        content = b"d" + self.data if self.failure is None else b"f" + json.dumps(self.failure).encode()
        return struct.pack("<q", self.number) + content

    @classmethod
    def from_bytes(cls, message: bytes) -> Answer:
        """Return the answer that `to_bytes` encoded."""
        (number,) = struct.unpack("<q", message[:8])
        if message[8:9] == b"f":
            return cls(number, WorkerFailure(*json.loads(message[9:])))
        return cls(number, None, message[9:])


class Report(NamedTuple):
    """The data of an answer to STEP, BEGIN and a reset: the survived faults, and the values recorded in the step."""

    faults: list[Fault]
    recorded: list[Recorded]

    def to_bytes(self) -> bytes:
        """Return the report as JSON; no bytes if it is empty."""
        if not self.faults and not self.recorded:
            return b""
        return json.dumps([encode_faults(self.faults).decode(), self.recorded]).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Report:
        """Return the report that `to_bytes` encoded."""
        if not data:
            return cls([], [])
        faults, recorded = json.loads(data)
        return cls(decode_faults(faults.encode()), [(e, values) for e, values in recorded])


@dataclass(frozen=True)
class Task:
    """A worker's task: its number among `num_workers`, and its environments, `low` to `high` of `num_envs`.

    recording: whether to record actions.  fault_policy: which faults are survived.
    record: attributes that are recorded when an episode ends.
    """

    source: Source
    spec: EnvSpec
    num_envs: int
    low: int
    high: int
    role: str
    number: int
    num_workers: int
    recording: bool
    fault_policy: FaultPolicy
    record: tuple[str, ...]


class Shared(NamedTuple):
    """The shared memory of parent and workers: a Step of all environments, their actions, and their progress.

    length, at: the arrays of all workers' `Track` objects, joined: [E] and [W] int64.
    """

    step: Step
    actions: tuple[Array, ...]
    length: Array
    at: Array


def shared_arrays(spec: EnvSpec, num_envs: int, num_workers: int, memory: Any) -> Shared:
    """Return the shared arrays as views of `memory`, with the same layout in all processes."""
    return _shared(spec, num_envs, num_workers, _Allocator(memory))


def shared_size(spec: EnvSpec, num_envs: int, num_workers: int) -> int:
    """Return the number of bytes that `shared_arrays` needs."""
    allocator = _Allocator(None)
    _shared(spec, num_envs, num_workers, allocator)
    return allocator.size + _ALIGNMENT


def _shared(spec: EnvSpec, num_envs: int, num_workers: int, allocate: Allocate) -> Shared:
    step, actions = Step.empty(spec, num_envs, allocate), empty_actions(spec, num_envs, allocate)
    return Shared(step, actions, allocate((num_envs,), np.int64), allocate((num_workers,), np.int64))


class _Allocator:
    """Allocates aligned arrays in `memory`, one after another; without memory it only counts their size in bytes."""

    def __init__(self, memory: Any) -> None:
        self._memory, self.size = memory, 0

    def __call__(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """Return the next array; an empty one without memory."""
        array = np.empty(0) if self._memory is None else np.ndarray(shape, dtype, self._memory, self.size)
        self.size += -(-math.prod(shape) * np.dtype(dtype).itemsize // _ALIGNMENT) * _ALIGNMENT
        return array


def run(pipe: Connection, memory: Any, task_bytes: bytes) -> None:
    """Serve the parent until it closes the pipe. `task_bytes`: a Task, by cloudpickle because it can hold functions."""
    settle()
    end_with_the_parent()
    try:
        task: Task = cloudpickle.loads(task_bytes)  # trusted: the bytes come from the parent process
        shared = shared_arrays(task.spec, task.num_envs, task.num_workers, memory)
        chunk = _chunk(task, shared)
    except Exception as error:
        pipe.send_bytes(Answer(STARTED, WorkerFailure.of(error)).to_bytes())
        return
    try:
        pipe.send_bytes(Answer(STARTED).to_bytes())
        _serve(pipe, chunk, task, tuple(array[:, task.low : task.high] for array in shared.actions))
    except (EOFError, OSError):
        pass  # the parent has ended or closed the pipe
    finally:
        chunk.close()


def _chunk(task: Task, shared: Shared) -> Chunk | GameBatch:
    """Build the worker's environments: one batch for a native game, else one object per environment."""
    size, out = task.high - task.low, shared.step.part(task.low, task.high)
    if task.source.game is not None:
        game = task.source.game(**task.source.arguments)
        return GameBatch(game, task.spec, out, num_envs=size, first_index=task.low, role=task.role, record=task.record)
    track = Track(shared.length[task.low : task.high], shared.at[task.number : task.number + 1].data)
    return Chunk(
        task.source, task.spec, out, num_envs=size, first_index=task.low, role=task.role, recording=task.recording,
        fault_policy=task.fault_policy, track=track, record=task.record,
    )  # fmt: skip


def _serve(pipe: Connection, chunk: Chunk | GameBatch, task: Task, actions: tuple[Array, ...]) -> None:
    while True:
        order = Order.from_bytes(pipe.recv_bytes())
        try:
            if order.command == STEP:
                chunk.step(actions)
                answer = Answer(order.number, data=_report(chunk))
            else:
                answer = Answer(order.number, data=_execute(chunk, task, order))
        except Exception as error:  # only faults that `Chunk` did not survive
            answer = Answer(order.number, WorkerFailure.of(error))
        pipe.send_bytes(answer.to_bytes())


def _execute(chunk: Chunk | GameBatch, task: Task, order: Order) -> bytes:
    """Run an order other than STEP; return the data of the answer."""
    if order.command == SNAPSHOT:
        return pack_arrays(chunk.snapshot())
    if order.command == RESTORE:
        restarted = _restore(chunk, task, order.data)
        return json.dumps({"restarted": restarted, "faults": encode_faults(_faults(chunk)).decode()}).encode()
    if order.command == BEGIN and isinstance(chunk, Chunk):
        seed, *episodes = json.loads(order.data)
        chunk.reset(seed, episodes)
    else:
        chunk.reset(order.command)
    return Report(_faults(chunk), []).to_bytes()


def _report(chunk: Chunk | GameBatch) -> bytes:
    """Return the report of a step."""
    return Report(_faults(chunk), chunk.recorded).to_bytes()


def _faults(chunk: Chunk | GameBatch) -> list[Fault]:
    """Return the faults of the last order; native games have none."""
    return chunk.faults if isinstance(chunk, Chunk) else []


def _restore(chunk: Chunk | GameBatch, task: Task, data: bytes) -> list[tuple[int, str]]:
    """Restore a snapshot of all environments; return the environments that were not restored, see `Chunk.restore`."""
    saved = unpack_arrays(data)
    if isinstance(chunk, Chunk):
        return chunk.restore(saved)
    return chunk.restore({name: values[task.low : task.high] for name, values in saved.items()})
