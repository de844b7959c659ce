"""One worker process: a chunk of the environments, controlled over a pipe, written into memory shared with the parent.

The pipe carries only short messages. The parent sends a numbered `Order`. The worker's `Answer` holds the same number
and a `WorkerFailure` or the survived faults. Observations and actions never pass through the pipe. A closed pipe ends
the worker, also after the parent's death.
"""

from __future__ import annotations

import json
import pickle
import struct
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import cloudpickle

from marltrain.core.errors import ConfigError, error_text, text_of, traceback_of
from marltrain.core.layout import Array
from marltrain.core.spec import EnvSpec
from marltrain.envs.faults import Fault, FaultPolicy, decode_faults, encode_faults
from marltrain.envs.native.batch import GameBatch
from marltrain.envs.python.chunk import Chunk, Track
from marltrain.envs.recorded import Recorded
from marltrain.envs.registry import Source
from marltrain.envs.workers.shared import Shared, shared_arrays
from marltrain.processes.children import end_with_the_parent, settle
from marltrain.storage.files import pack_arrays, unpack_arrays

STARTED = 0
"""The number of a worker's answer after it has built its environments."""
STEP, SNAPSHOT, RESTORE, BEGIN = -1, -2, -3, -4
"""Commands of an order. A number >= 0 is a run's seed: reset the environments with it."""


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

    def to_bytes(self) -> bytes:
        """Return the task pickled by cloudpickle, because a Source can hold functions. Raises ConfigError."""
        try:
            return bytes(cloudpickle.dumps(self))
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"env: {self.source.name} cannot be sent to another process ({error_text(error)}): its class or "
                "function must not hold open files, locks or the like; build these in its constructor, or use "
                'vector="dummy"'
            ) from error

    @classmethod
    def from_bytes(cls, data: bytes) -> Task:
        """Return the task that `to_bytes` encoded; trusted, because the bytes come from the parent process."""
        task: Task = cloudpickle.loads(data)
        return task


def run(pipe: Connection, memory: Any, task_bytes: bytes) -> None:
    """Serve the parent until it closes the pipe. `task_bytes`: see `Task.to_bytes`."""
    settle()
    end_with_the_parent()
    try:
        task = Task.from_bytes(task_bytes)
        arrays = shared_arrays(task.spec, task.num_envs, task.num_workers, memory)
        own = arrays.part(task.low, task.high, task.number)
        chunk = build(task, own)
    except Exception as error:
        pipe.send_bytes(Answer(STARTED, WorkerFailure.of(error)).to_bytes())
        return
    try:
        pipe.send_bytes(Answer(STARTED).to_bytes())
        while True:
            pipe.send_bytes(answer(chunk, task, own.actions, Order.from_bytes(pipe.recv_bytes())).to_bytes())
    except (EOFError, OSError):
        pass  # the parent has ended or closed the pipe
    finally:
        chunk.close()


def build(task: Task, own: Shared) -> Chunk | GameBatch:
    """Build the worker's environments: one batch for a native game, else one object per environment.

    own: the arrays of these environments.
    """
    size = task.high - task.low
    if task.source.game is not None:
        game = task.source.game(**task.source.arguments)
        return GameBatch(
            game, task.spec, own.step, num_envs=size, first_index=task.low, role=task.role, record=task.record
        )
    return Chunk(
        task.source, task.spec, own.step, num_envs=size, first_index=task.low, role=task.role,
        recording=task.recording, fault_policy=task.fault_policy, track=Track(own.length, own.at.data),
        record=task.record,
    )  # fmt: skip


def answer(chunk: Chunk | GameBatch, task: Task, actions: tuple[Array, ...], order: Order) -> Answer:
    """Execute an order and return the answer; an exception is one that `Chunk` did not survive."""
    try:
        if order.command == STEP:
            chunk.step(actions)
            return Answer(order.number, data=_report(chunk))
        return Answer(order.number, data=_execute(chunk, task, order))
    except Exception as error:
        return Answer(order.number, WorkerFailure.of(error))


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
