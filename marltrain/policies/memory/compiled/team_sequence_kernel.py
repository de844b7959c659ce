"""Sequences of batch steps of a team, drawn and read in compiled code as `TeamReader` does with `Needs.block`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float32

from marltrain.jit.compiling import compiled
from marltrain.jit.views import bools, f32, i64, record_at, u8
from marltrain.policies.memory.compiled.replay_kernel import MOST_CELLS
from marltrain.policies.memory.compiled.sequence_kernel import read_extras, share_out_rows
from marltrain.policies.memory.compiled.team_replay_kernel import (
    draw_steps,
    find_cells,
    is_drawable,
    read_state_rows,
    read_team_rows,
)

_ONE = (
    "count", "length", "burn_in",  # N sequences of L batch steps, B = N * L; batch steps of the burn-in
    "valid",  # [B] bool, written: whether the batch step is in the memory and in the episode of the one that was drawn
    "present", "begins",  # [players, B] bool, written
    "learned",  # [players, B] bool, whether the agent may learn from the player's decisions
    "weight", "share",  # [players, B] float32, written: 1 for rows that are learned from; with sums of 1 for each agent
    "team_weight", "team_share",  # [B] float32, written: the same of batch steps
    "extras", "extra",  # number of EXTRAS, and their address
)  # fmt: skip
TEAM_SEQUENCES = np.dtype([(name, np.int64) for name in _ONE])
"""Arguments of `draw_team_sequences` and `read_team_sequences`, beside TEAM_READING: numbers and addresses."""


@compiled
def team_sequences_at(address: int) -> Any:
    """Return the TEAM_SEQUENCES record at an address."""
    return record_at(address, TEAM_SEQUENCES)


@compiled
def draw_team_sequences(t: Any, d: Any, r: Any, now: int) -> None:
    """Draw batch steps, and write those around them in time; now: the batch step of the newest row."""
    batch = d.batch
    d.batch = t.count
    draw_steps(d, r, now)
    d.batch = batch
    oldest = max(d.oldest, now - r.capacity + 1)
    times, envs, valid = i64(d.time, batch), i64(d.env, batch), bools(t.valid, batch)
    for n in range(t.count - 1, -1, -1):  # the last first: the places of a sequence are behind its number
        drawn, env = times[n], envs[n]
        for j in range(t.length):
            time, place = drawn + j - t.burn_in, n * t.length + j
            there = min(max(time, oldest), now - 1)
            times[place], envs[place] = there, env
            valid[place] = time == there and is_drawable(d, r, oldest, (there - oldest) * r.envs + env)
    find_cells(d, r)
    for n in range(t.count):
        start = n * t.length
        for b in range(start + t.burn_in + 1, start + t.length):
            valid[b] = valid[b] and valid[b - 1] and goes_on(d, r, b - 1)
        for j in range(t.burn_in - 1, -1, -1):
            b = start + j
            valid[b] = valid[b] and goes_on(d, r, b) and (j == t.burn_in - 1 or valid[b + 1])


@compiled
def goes_on(d: Any, r: Any, b: int) -> bool:
    """Return whether a player acts after batch step b in the same episode."""
    cells, following, found = i64(r.cells, d.players * d.batch), i64(r.next, MOST_CELLS), False
    for i in range(b, d.players * d.batch, d.batch):
        found = found or following[cells[i]] >= 0
    return found


@compiled
def read_team_sequences(t: Any, d: Any, r: Any) -> None:
    """Write the columns of the drawn sequences; those of batch steps that are not valid are as without players."""
    read_team_rows(d, r)
    read_state_rows(d, r)
    read_extras(t.extra, t.extras, r.cells, d.players * d.batch)
    valid = bools(t.valid, d.batch)
    for b in range(d.batch):
        learned = valid[b] and b % t.length >= t.burn_in
        f32(t.team_weight, d.batch)[b] = float32(1.0) if learned else float32(0.0)
        if not valid[b]:
            f32(d.reward, d.batch)[b] = f32(d.discount, d.batch)[b] = float32(0.0)
        for i in range(d.players):
            write_row(t, d, r, i, b, valid[b], learned)
    share_out_rows(t.team_weight, t.team_share, d.batch)
    for k in range(r.agents):
        share_out_rows(t.weight + 4 * k * r.rows, t.share + 4 * k * r.rows, r.rows)


@compiled
def write_row(t: Any, d: Any, r: Any, player: int, b: int, valid: bool, learned: bool) -> None:
    """Write whether a player is present at batch step b, and its weight; clear its columns where it is not."""
    row, size = player * d.batch + b, d.players * d.batch
    bools(t.present, size)[row] = valid
    bools(t.begins, size)[row] = b % t.length == 0 or not follows(t, d, r, row, b)
    mine = learned and bools(t.learned, size)[row]
    f32(t.weight, size)[row] = float32(1.0) if mine else float32(0.0)
    if valid:
        return
    bools(d.next_present, size)[row] = False
    f32(r.to_reward, size)[row] = f32(r.to_discount, size)[row] = float32(0.0)
    seen = r.obs_size + 4 * r.hots
    for target, width, value in ((r.to_obs, seen, 0), (r.to_next_obs, seen, 0),
                                 (r.to_legal, r.legal_size, 1), (r.to_next_legal, r.legal_size, 1)):  # fmt: skip
        cleared = u8(target + row * width, width)
        for i in range(width):
            cleared[i] = value


@compiled
def follows(t: Any, d: Any, r: Any, row: int, b: int) -> bool:
    """Return whether a player's row at batch step b, which is no first one, follows the row before it."""
    cells, following = i64(r.cells, d.players * d.batch), i64(r.next, MOST_CELLS)
    return bools(t.valid, d.batch)[b - 1] and following[cells[row - 1]] == i64(d.time, d.batch)[b]
