from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from marltrain.core.errors import SpecError
from marltrain.policies.memory import Storage, Streams
from tests.policies.memory.worlds import Record, World, blank, drive, rollouts, seeing, uniform


def show(spec, frames, end=None):
    """A Step of one environment in which both players see the given three frame numbers; end: frames of a last look."""
    step = blank(spec)
    step.turn[0][:] = True
    step.obs[0]["camera"][:] = np.array(frames, np.uint8)[:, None, None]
    if end is not None:
        step.truncated[:] = step.ended[:] = True
        step.final_obs[0]["camera"][:] = np.array(end, np.uint8)[:, None, None]
    return step


def run(shown, rows=8):
    """Record Steps made by `show`; return the streams."""
    spec = seeing()
    streams = Streams(spec, 1, {0: Storage(rows)})
    for frames in shown:
        streams.record_step(show(spec, *frames) if isinstance(frames, tuple) else show(spec, frames))
        streams.record_actions(0, np.zeros((2, 1), np.int64), {})
    return streams


def read(streams, rows=100):
    """Every (stack, next stack) that can be drawn for player 1."""
    batch = uniform(streams, [[1]]).sample([np.random.default_rng(0)], np.array([0.9]), rows)
    stacks = [obs["camera"][0, :, :, 0, 0].tolist() for obs in (batch.obs, batch.next_obs)]
    return sorted({(tuple(a), tuple(b)) for a, b in zip(*stacks, strict=True)})


def test_stacks_by_hand():
    """Two episodes; the first ends with a look at frame 9."""
    streams = run([[1, 1, 1], [1, 1, 2], [1, 2, 3], ([4, 4, 4], [2, 3, 9]), [4, 4, 5]])
    assert read(streams) == [
        ((1, 1, 1), (1, 1, 2)),
        ((1, 1, 2), (1, 2, 3)),
        ((1, 2, 3), (2, 3, 9)),
        ((4, 4, 4), (4, 4, 5)),
    ]


def test_each_frame_is_stored_once():
    ring = run([[1, 1, 1]]).rings[0]
    assert ring.obs["camera"].shape == (2, ring.capacity, 1, 2, 2)
    assert ring.obs["vector"].shape == (2, ring.capacity, 1, 2)


def test_a_row_whose_frames_are_gone_is_not_drawn():
    """Room for 2 rows, the newest, and the 2 frames before: of rows 5 to 9, only 7 and 8 are closed and complete."""
    shown = [[max(t - 2, 1), max(t - 1, 1), t] for t in range(1, 11)]
    streams = run(shown, rows=2)
    assert streams.rings[0].capacity == 5
    assert uniform(streams, [[1]]).size().tolist() == [2]
    assert read(streams) == [((6, 7, 8), (7, 8, 9)), ((7, 8, 9), (8, 9, 10))]


def run_b(when, rows=1, each_step=lambda t, streams: None):
    """b decides at some batch steps, seeing frames 1, 2, 3, ...; a at all, seeing the same always."""
    spec = seeing()
    streams = Streams(spec, 1, {0: Storage(rows)})
    frame = 0
    for t in range(when[-1] + 1):
        step = show(spec, [1, 1, 1])
        step.turn[0][1] = t in when
        if t in when:
            frame += 1
            stack = np.array([max(frame - 2, 1), max(frame - 1, 1), frame], np.uint8)
            step.obs[0]["camera"][1, 0] = stack[:, None, None]
        streams.record_step(step)
        streams.record_actions(0, np.zeros((2, 1), np.int64), {})
        each_step(t, streams)
    return streams


def stacks_of(rollout):
    """Agent 0's stacks, by their frames."""
    return rollout.obs["camera"][0, :, :, 0, 0].tolist()


def test_frames_before_a_drop_are_kept_for_the_rows_after():
    """The row of batch step 5 begins where that of 1 would be overwritten, and needs its frame."""
    readers: list[Any] = []

    def each_step(t, streams):
        if t == 0:
            readers.append(rollouts(streams, [[1]]))
        if t == 3:
            readers[0].take(np.array([0.9]))
            readers[0].drop(0)

    run_b([0, 1, 2, 5, 6, 7], each_step=each_step)
    assert stacks_of(readers[0].take(np.array([0.9]))) == [[2, 3, 4], [3, 4, 5]]


def test_rows_without_their_frames_are_in_no_rollout():
    """Nobody protected frame 1 when it was overwritten: the row of batch step 7 is left out, that of 8 is closed."""
    readers: list[Any] = []

    def each_step(t, streams):
        if t == 6:
            readers.append(rollouts(streams, [[1]]))

    run_b([0, 1, 2, 7, 8, 9], each_step=each_step)
    assert readers[0].size().tolist() == [1]
    assert stacks_of(readers[0].take(np.array([0.9]))) == [[3, 4, 5]]


def test_frames_lost_before_the_ring_grew_stay_lost():
    """b decides at batch steps 0 to 2 and waits till 7: its open row makes the ring grow when frame 1 has gone."""
    streams = run_b([0, 1, 2, 7, 8, 9, 10, 11])
    assert streams.rings[0].capacity == 8
    assert read(streams) == [((4, 5, 6), (5, 6, 7)), ((5, 6, 7), (6, 7, 8))]


@pytest.mark.parametrize("shown", [
    [[0, 0, 1]],  # filled up with zeros, not with the first frame
    [[1, 1, 1], [1, 2, 3]],  # a frame came between two decisions
    [[1, 1, 1], ([4, 4, 4], [1, 2, 9])],  # the same at an end
    [[1, 1, 1], ([1, 1, 4], [1, 1, 9])],  # a new episode begins with the old one's frames
])  # fmt: skip
def test_stacks_that_cannot_be_read_back_are_refused(shown):
    with pytest.raises(SpecError, match=r"'a'.*'camera'"):
        run(shown)


def test_a_late_break_is_found_too():
    steady = [[1, 1, 1]] + [[1, 1, 1] for _ in range(80)]
    run(steady)
    with pytest.raises(SpecError, match="batch step 81"):
        run([*steady, [1, 2, 1]])


def test_random_stacks_come_back_whole():
    """The on-policy reader finds every frame of its rows, however far back: the ring keeps or grows."""
    spec = seeing()
    streams = Streams(spec, 2, {0: Storage(3, {})})
    record = Record(spec, 2)
    reader = rollouts(streams, [[0], [1]])
    taken: list[tuple[float, Any]] = []

    def take(t):
        if t % 9 == 8:
            rollout = reader.take(np.full(2, 0.9))
            for k in range(2):
                kept = rollout.weight[k] > 0
                taken.extend(zip(rollout.obs["vector"][k, kept, 0], rollout.obs["camera"][k, kept], strict=True))

    drive(World(spec, 2, 1), streams, record, take, 90)
    truth = {row.obs["vector"][0]: row.obs["camera"] for p in (0, 1) for row in record.rows[p]}
    assert len(taken) > 100
    assert all((truth[number] == camera).all() for number, camera in taken)
