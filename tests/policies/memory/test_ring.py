"""A ring that is saved and goes on elsewhere, and one whose environments had to begin anew."""

import dataclasses
import sys
from typing import Any

import numpy as np
import pytest

from marltrain.core.errors import SaveError
from marltrain.policies.memory import Storage, Streams
from marltrain.policies.memory.needs import Column, Needs
from tests.policies.memory.worlds import World, blank, one_group, rollouts, seeing, two_groups, uniform

COLUMNS = {"log_prob": Column()}
GAMMA = np.array([0.9])


def readers(streams):
    """One of either kind in each group."""
    groups = streams.spec.groups
    each = [[list(group.players)] for group in groups]
    return [make(streams, seats, COLUMNS) for seats in each for make in (rollouts, uniform)]


def equal(one, other):
    """Whether two batches hold the same in every field."""
    for field in dataclasses.fields(one):
        a, b = getattr(one, field.name), getattr(other, field.name)
        pairs = [(a[n], b[n]) for n in a] if isinstance(a, dict) else [(a, b)]
        assert all(x is y is None or np.array_equal(x, y, equal_nan=x.dtype.kind == "f") for x, y in pairs), field.name


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("spec", [one_group, two_groups, seeing])
def test_restored_streams_go_on_as_the_first_ones(spec, seed):
    """Ragged worlds, a ring of 6 rows that wraps, rollouts taken every 9th batch step, which makes it grow.

    Seats learn at times: whether rows may be learned from is restored too.
    """
    world = World(spec(), 3, seed)
    storage = {g: Storage(6, COLUMNS) for g in range(len(world.spec.groups))}
    streams, restored = Streams(world.spec, 3, storage), None
    reading, again = readers(streams), []
    for t in range(90):
        step = world.next_step(first=t == 0)
        for each in filter(None, (streams, restored)):
            each.record_step(step)
        if t == 40 + seed:
            restored = Streams(world.spec, 3, storage)
            restored.restore(streams.state())
            again = readers(restored)
            for old, new in zip(reading, again, strict=True):
                new.restore(old.state())
        for both in zip(reading, *([again] if again else []), strict=True):
            assert len({reader.size().item() for reader in both}) == 1
            if not both[0].size().all() or (both[0].needs.on_policy and t % 9):
                continue
            if both[0].needs.on_policy:
                batches = [reader.take(GAMMA) for reader in both]
            else:
                batches = [reader.sample([np.random.default_rng(t)], GAMMA, 20) for reader in both]
            equal(batches[0], batches[-1])
        for each in filter(None, (streams, restored)) if t % 10 == 5 or t == 40 + seed else ():
            each.learning(np.arange(len(world.spec.players)) != t // 10 % 3)
        for g in range(len(world.spec.groups)):
            action, extras = world.decide(g)
            for each in filter(None, (streams, restored)):
                each.record_actions(g, action, extras)
    assert restored is not None
    assert streams.rings[0].capacity == restored.rings[0].capacity > 6


@pytest.mark.parametrize("dies", [False, True], ids=["whole episodes", "with ends"])
@pytest.mark.parametrize("spec", [one_group, two_groups])
def test_the_simultaneous_case_is_the_general_one(spec, dies):
    """Everybody has the turn at every step, in a ring of 5 rows: rows are linked as a whole, or one by one."""
    spec, rng = spec(), np.random.default_rng(3)
    storage = {g: Storage(5, COLUMNS) for g in range(len(spec.groups))}
    quick, slow = Streams(spec, 3, storage), Streams(spec, 3, storage)
    step = blank(spec, 3)
    for array in (*step.turn, *step.alive):
        array[...] = True
    for t in range(40):
        for array in (*step.obs, *step.final_obs, step.reward):
            array[...] = rng.random(array.shape)
        step.ended[...] = dies & (t > 0) & (rng.random(3) < 0.3)
        step.truncated[...] = step.ended
        for ring in slow.rings.values():
            ring._everyone_open = False
        for streams in (quick, slow):
            streams.record_step(step)
        one, other = quick.state(), slow.state()
        assert one.info == other.info
        assert one.arrays.keys() == other.arrays.keys()
        for name, array in one.arrays.items():
            np.testing.assert_array_equal(array, other.arrays[name], err_msg=f"{name}, step {t}")
        for g, group in enumerate(spec.groups):
            action = rng.integers(2, size=(group.size, 3))
            extras = {"log_prob": rng.random((group.size, 3), np.float32)}
            for streams in (quick, slow):
                streams.record_actions(g, action, extras)
                assert (streams.rings[g].open == t).all()
            assert quick.rings[g]._everyone_open


def test_a_ring_of_another_size_is_refused():
    small, large = (Streams(one_group(), 1, {0: Storage(rows)}) for rows in (4, 6))
    small.record_step(blank(small.spec))
    with pytest.raises(
        SaveError, match="holds 5 batch steps, 1 of them in use; this one holds 7, and doubles when it is full"
    ):
        large.restore(small.state())


def test_where_an_episode_begins_anew_the_row_whose_outcome_is_gone_is_cut():
    """Two environments in which everybody decides. At batch step 3 environment 1 begins anew and shows 100."""
    spec = one_group()
    streams = Streams(spec, 2, {0: Storage(8)})
    taken: Any = streams.reader([[0]], Needs(True))
    drawn: Any = streams.reader([[0]], Needs(False))
    step: Any = blank(spec, 2)
    step.turn[0][:], step.legal[0][:] = True, True
    for t in range(6):
        step.obs[0][:], step.reward[:] = t, t
        streams.record_step(step)
        if t == 3:
            assert drawn.size().tolist() == [6]
            step.obs[0][:, 1] = 100
            streams.restart(step, np.array([1]))
            assert drawn.size().tolist() == [5]
        streams.record_actions(0, np.full((3, 2), t), {})
    rollout = taken.take(GAMMA)
    assert rollout.obs[0, :, 0].tolist() == [0, 1, 2, 3, 4, 0, 1, 100, 4]  # not the 2 of environment 1
    assert rollout.reward[0].tolist() == [1, 2, 3, 4, 5, 1, 2, 4, 5]
    assert np.flatnonzero(rollout.cut[0]).tolist() == [4, 6, 8]
    assert rollout.boot_obs[0, rollout.boot[0, [4, 6, 8]], 0].tolist() == [5, 2, 5]
    batch = drawn.sample([np.random.default_rng(0)], GAMMA, 500)
    pairs = set(zip(batch.obs[0, :, 0].tolist(), batch.next_obs[0, :, 0].tolist(), strict=True))
    assert pairs == {(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (100, 4)}
    assert streams.rings[0].drawable_count.tolist() == [9, 9, 9]


def moving(rows, **settings):
    """A ring of two environments in which three players move, and its streams."""
    streams = Streams(one_group(masked=False), 2, {0: Storage(rows, **settings)})
    step: Any = blank(streams.spec, 2)
    step.turn[0][:] = True
    return streams, streams.rings[0], step


def advance(streams, step, steps, decide_last=False):
    """So many batch steps; the last row is begun, and decided where asked."""
    for t in range(steps):
        streams.record_step(step)
        if decide_last or t < steps - 1:
            streams.record_actions(0, np.zeros((3, 2), np.int64), {})


def test_room_is_what_may_be_begun_before_a_row_is_lost_that_is_needed():
    """Five slots. A reader of rollouts needs what was decided since it was made, or since it last took."""
    streams, ring, step = moving(4)
    advance(streams, step, 2, decide_last=True)
    reader: Any = streams.reader([[0]], Needs(True))
    assert reader.earliest == 2
    for now, room in ((2, 4), (3, 3), (4, 2), (5, 1), (6, 0)):  # batch step 7 would take the place of 2
        streams.record_step(step)
        assert (ring.now, ring.room) == (now, room)
        streams.record_actions(0, np.zeros((3, 2), np.int64), {})
    advance(streams, step, 1)
    assert (ring.now, ring.capacity, ring.room) == (7, 10, 4)  # it has grown instead
    reader.take(GAMMA)
    assert (reader.earliest, ring.room) == (7, 9)
    del reader
    assert ring.room == sys.maxsize


@pytest.mark.parametrize("begun_last", [False, True], ids=["decided last", "begun last"])
@pytest.mark.parametrize(("before", "rows"), [(1, 1), (1, 3), (1, 4), (3, 4), (4, 3), (9, 4), (2, 1)])
def test_rows_that_were_written_elsewhere_are_counted_as_its_own(before, rows, begun_last):
    """Five slots, `before` rows, then up to 4 more: with no wrap, over one, and long after the first."""
    (mine, ring, step), (other, expected, _) = moving(4), moving(4)
    for streams in (mine, other):
        advance(streams, step, before)
    streams.record_actions(0, np.zeros((3, 2), np.int64), {})
    advance(other, step, rows - 1, decide_last=True)
    if begun_last:
        other.record_step(step)
    for name in ("next", "acted", "learnable", "drawable_count", "open", "turn"):  # what is written elsewhere
        getattr(ring, name)[...] = getattr(expected, name)
    ring.advanced(rows, rows if begun_last else rows - 1)
    for name in ("now", "coming", "oldest"):
        assert getattr(ring, name) == getattr(expected, name), name
    assert ring.open.tolist() == expected.open.tolist()
    for streams in (mine, other):
        if begun_last:
            streams.record_actions(0, np.zeros((3, 2), np.int64), {})
        streams.record_step(step)
    one, same = mine.state(), other.state()
    assert one.info == same.info
    for name, array in one.arrays.items():
        np.testing.assert_array_equal(array, same.arrays[name], err_msg=name)
    assert ring.drawable_count.tolist() == [2 * min(before + rows - 1 + begun_last, 4)] * 3
