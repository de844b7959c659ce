"""One worker process: a chunk of the environments, driven over a pipe, written into memory shared with the parent.

The pipe carries only short messages: the parent sends a numbered `Order`; the worker answers with that number, and with
a `Failure` where something went wrong. Observations and actions never pass through it. A closed pipe ends the worker,
whether the parent closed it or died.
"""

from __future__ import annotations

import json
import math
import signal
import struct
import traceback as tracebacks
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import cloudpickle
import numpy as np

from marltrain.envs.chunk import Chunk
from marltrain.envs.registry import Source
from marltrain.layout import Allocate, Array
from marltrain.spec import EnvSpec, Step, empty_actions

STARTED = 0
"""The number of the answer that a worker gives when its environments are built."""
_ALIGNMENT = 64


class Order(NamedTuple):
    """What a worker is to do: reset its environments to a run's seed, or step them (no seed)."""

    number: int
    seed: int | None = None

    def packed(self) -> bytes:
        """Return it as 16 bytes: pickling a message takes longer than sending it."""
        return struct.pack("<qq", self.number, -1 if self.seed is None else self.seed)

    @classmethod
    def unpacked(cls, message: bytes) -> Order:
        """Read what `packed` wrote."""
        number, seed = struct.unpack("<qq", message)
        return cls(number, None if seed < 0 else seed)


class Failure(NamedTuple):
    """What went wrong in a worker: the error's message and the worker's own traceback."""

    message: str
    traceback: str

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """Describe an exception that was just caught."""
        return cls(str(error), "".join(tracebacks.format_exception(error)))


class Answer(NamedTuple):
    """What a worker says of one order; the parent may have given that order up, and then skips the answer."""

    number: int
    failure: Failure | None = None

    def packed(self) -> bytes:
        """Return it as 8 bytes, and a failure's words after them."""
        told = b"" if self.failure is None else json.dumps(self.failure).encode()
        return struct.pack("<q", self.number) + told

    @classmethod
    def unpacked(cls, message: bytes) -> Answer:
        """Read what `packed` wrote."""
        (number,) = struct.unpack("<q", message[:8])
        return cls(number, Failure(*json.loads(message[8:])) if len(message) > 8 else None)


@dataclass(frozen=True)
class Task:
    """What a worker needs to know: environments `low` to `high` of `num_envs`."""

    source: Source
    spec: EnvSpec
    num_envs: int
    low: int
    high: int
    role: str


def shared_arrays(spec: EnvSpec, num_envs: int, memory: Any) -> tuple[Step, tuple[Array, ...]]:
    """Lay a Step and the actions of `num_envs` environments out in `memory`, the same in every process."""
    allocate = _placing(memory)
    return Step.empty(spec, num_envs, allocate), empty_actions(spec, num_envs, allocate)


def shared_size(spec: EnvSpec, num_envs: int) -> int:
    """Return how many bytes `shared_arrays` needs."""
    total = 0

    def count(shape: tuple[int, ...], dtype: Any) -> Array:
        nonlocal total
        total += _padded(shape, dtype)
        return np.empty(0)

    Step.empty(spec, num_envs, count)
    empty_actions(spec, num_envs, count)
    return total + _ALIGNMENT


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
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal; the parent decides what it means
    try:
        task: Task = cloudpickle.loads(task_bytes)
        step, actions = shared_arrays(task.spec, task.num_envs, memory)
        chunk = Chunk(
            task.source,
            task.spec,
            step.part(task.low, task.high),
            num_envs=task.high - task.low,
            first_index=task.low,
            role=task.role,
        )
    except Exception as error:
        pipe.send_bytes(Answer(STARTED, Failure.of(error)).packed())
        return
    try:
        pipe.send_bytes(Answer(STARTED).packed())
        _serve(pipe, chunk, tuple(array[:, task.low : task.high] for array in actions))
    except (EOFError, OSError):
        pass  # the parent is gone or has closed the pipe: there is nobody left to serve
    finally:
        chunk.close()


def _serve(pipe: Connection, chunk: Chunk, actions: tuple[Array, ...]) -> None:
    while True:
        order = Order.unpacked(pipe.recv_bytes())
        failure = None
        try:
            if order.seed is None:
                chunk.step(actions)
            else:
                chunk.reset(order.seed)
        except Exception as error:
            failure = Failure.of(error)
        pipe.send_bytes(Answer(order.number, failure).packed())
