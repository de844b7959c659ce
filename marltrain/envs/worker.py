"""One worker process: a chunk of the environments, driven over a pipe, written into memory shared with the parent.

The pipe carries only short messages: the parent sends RESET with a seed, or STEP; the worker answers DONE when all went
well and a `Failure` when not. Observations and actions never pass through it. A closed pipe ends the worker, whether
the parent closed it or died.
"""

from __future__ import annotations

import json
import math
import signal
import traceback as tracebacks
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle
import numpy as np

from marltrain.envs.chunk import Chunk
from marltrain.envs.registry import Source
from marltrain.layout import Allocate, Array
from marltrain.spec import EnvSpec, Step, empty_actions

RESET, STEP, DONE = b"r", b"s", b""
_ALIGNMENT = 64


@dataclass(frozen=True)
class Failure:
    """What went wrong in a worker: the error's message and the worker's own traceback."""

    message: str
    traceback: str

    def to_bytes(self) -> bytes:
        """Return the message for the pipe."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, message: bytes) -> Failure:
        """Read a message from the pipe."""
        return cls(**json.loads(message))


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
        pipe.send_bytes(_failure(error))
        return
    pipe.send_bytes(DONE)
    try:
        _serve(pipe, chunk, tuple(array[:, task.low : task.high] for array in actions))
    except (EOFError, OSError):
        pass  # the parent is gone or has closed the pipe: there is nobody left to serve
    finally:
        chunk.close()


def _serve(pipe: Connection, chunk: Chunk, actions: tuple[Array, ...]) -> None:
    while True:
        message = pipe.recv_bytes()
        try:
            if message == STEP:
                chunk.step(actions)
            else:
                chunk.reset(int(message.removeprefix(RESET)))
            answer = DONE
        except Exception as error:
            answer = _failure(error)
        pipe.send_bytes(answer)


def _failure(error: Exception) -> bytes:
    return Failure(str(error), "".join(tracebacks.format_exception(error))).to_bytes()
