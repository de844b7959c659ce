"""One worker process: a chunk of the environments, driven over a pipe, written into memory shared with the parent.

The pipe carries short messages only. The parent sends a numbered `Order`. The worker answers with its number, and a
`WorkerFailure` or the survived faults. Observations and actions never pass through the pipe. A closed pipe ends the
worker, also when the parent died.
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
from marltrain.envs.faults import Handling, written
from marltrain.envs.native.batch import GameBatch
from marltrain.envs.python.chunk import Chunk, Track
from marltrain.envs.registry import Source
from marltrain.errors import text_of, traceback_of
from marltrain.files import packed, unpacked
from marltrain.layout import Allocate, Array
from marltrain.spec import EnvSpec, Step, empty_actions

STARTED = 0
"""The number of the answer that a worker gives when its environments are built."""
STEP, SNAPSHOT, RESTORE, BEGIN = -1, -2, -3, -4
"""What a worker may be asked for; a number from 0 on is a run's seed, to reset its environments to."""
_ALIGNMENT = 64


class Order(NamedTuple):
    """What a worker is to do: reset its environments to a run's seed, STEP them, or give or take a SNAPSHOT of them.

    data: the snapshot to RESTORE; to BEGIN, where another worker failed: the run's seed, and the episode to start in
    each environment.
    """

    number: int
    what: int = STEP
    data: bytes = b""

    def packed(self) -> bytes:
        """Return it as 16 bytes, and the data after them: pickling a message takes longer than sending it."""
        return struct.pack("<qq", self.number, self.what) + self.data

    @classmethod
    def unpacked(cls, message: bytes) -> Order:
        """Read what `packed` wrote."""
        number, what = struct.unpack("<qq", message[:16])
        return cls(number, what, message[16:])


class WorkerFailure(NamedTuple):
    """What went wrong in a worker: the error's message and the worker's own traceback."""

    message: str
    traceback: str

    @classmethod
    def of(cls, error: Exception) -> WorkerFailure:
        """Describe an exception that was just caught."""
        return cls(text_of(error), traceback_of(error))


class Answer(NamedTuple):
    """What a worker says of one order; the parent may have given that order up, and then skips the answer.

    data: what was asked for.
    """

    number: int
    failure: WorkerFailure | None = None
    data: bytes = b""

    def packed(self) -> bytes:
        """Return it as 8 bytes, and after them a failure's words, or the data."""
        told = b"d" + self.data if self.data else b""
        if self.failure is not None:
            told = b"f" + json.dumps(self.failure).encode()
        return struct.pack("<q", self.number) + told

    @classmethod
    def unpacked(cls, message: bytes) -> Answer:
        """Read what `packed` wrote."""
        (number,) = struct.unpack("<q", message[:8])
        if message[8:9] == b"f":
            return cls(number, WorkerFailure(*json.loads(message[9:])))
        return cls(number, None, message[9:])


@dataclass(frozen=True)
class Task:
    """What a worker needs to know: its number among how many, and its environments, `low` to `high` of `num_envs`.

    recording: whether to record their moves.  handling: which faults are survived.
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
    handling: Handling


class Shared(NamedTuple):
    """What parent and workers share: a Step of all environments, their actions, and how far they are.

    length, at: those of each worker's `Track`, [E] and [W] int64, joined.
    """

    step: Step
    actions: tuple[Array, ...]
    length: Array
    at: Array


def shared_arrays(spec: EnvSpec, num_envs: int, num_workers: int, memory: Any) -> Shared:
    """Lay out what is shared in `memory`, the same in every process."""
    return _laid_out(spec, num_envs, num_workers, _placing(memory))


def shared_size(spec: EnvSpec, num_envs: int, num_workers: int) -> int:
    """Return how many bytes `shared_arrays` needs."""
    total = 0

    def count(shape: tuple[int, ...], dtype: Any) -> Array:
        nonlocal total
        total += _padded(shape, dtype)
        return np.empty(0)

    _laid_out(spec, num_envs, num_workers, count)
    return total + _ALIGNMENT


def _laid_out(spec: EnvSpec, num_envs: int, num_workers: int, allocate: Allocate) -> Shared:
    step, actions = Step.empty(spec, num_envs, allocate), empty_actions(spec, num_envs, allocate)
    return Shared(step, actions, allocate((num_envs,), np.int64), allocate((num_workers,), np.int64))


def _padded(shape: tuple[int, ...], dtype: Any) -> int:
    size = math.prod(shape) * int(np.dtype(dtype).itemsize)
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _placing(memory: Any) -> Allocate:
    offset = 0

    def place(shape: tuple[int, ...], dtype: Any) -> Array:
        nonlocal offset
        array = np.ndarray(shape, dtype, memory, offset)
        offset += _padded(shape, dtype)
        return array

    return place


def run(pipe: Connection, memory: Any, task_bytes: bytes) -> None:
    """Serve the parent until it closes the pipe. `task_bytes` is a Task by cloudpickle, which carries functions."""
    settle()
    end_with_the_parent()
    try:
        task: Task = cloudpickle.loads(task_bytes)  # bytes of the process that started this one
        shared = shared_arrays(task.spec, task.num_envs, task.num_workers, memory)
        chunk = _chunk(task, shared)
    except Exception as error:
        pipe.send_bytes(Answer(STARTED, WorkerFailure.of(error)).packed())
        return
    try:
        pipe.send_bytes(Answer(STARTED).packed())
        _serve(pipe, chunk, task, tuple(array[:, task.low : task.high] for array in shared.actions))
    except (EOFError, OSError):
        pass  # the parent is gone or has closed the pipe: there is nobody left to serve
    finally:
        chunk.close()


def _chunk(task: Task, shared: Shared) -> Chunk | GameBatch:
    """Build the worker's environments: a native game's as one batch, any other's as objects."""
    size, out = task.high - task.low, shared.step.part(task.low, task.high)
    if task.source.game is not None:
        game = task.source.game(**task.source.arguments)
        return GameBatch(game, task.spec, out, num_envs=size, first_index=task.low, role=task.role)
    track = Track(shared.length[task.low : task.high], shared.at[task.number : task.number + 1].data)
    return Chunk(
        task.source, task.spec, out, num_envs=size, first_index=task.low, role=task.role, recording=task.recording,
        handling=task.handling, track=track,
    )  # fmt: skip


def _serve(pipe: Connection, chunk: Chunk | GameBatch, task: Task, actions: tuple[Array, ...]) -> None:
    while True:
        order = Order.unpacked(pipe.recv_bytes())
        try:
            if order.what == STEP:
                chunk.step(actions)
                answer = Answer(order.number, data=_told(chunk))
            else:
                answer = Answer(order.number, data=_obeyed(chunk, task, order))
        except Exception as error:
            answer = Answer(order.number, WorkerFailure.of(error))
        pipe.send_bytes(answer.packed())


def _obeyed(chunk: Chunk | GameBatch, task: Task, order: Order) -> bytes:
    """Do what is not done every step; return what is to be answered."""
    if order.what == SNAPSHOT:
        return packed(chunk.snapshot())
    if order.what == RESTORE:
        lost = _restore(chunk, task, order.data)
        return json.dumps({"lost": lost, "faults": _told(chunk).decode()}).encode()
    if order.what == BEGIN and isinstance(chunk, Chunk):
        seed, *episodes = json.loads(order.data)
        chunk.reset(seed, episodes)
    else:
        chunk.reset(order.what)
    return _told(chunk)


def _told(chunk: Chunk | GameBatch) -> bytes:
    """Return the faults of the last order; nothing where there were none."""
    return written(chunk.faults) if isinstance(chunk, Chunk) and chunk.faults else b""


def _restore(chunk: Chunk | GameBatch, task: Task, data: bytes) -> list[tuple[int, str]]:
    """Go on from a snapshot of all environments; return those that could not, see `Chunk.restore`."""
    saved = unpacked(data)
    if isinstance(chunk, Chunk):
        return chunk.restore(saved)
    return chunk.restore({name: values[task.low : task.high] for name, values in saved.items()})
