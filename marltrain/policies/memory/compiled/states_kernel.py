"""Writes global states in compiled code, as `memory.states` and `memory.joined` do."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float32

from marltrain.core.layout import Array
from marltrain.core.spec import EnvSpec, Step
from marltrain.jit.compiling import compiled
from marltrain.jit.views import address_of, bools, copy, f32, i64, record_at
from marltrain.policies.memory.states import OWN, GlobalStates

STATES = np.dtype(
    [(name, np.int64) for name in (
        "capacity", "envs", "source", "final_source", "players", "player", "turns", "values", "final", "size",
        "entries", "entry_time", "unused", "num_unused", "kept",
    )]
)  # fmt: skip
"""Arguments of the kernel.

source, final_source: addresses of the environments' own states, and of those at the ends of episodes; 0 for joined
observations.  players, player: number of joined observations, and address of their PLAYERs.  turns: whether players
move one after another.  values, final: addresses of the columns of `GlobalStates`.  size: bytes of a batch step.
entries, entry_time, unused, num_unused, kept: the number of entries of the end table, and its arrays.
"""
PLAYER = np.dtype([(name, np.int64) for name in ("obs", "final_obs", "turn", "over", "cut", "values")])
"""Arrays of a player in a Step: addresses of its observations and final observations [E, V], its turns and its ends by
termination and by limits, [E] bool; the number V."""
_PLAYER_BYTES = PLAYER.itemsize


class StatesTable:
    """The arguments of the kernel for the states of a Step; valid until the capacity or the end table grows.

    address: of the STATES record.
    """

    def __init__(self, states: GlobalStates, step: Step, spec: EnvSpec) -> None:
        """Fill in the record; raises TypeError if the Step has no state of the environments' own."""
        self._record = np.zeros(1, STATES)
        t = self._record[0]
        t["capacity"], t["envs"], t["size"] = states.capacity, states.num_envs, 4 * states.num_envs * states.size
        t["values"], t["final"], ends = address_of(states.values), address_of(states.final), states.ends
        t["entries"], t["entry_time"], t["kept"] = len(ends.time), address_of(ends.time), address_of(ends.obs[OWN])
        t["unused"], t["num_unused"] = address_of(ends.unused), address_of(ends.num_unused)
        if states.kind != OWN:
            self._players = _players(step, spec)  # kept alive: compiled code has only addresses
            t["players"], t["player"], t["turns"] = len(self._players), address_of(self._players), spec.turn_based
        elif step.state is None or step.final_state is None:
            raise TypeError("the Step has no state")
        else:
            t["source"], t["final_source"] = address_of(step.state), address_of(step.final_state)
        self.address = address_of(self._record)


def _players(step: Step, spec: EnvSpec) -> Array:
    """Return the PLAYERs of a Step, group by group."""
    records = np.zeros(len(spec.players), PLAYER)
    joined = ((g, i, p) for g, group in enumerate(spec.groups) for i, p in enumerate(group.players))
    for record, (g, i, p) in zip(records, joined, strict=True):
        arrays = {"obs": step.obs[g], "final_obs": step.final_obs[g], "turn": step.turn[g]}
        for name, array in arrays.items():
            record[name] = address_of(np.asarray(array)[i])
        record["over"], record["cut"] = address_of(step.terminated[p]), address_of(step.truncated[p])
        record["values"] = np.asarray(step.obs[g]).shape[2]
    return records


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
            if s.source:
                copy(s.final_source + e * width, s.kept + entry * width, width)
            else:
                join_final(s, time, e, s.kept + entry * width)
            i64(s.entry_time, s.entries)[entry] = time
            finals[e] = -2 - entry


@compiled
def state_arrived(s: Any, time: int, ended: int, low: int, high: int) -> None:
    """Store the states of batch step `time` of the environments `low` to `high`; see `settle_states`."""
    target, width = s.values + (time % s.capacity) * s.size, s.size // s.envs
    if s.source:
        copy(s.source + low * width, target + low * width, (high - low) * width)
    else:
        join(s, time, bools(ended, s.envs), low, high)


@compiled
def join(s: Any, time: int, ended: Any, low: int, high: int) -> None:
    """Write the joined observations of running episodes, see `JoinedObservations`; ended: [envs] bool."""
    target, width, first = s.values + time % s.capacity * s.size, s.size // s.envs, 0
    for e in range(low, high):
        if ended[e]:
            f32(target + e * width, width // 4)[:] = float32(0.0)
        else:
            copy(before(s, time, e), target + e * width, width)
    for p in range(s.players):
        b = record_at(s.player + _PLAYER_BYTES * p, PLAYER)
        turn, over, cut = bools(b.turn, s.envs), bools(b.over, s.envs), bools(b.cut, s.envs)
        for e in range(low, high):
            now = f32(target + e * width + first, b.values + 1)
            if over[e] or cut[e]:
                now[:] = float32(0.0)
            if turn[e]:
                copy(b.obs + 4 * b.values * e, target + e * width + first, 4 * b.values)
            now[b.values] = float32(1.0 if turn[e] else 0.0)
        first += 4 * (b.values + 1)


@compiled
def join_final(s: Any, time: int, e: int, target: int) -> None:
    """Write the joined observations of environment e, whose episode ended in the Step of `time`, to an address."""
    copy(before(s, time, e), target, s.size // s.envs)
    for p in range(s.players):
        b = record_at(s.player + _PLAYER_BYTES * p, PLAYER)
        over = bools(b.over, s.envs)[e] or bools(b.cut, s.envs)[e]
        if over:
            copy(b.final_obs + 4 * b.values * e, target, 4 * b.values)
        f32(target, b.values + 1)[b.values] = float32(1.0 if over and not s.turns else 0.0)
        target += 4 * (b.values + 1)


@compiled
def before(s: Any, time: int, e: int) -> int:
    """Return the address of the state of environment e one batch step before `time`."""
    address: int = s.values + (time - 1) % s.capacity * s.size + e * (s.size // s.envs)
    return address
