"""Draws and reads batch steps of a team from a ring buffer in compiled code."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float32

from marltrain.jit.compiling import compiled
from marltrain.jit.views import bools, copy, f32, f64, i64, record_at
from marltrain.policies.memory.choice import SCAN_BELOW
from marltrain.policies.memory.compiled.replay_kernel import MOST_CELLS, below, read
from marltrain.policies.memory.one_reward import SAME

_ONE = (
    "reading",  # address of a READING, whose cells are those of the players [N, B]
    "players", "batch", "player",  # N players, B batch steps; [N] int64, the players' rows of the ring
    "learners", "learner",  # the number of players whose seats learn now; [N] int64, the first are their rows
    "oldest", "drawable_count",  # oldest batch step of the ring; address of each player's number of drawable rows
    "generator", "draw",  # addresses of a generator's state and of its function for the next 32 bits
    "time", "env",  # [B] int64, written
    "reward", "discount", "next_present",  # [B] and [N, B] bool, written; a reward of the team only with `one_reward`
    "weight",  # [N, B] float32, of the players' rows
    "one_reward",  # whether the players have one reward
    "differs",  # whether their rewards, or the agents' discounts, are not equal; written with `one_reward`
    "values", "final", "last",  # global states [C, E, S], entries of their end table [C, E], states of the end table
    "capacity", "size",  # C; bytes of a state, 0 without states
    "state", "next_state",  # [B, S], written
)  # fmt: skip
TEAM_READING = np.dtype([(name, np.int64) for name in _ONE])
"""Arguments of `draw_steps` and `read_steps`: numbers and addresses."""


@compiled
def team_reading_at(address: int) -> Any:
    """Return the TEAM_READING record at an address."""
    return record_at(address, TEAM_READING)


@compiled
def draw_steps(d: Any, r: Any, now: int) -> None:
    """Draw batch steps as `TeamReader.sample` does; now: the batch step of the newest row.

    r: the READING.
    """
    oldest = max(d.oldest, now - r.capacity + 1)
    places, counts, most = (now - oldest) * r.envs, i64(d.drawable_count, MOST_CELLS), 0
    for player in i64(d.learner, d.learners):
        most = max(most, counts[player])
    times, envs, found = i64(d.time, d.batch), i64(d.env, d.batch), 0
    if most < SCAN_BELOW * d.batch:
        listed, count = np.empty(places, np.int64), 0
        for place in range(places):
            if is_drawable(d, r, oldest, place):
                listed[count] = place
                count += 1
        for b in range(d.batch):
            place = listed[one_of(d, count)]
            times[b], envs[b] = oldest + place // r.envs, place % r.envs
    else:
        while found < d.batch:
            for _ in range(int(1.1 * (d.batch - found)) + 8):
                place = one_of(d, places)
                if found < d.batch and is_drawable(d, r, oldest, place):
                    times[found], envs[found] = oldest + place // r.envs, place % r.envs
                    found += 1


@compiled
def one_of(d: Any, count: int) -> int:
    """Return a random integer in [0, count)."""
    return below(d.draw, d.generator, count) if count > 1 else 0


@compiled
def is_drawable(d: Any, r: Any, oldest: int, place: int) -> bool:
    """Return whether a row of a batch step is closed and learnable, of a player whose seat learns now.

    place: (batch step - oldest) * E + environment.
    """
    time, env = oldest + place // r.envs, place % r.envs
    following, learnable = i64(r.next, MOST_CELLS), bools(r.learnable, MOST_CELLS)
    for player in i64(d.learner, d.learners):
        slot = player * r.capacity + time % r.capacity
        if following[slot * r.envs + env] != -1 and learnable[slot]:
            return True
    return False


@compiled
def read_steps(d: Any, r: Any) -> None:
    """Write the columns of the drawn batch steps, at which all players acted; see `TeamReading.is_complete`."""
    find_cells(d, r)
    read(r)
    read_team_rows(d, r)
    read_state_rows(d, r)


@compiled
def find_cells(d: Any, r: Any) -> None:
    """Write the cells of the players at the drawn batch steps."""
    times, envs, cells = i64(d.time, d.batch), i64(d.env, d.batch), i64(r.cells, d.players * d.batch)
    players = i64(d.player, d.players)
    for i in range(d.players):
        for b in range(d.batch):
            slot = players[i] * r.capacity + times[b] % r.capacity
            cells[i * d.batch + b] = slot * r.envs + envs[b]


@compiled
def read_team_rows(d: Any, r: Any) -> None:
    """Write the rewards and discounts of the team, and the players that have next values."""
    gammas = f64(r.gamma, r.agents)
    d.differs = 0
    for k in range(r.agents):
        if d.one_reward and gammas[k] != gammas[0]:
            d.differs = 1
    for b in range(d.batch):
        read_team(d, r, b, float32(gammas[0]))


@compiled
def read_state_rows(d: Any, r: Any) -> None:
    """Write the global states of the drawn batch steps, if there are any."""
    if d.size:
        for b in range(d.batch):
            read_states(d, r, b)


@compiled
def read_team(d: Any, r: Any, b: int, gamma: Any) -> None:
    """Write reward, discount and the players with a next value of drawn batch step b."""
    cells, rewards = i64(r.cells, d.players * d.batch), f32(r.to_reward, d.players * d.batch)
    following, terminated = i64(r.next, MOST_CELLS), bools(r.terminated, MOST_CELLS)
    present = bools(d.next_present, d.players * d.batch)
    low, high, valued = float32(np.inf), float32(-np.inf), False
    for i in range(b, d.players * d.batch, d.batch):
        pointer = following[cells[i]]
        present[i] = pointer != -1 and not (pointer < -1 and terminated[cells[i]])
        valued = valued or present[i]
        if pointer != -1:
            low, high = min(low, rewards[i]), max(high, rewards[i])
    if d.one_reward:
        f32(d.reward, d.batch)[b] = high
        if high - low > float32(SAME) * max(float32(1.0), abs(high)):
            d.differs = 1
    f32(d.discount, d.batch)[b] = gamma if valued else float32(0.0)


@compiled
def read_states(d: Any, r: Any, b: int) -> None:
    """Write the global states of drawn batch step b and after it, as `GlobalStates.at_times` returns them."""
    time, env = i64(d.time, d.batch)[b], i64(d.env, d.batch)[b]
    place, after = time % d.capacity * r.envs + env, (time + 1) % d.capacity * r.envs + env
    copy(d.values + place * d.size, d.state + b * d.size, d.size)
    entry = i64(d.final, d.capacity * r.envs)[after]
    source = d.last + (-2 - entry) * d.size if entry < -1 else d.values + after * d.size
    copy(source, d.next_state + b * d.size, d.size)
