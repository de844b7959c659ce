"""Rollouts: each row is taken once, in order; rows of a dropped seat are never taken."""

from __future__ import annotations

import numpy as np
import pytest

from marltrain.policies.memory import Storage, Streams
from tests.policies.memory.test_readers import COLUMNS, WORLDS, chain
from tests.policies.memory.worlds import Record, World, at, blank, drive, one_group, rollouts, same
from tests.tiers import rounds


def check_rollout(rollout, expected, gamma):
    """expected[k]: agent k's rows in order, from the record."""
    assert rollout.weight.sum(1).tolist() == [len(rows) for rows in expected]
    assert rollout.weight.shape[1] == max(len(rows) for rows in expected)
    most = 0
    for k, rows in enumerate(expected):
        boots = 0
        for b, row in enumerate(rows):
            assert same(at(rollout.obs, k, b), row.obs) and same(at(rollout.legal, k, b), row.legal)
            assert rollout.action[k, b] == row.action and rollout.extras["log_prob"][k, b] == row.log_prob
            assert rollout.reward[k, b] == row.reward
            terminated, obs, legal = row.end or (False, row.next.obs, row.next.legal)
            assert rollout.discount[k, b] == np.float32(0 if terminated else gamma[k])
            assert rollout.truncated[k, b] == (row.end is not None and not terminated)
            linked = b + 1 < len(rows) and row.next is rows[b + 1]
            assert rollout.cut[k, b] == (not linked)
            if linked:
                assert rollout.boot[k, b] == -1
                continue
            assert rollout.boot[k, b] == boots
            assert same(at(rollout.boot_obs, k, boots), obs) and same(at(rollout.boot_legal, k, boots), legal)
            boots += 1
        most = max(most, boots)
        pad = slice(len(rows), None)
        assert rollout.cut[k, pad].all() and not rollout.truncated[k, pad].any()
        for column in (rollout.weight, rollout.discount, rollout.reward, rollout.boot):
            assert not column[k, pad].any()
    assert len(rollout.boot_obs["vector"][0] if isinstance(rollout.boot_obs, dict) else rollout.boot_obs[0]) == most
    for obs in (rollout.obs, rollout.boot_obs):
        assert all(np.isfinite(array).all() for array in (obs.values() if isinstance(obs, dict) else [obs]))


@pytest.mark.parametrize("seed", range(rounds(1, 4)))
@pytest.mark.parametrize(("make", "envs", "rows", "dense", "seats"), WORLDS)
def test_rollouts_equal_a_record_kept_in_lists(make, envs, rows, dense, seats, seed):
    """Every row is taken once, in order, whatever happens between; agent 1 is dropped at times."""
    spec = make()
    streams = Streams(spec, envs, {g: Storage(rows, COLUMNS) for g in range(len(spec.groups))})
    record = Record(spec, envs)
    reader = rollouts(streams, seats, COLUMNS)
    gamma = np.linspace(0.5, 0.9, len(seats))
    taken, since = -1, [0] * len(seats)
    rng = np.random.default_rng(seed)

    def fresh(k):
        rows = [
            [row for row in record.rows.get(p, []) if row.closed_at is not None and row.closed_at > taken]
            for p in seats[k]
        ]
        return [row for own in rows for row in sorted(own, key=lambda r: (r.env, r.time)) if row.time >= since[k]]

    def act(t):
        nonlocal taken
        if rng.random() < 0.04 or 50 <= t <= 60:
            reader.drop(1)
            since[1] = t
        expected = [fresh(k) for k in range(len(seats))]
        assert reader.size().tolist() == [len(rows) for rows in expected]
        if rng.random() < 0.1 and any(expected):
            check_rollout(reader.take(gamma), expected, gamma)
            taken = t

    drive(World(spec, envs, seed, dense), streams, record, act, 120, resets=[40], cuts=[(20, [0]), (70, [envs - 1, 0])])


def test_each_row_is_taken_exactly_once_over_a_run():
    spec = one_group()
    streams = Streams(spec, 3, {0: Storage(4, COLUMNS)})
    record = Record(spec, 3)
    reader = rollouts(streams, [[0], [1], [2]], COLUMNS)
    seen: list[list[float]] = [[], [], []]

    def take(t):
        if t % 7 == 6 and reader.size().any():
            rollout = reader.take(np.full(3, 0.9))
            for k in range(3):
                seen[k] += rollout.obs[k, rollout.weight[k] > 0, 0].tolist()

    drive(World(spec, 3, 5), streams, record, take, 210)
    for k in range(3):
        assert len(seen[k]) > 100
        assert sorted(seen[k]) == sorted(row.obs[0] for row in record.closed(k) if row.closed_at <= 209)


def record_actions(streams, values):
    """One player decides at each batch step, seeing the values one after another."""
    for value in values:
        step = blank(streams.spec)
        step.turn[0][:], step.obs[0][:] = True, value
        streams.record_step(step)
        streams.record_actions(0, np.zeros((1, 1), np.int64), {})


def test_what_was_decided_before_a_drop_is_never_taken():
    streams = chain([])
    reader = rollouts(streams, [[0]])
    record_actions(streams, [1, 2, 3])
    reader.drop(0)  # forgets 1 and 2, which are closed, and 3, which is open
    assert reader.size().tolist() == [0]
    record_actions(streams, [4, 5, 6])
    assert reader.take(np.array([0.9])).obs[0, :, 0].tolist() == [4, 5]


def test_one_seat_of_an_agent_can_be_dropped():
    """Agent 1 sits in seats 2 and 0; dropping its second seat leaves its first, and agent 0, alone."""
    spec = one_group()
    streams = Streams(spec, 1, {0: Storage(8)})
    reader = rollouts(streams, [[1], [2, 0]])
    for t in range(4):
        step = blank(spec)
        step.turn[0][:], step.obs[0][:, 0, 0] = True, [t, 10 + t, 20 + t]
        streams.record_step(step)
        streams.record_actions(0, np.zeros((3, 1), np.int64), {})
        if t == 1:
            reader.drop(1, seat=1)
    rollout = reader.take(np.array([0.9, 0.9]))
    assert rollout.obs[0, :3, 0].tolist() == [10, 11, 12]
    assert rollout.obs[1, :, 0].tolist() == [20, 21, 22, 2]


def test_an_agent_dropped_all_the_time_costs_no_room():
    streams = chain([], rows=4)
    reader = rollouts(streams, [[0]])
    for _ in range(40):
        record_actions(streams, [1])
        reader.drop(0)
    assert streams.rings[0].capacity == 5


def test_who_never_decides_does_not_protect_what_another_dropped():
    spec = one_group()
    streams = Streams(spec, 1, {0: Storage(4)})
    reader = rollouts(streams, [[0], [1]])
    for _ in range(40):
        step = blank(spec)
        step.turn[0][1] = True
        streams.record_step(step)
        streams.record_actions(0, np.zeros((3, 1), np.int64), {})
        reader.drop(1)
    assert streams.rings[0].capacity == 5


def test_a_rollout_reader_begins_with_the_next_decisions():
    """What was decided before it existed belongs to whoever learned then."""
    streams = chain([1, 2, 4])
    reader = rollouts(streams, [[0]])
    record_actions(streams, [10, 11, 12])
    assert reader.take(np.array([0.9])).obs[0, :, 0].tolist() == [10, 11]
