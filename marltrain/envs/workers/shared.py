"""The arrays of environments in one block of memory: shared by processes, or sent between machines."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from marltrain.core.layout import Allocate, Array
from marltrain.core.spec import EnvSpec, Step, empty_actions

_ALIGNMENT = 64


class Shared(NamedTuple):
    """The arrays of parent and workers: a Step of all environments, their progress, and their actions.

    length, at: the arrays of all workers' `Track` objects, joined: [E] and [W] int64.
    """

    step: Step
    length: Array
    at: Array
    actions: tuple[Array, ...]

    def part(self, low: int, high: int, worker: int) -> Shared:
        """Return views of the columns of one worker, which holds environments `low` to `high` (exclusive)."""
        actions = tuple(array[:, low:high] for array in self.actions)
        return Shared(self.step.part(low, high), self.length[low:high], self.at[worker : worker + 1], actions)


def shared_arrays(spec: EnvSpec, num_envs: int, num_workers: int, memory: Any) -> Shared:
    """Return the shared arrays as views of `memory`, with the same layout in all processes."""
    allocate = _Allocator(memory)
    return Shared(*_outcome(spec, num_envs, num_workers, allocate), empty_actions(spec, num_envs, allocate))


def shared_size(spec: EnvSpec, num_envs: int, num_workers: int) -> int:
    """Return the number of bytes that `shared_arrays` needs."""
    allocator = _Allocator(None)
    _outcome(spec, num_envs, num_workers, allocator)
    empty_actions(spec, num_envs, allocator)
    return allocator.size + _ALIGNMENT


def _outcome(spec: EnvSpec, num_envs: int, num_workers: int, allocate: Allocate) -> tuple[Step, Array, Array]:
    return Step.empty(spec, num_envs, allocate), allocate((num_envs,), np.int64), allocate((num_workers,), np.int64)


@dataclass(frozen=True, eq=False)
class Block:
    """The arrays of one worker's environments in memory of its own, sent in two pieces.

    arrays: views of both pieces.  outcome: uint8, the Step and the progress.  actions: uint8, the actions.
    """

    arrays: Shared
    outcome: Array
    actions: Array

    @classmethod
    def empty(cls, spec: EnvSpec, num_envs: int) -> Block:
        """Allocate the arrays of `num_envs` environments."""
        memory = np.zeros(shared_size(spec, num_envs, 1), np.uint8)
        counted = _Allocator(None)
        _outcome(spec, num_envs, 1, counted)
        return cls(shared_arrays(spec, num_envs, 1, memory), memory[: counted.size], memory[counted.size :])


class _Allocator:
    """Allocates aligned arrays in `memory`, one after another; without memory it only counts their size in bytes."""

    def __init__(self, memory: Any) -> None:
        self._memory, self.size = memory, 0

    def __call__(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """Return the next array; an empty one without memory."""
        array = np.empty(0) if self._memory is None else np.ndarray(shape, dtype, self._memory, self.size)
        self.size += -(-math.prod(shape) * np.dtype(dtype).itemsize // _ALIGNMENT) * _ALIGNMENT
        return array
