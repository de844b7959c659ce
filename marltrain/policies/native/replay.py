"""Transitions read from a ring in one compiled call, in place of a dozen of numpy's."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import float32

from marltrain.addresses import address_of, carray, copy, flags, numbers, outcomes, pointer, wholes
from marltrain.compiling import compiled, kept, key_of, reached
from marltrain.layout import Array
from marltrain.policies.batch import Needs, Transitions
from marltrain.policies.memory.readers import UniformReader
from marltrain.policies.memory.ring import Ring

_RING = ("capacity", "envs", "obs", "legal", "action", "next", "reward", "terminated", "last_obs", "last_legal")
_SIZES = ("obs_size", "legal_size", "action_size")
_MADE = ("agents", "rows", "cells", "gamma", "to_obs", "to_legal", "to_action", "to_reward", "to_discount",
         "to_next_obs", "to_next_legal")  # fmt: skip
READING = np.dtype([(name, np.int64) for name in (*_RING, *_SIZES, *_MADE)])
"""What a reading is told: where a ring's columns and its ends are, the bytes of a row in them, and where to write."""


def reads(ring: Ring, needs: Needs) -> bool:
    """Say whether transitions are of the kind that compiled code reads: single steps, of one array, without extras."""
    return ring.history is None and len(ring.obs) == 1 and needs.n_step == 1 and not needs.columns


class NativeReader(UniformReader):
    """A `UniformReader` of single steps; it draws the same transitions."""

    def __init__(self, ring: Ring, seats: Sequence[Sequence[int]], needs: Needs) -> None:
        """Take a ring that this `reads`."""
        super().__init__(ring, seats, needs)
        (self._name,) = ring.obs
        self._told = np.zeros(1, READING)
        self._address = address_of(self._told)
        self._laid: tuple[Array, Array] | None = None

    def _transitions(self, cells: Array, weight: Array, gamma: Array) -> Transitions:
        """See UniformReader."""
        ring = self.ring
        if self._laid is None or self._laid[0] is not ring.next or self._laid[1] is not ring.ends.time:
            self._lay()
        shape, obs, legal = cells.shape, ring.obs[self._name], ring.legal
        seen, then = (np.empty((*shape, *obs.shape[3:]), obs.dtype) for _ in range(2))
        masks = [None, None] if legal is None else [np.empty((*shape, legal.shape[3]), bool) for _ in range(2)]
        action = np.empty((*shape, *ring.action.shape[3:]), ring.action.dtype)
        reward, discount = (np.empty(shape, np.float32) for _ in range(2))
        written = cells, gamma, seen, masks[0], action, reward, discount, then, masks[1]
        self._told[list(_MADE)] = (*shape, *(0 if array is None else address_of(array) for array in written))
        _program()(self._address)
        return Transitions(
            obs=seen, legal=masks[0], action=action, reward=reward, discount=discount, weight=weight, extras={},
            next_obs=then, next_legal=masks[1], cells=cells,
        )  # fmt: skip

    def _lay(self) -> None:
        """Write down where the ring's arrays are, which are made anew when it grows."""
        ring, told = self.ring, self._told[0]
        self._laid = ring.next, ring.ends.time
        obs, last = ring.obs[self._name], ring.ends.obs[self._name]
        told["capacity"], told["envs"] = ring.capacity, ring.num_envs
        found = {"obs": obs, "action": ring.action, "next": ring.next, "reward": ring.reward, "last_obs": last}
        found |= {"terminated": ring.terminated}
        if ring.legal is not None and ring.ends.legal is not None:
            found |= {"legal": ring.legal, "last_legal": ring.ends.legal}
            told["legal_size"] = ring.legal[0, 0, 0].nbytes
        for name, array in found.items():
            told[name] = address_of(array)
        told["obs_size"], told["action_size"] = obs[0, 0, 0].nbytes, ring.action[0, 0, 0].nbytes


def reader_of(ring: Ring, seats: Sequence[Sequence[int]], needs: Needs) -> UniformReader:
    """Return the quickest reader of transitions."""
    return (NativeReader if reads(ring, needs) else UniformReader)(ring, seats, needs)


@compiled
def read(address: int) -> None:
    """Write the transitions at all cells."""
    r = carray(pointer(address), (1,), READING)[0]
    size = r.agents * r.rows
    cells, gamma = wholes(r.cells, size), outcomes(r.gamma, r.agents)
    rewards, discounts = numbers(r.to_reward, size), numbers(r.to_discount, size)
    for i in range(size):
        cell = cells[i]
        rewards[i] = numbers(r.reward, cell + 1)[cell]
        ended = flags(r.terminated, cell + 1)[cell]
        discounts[i] = float32(0.0) if ended else float32(gamma[i // r.rows])
        copy(r.action + cell * r.action_size, r.to_action + i * r.action_size, r.action_size)
        copy(r.obs + cell * r.obs_size, r.to_obs + i * r.obs_size, r.obs_size)
        followed = wholes(r.next, cell + 1)[cell]
        if followed < -1:
            from_obs, from_legal, there = r.last_obs, r.last_legal, -2 - followed
        else:
            slot = cell // r.envs % r.capacity
            from_obs, from_legal, there = r.obs, r.legal, cell + (followed % r.capacity - slot) * r.envs
        copy(from_obs + there * r.obs_size, r.to_next_obs + i * r.obs_size, r.obs_size)
        if r.legal:
            copy(r.legal + cell * r.legal_size, r.to_legal + i * r.legal_size, r.legal_size)
            copy(from_legal + there * r.legal_size, r.to_next_legal + i * r.legal_size, r.legal_size)


@functools.cache
def _program() -> Any:
    function = read.py_func  # type: ignore[attr-defined]
    return kept(function, key_of(repr(READING), *reached(function)))
