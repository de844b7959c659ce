"""Draws and reads batch steps of a team from a ring buffer in compiled code."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float32, float64

from marltrain.jit.compiling import compiled
from marltrain.jit.views import bools, copy, f32, f64, i64, record_at
from marltrain.policies.memory.choice import SCAN_BELOW
from marltrain.policies.memory.compiled.replay_kernel import MOST_CELLS, below, read_row
from marltrain.policies.memory.one_reward import SAME

_ONE = (
    "reading",  # address of a READING, whose cells are those of the players [N, B]
    "players", "batch", "player",  # N players, B batch steps; [N] int64, the players' rows of the ring
    "learners", "learner",  # the number of players whose seats learn now; [N] int64, the first are their rows
    "oldest", "drawable_count",  # oldest batch step of the ring; address of each player's number of drawable rows
    "generator", "draw",  # addresses of a generator's state and of its function for the next 32 bits
    "time", "env",  # [B] int64, written
    "further",  # [B] int64, written: the batch steps after these whose rewards are added
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
    """Write the rows of the players, the rewards and discounts of the team, and the players that have next values."""
    gammas, size = f64(r.gamma, r.agents), d.players * d.batch
    cells, rewards, discounts = i64(r.cells, size), f32(r.to_reward, size), f32(r.to_discount, size)
    d.differs = 0
    for k in range(r.agents):
        if d.one_reward and gammas[k] != gammas[0]:
            d.differs = 1
    further = i64(d.further, d.batch)
    for b in range(d.batch):
        further[b] = further_steps(d, r, b)
    for i in range(size):
        steps, gamma = further[i % d.batch], gammas[i // r.rows]
        last, rewards[i], discounts[i] = summed(r, cells[i], steps, gamma)
        read_row(r, i, cells[i], last)
    for b in range(d.batch):
        read_team(d, r, b, gammas[0])


@compiled
def further_steps(d: Any, r: Any, b: int) -> int:
    """Return how many batch steps after the drawn one b enter the sums of rewards.

    All players act at each batch step, and their parts of an episode end together.
    """
    cell, following, steps = i64(r.cells, d.batch)[b], i64(r.next, MOST_CELLS), 0
    while steps + 1 < r.n_step and following[later(r, cell, steps)] >= 0:
        if not is_drawable(d, r, i64(d.time, d.batch)[b] + steps + 1, i64(d.env, d.batch)[b]):
            break
        steps += 1
    return steps


@compiled
def later(r: Any, cell: int, steps: int) -> int:
    """Return the cell of the same player and environment some batch steps later."""
    if steps == 0:
        return cell
    slot = cell // r.envs % r.capacity
    moved: int = cell + ((slot + steps) % r.capacity - slot) * r.envs
    return moved


@compiled
def summed(r: Any, cell: int, further: int, gamma: float) -> tuple[int, Any, Any]:
    """Return the last of several cells of a player, the discounted sum of their rewards, and the discount.

    further: number of the cells after the first one.
    """
    rewards = f32(r.reward, MOST_CELLS)
    total, factor = float64(rewards[cell]), gamma
    for steps in range(1, further + 1):
        total, factor = total + factor * rewards[later(r, cell, steps)], factor * gamma
    cell = later(r, cell, further)
    ended = i64(r.next, MOST_CELLS)[cell] < -1 and bools(r.terminated, MOST_CELLS)[cell]
    return cell, float32(total), float32(0.0) if ended else float32(factor)


@compiled
def read_state_rows(d: Any, r: Any) -> None:
    """Write the global states of the drawn batch steps, if there are any."""
    if d.size:
        for b in range(d.batch):
            read_states(d, r, b)


@compiled
def read_team(d: Any, r: Any, b: int, gamma: float) -> None:
    """Write reward, discount and the players with a next value of drawn batch step b."""
    cells, present = i64(r.cells, d.players * d.batch), bools(d.next_present, d.players * d.batch)
    following, terminated = i64(r.next, MOST_CELLS), bools(r.terminated, MOST_CELLS)
    further, valued = i64(d.further, d.batch)[b], False
    for i in range(b, d.players * d.batch, d.batch):
        cell = later(r, cells[i], further)
        present[i] = following[cell] != -1 and not (following[cell] < -1 and terminated[cell])
        valued = valued or present[i]
    total, factor = float64(0.0), float64(1.0)
    for steps in range(further + 1):
        if d.one_reward:
            total += factor * one_reward(d, r, b, steps)
        factor *= gamma
    if d.one_reward:
        f32(d.reward, d.batch)[b] = float32(total)
    f32(d.discount, d.batch)[b] = float32(factor) if valued else float32(0.0)


@compiled
def one_reward(d: Any, r: Any, b: int, steps: int) -> Any:
    """Return the reward of the team some batch steps after the drawn one b; note if its players' rewards differ."""
    cells, following = i64(r.cells, d.players * d.batch), i64(r.next, MOST_CELLS)
    rewards, low, high = f32(r.reward, MOST_CELLS), float32(np.inf), float32(-np.inf)
    for i in range(b, d.players * d.batch, d.batch):
        cell = later(r, cells[i], steps)
        if following[cell] != -1:
            low, high = min(low, rewards[cell]), max(high, rewards[cell])
    if high - low > float32(SAME) * max(float32(1.0), abs(high)):
        d.differs = 1
    return high


@compiled
def read_states(d: Any, r: Any, b: int) -> None:
    """Write the global states of drawn batch step b and after it; see `places_following` of `GlobalStates`."""
    time, further, env = i64(d.time, d.batch)[b], i64(d.further, d.batch)[b], i64(d.env, d.batch)[b]
    place, after = time % d.capacity * r.envs + env, (time + further + 1) % d.capacity * r.envs + env
    copy(d.values + place * d.size, d.state + b * d.size, d.size)
    entry = i64(d.final, d.capacity * r.envs)[after]
    source = d.last + (-2 - entry) * d.size if entry < -1 else d.values + after * d.size
    copy(source, d.next_state + b * d.size, d.size)
