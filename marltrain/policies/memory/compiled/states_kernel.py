"""Writes global states in compiled code, as `memory.states` does; joined observations if all players have the turn."""

from __future__ import annotations

from typing import Any

import numpy as np

from marltrain.core.spec import Step
from marltrain.jit.compiling import compiled
from marltrain.jit.views import address_of, bools, copy, f32, i64, record_at
from marltrain.policies.memory.states import OWN, GlobalStates

STATES = np.dtype(
    [(name, np.int64) for name in (
        "capacity", "envs", "source", "final_source", "blocks", "groups", "values", "final", "size",
        "entries", "entry_time", "unused", "num_unused", "kept",
    )]
)  # fmt: skip
"""Arguments of the kernel.

source, final_source: addresses of the environments' own states, and of those at the ends of episodes; 0 for joined
observations, for which no episode may end.  blocks: address of the observations'
[groups, 3] int64: address, number of players, values of a player.  values, final: addresses of the columns of
`GlobalStates`.  size: bytes of a batch step.
entries, entry_time, unused, num_unused, kept: the number of entries of the end table, and its arrays.
"""


class StatesTable:
    """The arguments of the kernel for the states of a Step; valid until the capacity or the end table grows.

    address: of the STATES record.
    """

    def __init__(self, states: GlobalStates, step: Step) -> None:
        """Fill in the record; raises TypeError if the Step has no state of the environments' own."""
        self._record = np.zeros(1, STATES)
        t = self._record[0]
        t["capacity"], t["envs"], t["size"] = states.capacity, states.num_envs, 4 * states.num_envs * states.size
        t["values"], t["final"], ends = address_of(states.values), address_of(states.final), states.ends
        t["entries"], t["entry_time"], t["kept"] = len(ends.time), address_of(ends.time), address_of(ends.obs[OWN])
        t["unused"], t["num_unused"] = address_of(ends.unused), address_of(ends.num_unused)
        if states.kind != OWN:
            vectors = [np.asarray(obs) for obs in step.obs]
            self._blocks = np.array([(address_of(obs), obs.shape[0], obs.shape[2]) for obs in vectors], np.int64)
            t["blocks"], t["groups"] = address_of(self._blocks), len(self._blocks)
        elif step.state is None or step.final_state is None:
            raise TypeError("the Step has no state")
        else:
            t["source"], t["final_source"] = address_of(step.state), address_of(step.final_state)
        self.address = address_of(self._record)


@compiled
def states_at(address: int) -> Any:
    """Return the STATES record at an address."""
    return record_at(address, STATES)


@compiled
def states_fit(s: Any, time: int, ended: int) -> bool:
    """Return whether the end table has an entry for each episode that `ended` [envs] in the Step of `time`."""
    finals, over, left = i64(s.final + 8 * (time % s.capacity) * s.envs, s.envs), bools(ended, s.envs), 0
    for e in range(s.envs):
        left += (finals[e] < -1) - over[e]
    return left + i64(s.num_unused, 1)[0] >= 0


@compiled
def settle_states(s: Any, time: int, ended: int) -> None:
    """Free the entries of the states that those of `time` overwrite; keep the final states of episodes that ended.

    Entries are those of `EndTable.add`.
    """
    finals, over = i64(s.final + 8 * (time % s.capacity) * s.envs, s.envs), bools(ended, s.envs)
    unused, number, width, ends = i64(s.unused, s.entries), i64(s.num_unused, 1), s.size // s.envs, 0
    for e in range(s.envs):
        if finals[e] < -1:
            unused[number[0]] = -2 - finals[e]
            number[0] += 1
        finals[e] = -1
        ends += over[e]
    number[0] -= ends
    place = number[0]
    for e in range(s.envs):
        if over[e]:
            entry = unused[place]
            place += 1
            copy(s.final_source + e * width, s.kept + entry * width, width)
            i64(s.entry_time, s.entries)[entry] = time
            finals[e] = -2 - entry


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
