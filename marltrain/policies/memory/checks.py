"""Checks of a restored ring buffer: times and counts.

All checks are vectorized, so that checking a ring of a million rows takes a fraction of the time of reading it.
"""

from __future__ import annotations

import numpy as np

from marltrain.core.errors import SaveError
from marltrain.core.layout import Array
from marltrain.policies.memory.ring import Ring
from marltrain.storage.checks import actions, check_memory, finite, within
from marltrain.storage.state import State


def span_of(ring: Ring, state: State) -> tuple[int, int, int]:
    """Return (capacity, now, oldest) of a saved ring; raises SaveError unless this empty ring can hold its contents.

    A ring doubles when it is full of rows that are still needed. A file therefore cannot request a grown ring larger
    than twice its contents.
    """
    capacity, now, oldest = state.count("capacity", 1), state.count("now"), state.count("oldest")
    held = now + 1 - oldest
    if not 0 < held <= capacity:
        raise SaveError(f"{state.name}: a memory of {capacity} batch steps cannot hold those from {oldest} to {now}")
    check_memory(f"a memory of {capacity} batch steps", capacity * ring.step_size)
    if capacity != ring.capacity and not _grown(ring.capacity, capacity, held):
        raise SaveError(
            f"{state.name}: the saved memory holds {capacity} batch steps, {held} of them in use; this one holds "
            f"{ring.capacity}, and doubles when it is full"
        )
    return capacity, now, oldest


def _grown(first: int, capacity: int, held: int) -> bool:
    """Return whether doubling a ring of `first` batch steps can give `capacity`, with `held` batch steps in use."""
    times, rest = divmod(capacity, first)
    return rest == 0 and times.bit_count() == 1 and times > 1 and 2 * held > capacity


def check_rows(ring: Ring, state: State, now: int, oldest: int) -> dict[str, Array]:
    """Return the saved columns [P, H, ...] of the H batch steps from `oldest` to `now`, checked.

    state: state of the ring; its open rows and counts are also checked.
    Rows without a decision are checked, too: a team reads the rows of all its players at a batch step.
    Raises SaveError for invalid values.
    """
    rows, (players, _, _) = state.part("rows"), ring.axes
    held = now + 1 - oldest
    saved = {
        name: rows.array(name, column.dtype, (players, held, *column.shape[2:]))
        for name, column in ring.columns.items()
    }
    times = np.arange(oldest, now + 1)[None, :, None]
    acted = saved["acted"]
    turn = state.array("turn", bool, (players, ring.num_envs))
    _check_next(rows, saved["next"], acted, times, now, state.part("ends").any_array("time").size)
    _check_following(rows, saved["next"], acted, turn, oldest)
    actions(rows.place("action"), saved["action"], ring.group.action_space)
    for name in saved:
        if name == "reward" or name.startswith("extras/"):
            finite(rows.place(name), saved[name])
        elif name.startswith("obs/"):
            finite(rows.place(name), saved[name], acted)
    if "previous" in saved:
        there = acted & saved["complete"] & (saved["previous"] >= 0)
        within(rows.place("previous"), saved["previous"], np.where(there, oldest, -1), times - 1)
    _check_open(state, saved, oldest, now)
    drawable = (saved["next"] != -1) & saved["learnable"][..., None] & saved.get("complete", True)
    counts = drawable.sum((1, 2))
    whole = state.array("whole", np.int64, (players,))
    if (whole != counts).any():
        raise SaveError(
            f"{state.place('whole')} must be the rows that can be drawn, {counts.tolist()}, got {whole.tolist()}"
        )
    return saved


def _check_next(rows: State, pointers: Array, acted: Array, times: Array, now: int, entries: int) -> None:
    """Raise SaveError for pointers to neither a later row nor an end entry, and pointers of rows without a decision."""
    if acted[:, -1].any():
        raise SaveError(f"{rows.place('acted')}: the newest row, of batch step {now}, is not decided yet")
    least, most = np.where(pointers < 0, -1 - entries, times + 1), np.where(pointers < 0, -1, now)
    within(rows.place("next"), pointers, least, most)
    if (stray := (pointers != -1) & ~acted).any():
        place = tuple(int(i) for i in np.argwhere(stray)[0])
        raise SaveError(
            f"{rows.place('next')}{list(place)} must be -1, where no decision was made, got {pointers[place]}"
        )


def _check_following(rows: State, pointers: Array, acted: Array, turn: Array, oldest: int) -> None:
    """Raise SaveError for a pointer to a row in which the player neither decided nor, in the newest row, has to.

    A batch step in which nobody decided is the last of a call of `train`: the next call begins with new episodes.
    """
    decides = acted | ~acted.any((0, 2), keepdims=True)
    decides[:, -1] = turn
    player, row, env = np.nonzero(pointers >= 0)
    wrong = np.flatnonzero(~decides[player, pointers[player, row, env] - oldest, env])
    if len(wrong):
        place = [int(axis[wrong[0]]) for axis in (player, row, env)]
        raise SaveError(
            f"{rows.place('next')}{place} must be a batch step at which the player decides, got "
            f"{pointers[tuple(place)]}"
        )


def _check_open(state: State, saved: dict[str, Array], oldest: int, now: int) -> None:
    """Raise SaveError for open rows that do not exist, have no decision, or are closed."""
    (players, _, envs), place = saved["next"].shape, state.place("open")
    opened = state.array("open", np.int64, (players, envs))
    within(place, opened, oldest, now - 1, opened != -1)
    player, env = np.nonzero(opened >= 0)
    there = player, opened[player, env] - oldest, env
    wrong = np.flatnonzero(~saved["acted"][there] | (saved["next"][there] != -1))
    if len(wrong):
        at = [int(player[wrong[0]]), int(env[wrong[0]])]
        raise SaveError(f"{place}{at} must be a row that waits for what follows, got {opened[tuple(at)]}")
