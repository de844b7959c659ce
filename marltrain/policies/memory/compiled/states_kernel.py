"""Writes global states in compiled code, for steps in which no episode ends; see `memory.states`."""

from __future__ import annotations

from typing import Any

import numpy as np

from marltrain.core.spec import Step
from marltrain.jit.compiling import compiled
from marltrain.jit.views import address_of, copy, f32, i64, record_at
from marltrain.policies.memory.states import OWN, GlobalStates

STATES = np.dtype(
    [(name, np.int64) for name in ("capacity", "envs", "source", "blocks", "groups", "values", "final", "size")]
)
"""Arguments of the kernel.

source: address of the environments' own states, or 0 for joined observations.  blocks: address of the observations'
[groups, 3] int64: address, number of players, values of a player.  values, final: addresses of the columns of
`GlobalStates`.  size: bytes of a batch step.
"""


class StatesTable:
    """The arguments of the kernel for the states of a Step; valid until the capacity grows.

    address: of the STATES record.
    """

    def __init__(self, states: GlobalStates, step: Step) -> None:
        """Fill in the record; raises TypeError if the Step has no state of the environments' own."""
        self._record = np.zeros(1, STATES)
        t = self._record[0]
        t["capacity"], t["envs"], t["size"] = states.capacity, states.num_envs, 4 * states.num_envs * states.size
        t["values"], t["final"] = address_of(states.values), address_of(states.final)
        if states.kind != OWN:
            vectors = [np.asarray(obs) for obs in step.obs]
            self._blocks = np.array([(address_of(obs), obs.shape[0], obs.shape[2]) for obs in vectors], np.int64)
            t["blocks"], t["groups"] = address_of(self._blocks), len(self._blocks)
        elif step.state is None:
            raise TypeError("the Step has no state")
        else:
            t["source"] = address_of(step.state)
        self.address = address_of(self._record)


@compiled
def states_at(address: int) -> Any:
    """Return the STATES record at an address."""
    return record_at(address, STATES)


@compiled
def has_room(s: Any, time: int, low: int, high: int) -> bool:
    """Return whether the states of batch step `time` overwrite no final state, in the environments `low` to `high`."""
    finals = i64(s.final + 8 * (time % s.capacity) * s.envs, s.envs)[low:high]
    return bool(finals.max() == -1 and finals.min() == -1)


@compiled
def state_arrived(s: Any, time: int, low: int, high: int) -> None:
    """Store the states of batch step `time` of the environments `low` to `high`."""
    target, width = s.values + (time % s.capacity) * s.size, s.size // s.envs
    if s.source:
        copy(s.source + low * width, target + low * width, (high - low) * width)
    else:
        join(s, target, low, high)


@compiled
def join(s: Any, target: int, low: int, high: int) -> None:
    """Write the observations of all players, which have the turn, as `JoinedObservations` does."""
    written, first = f32(target, s.size // 4), 0
    width = s.size // (4 * s.envs)
    blocks = i64(s.blocks, 3 * s.groups)
    for g in range(s.groups):
        players, values = blocks[3 * g + 1], blocks[3 * g + 2]
        obs = f32(blocks[3 * g], players * s.envs * values)
        for p in range(players):
            for e in range(low, high):
                read, start = (p * s.envs + e) * values, e * width + first
                written[start : start + values] = obs[read : read + values]
                written[start + values] = 1.0
            first += values + 1
