"""Observed transitions: what is stored can be read as it came, and is drawn together with the run's own rows."""

import numpy as np
import pytest

from marltrain.core.layout import arrays_of
from marltrain.policies.memory.observed import BLOCK, ObservedMemory, ObservedReader, ObservedRows
from marltrain.policies.memory.streams import Storage, Streams
from tests.policies.memory.worlds import blank, one_group, two_groups, uniform

GAMMA = np.array([0.9])


def rows(first, count, masked=True):
    """Transitions numbered from `first`: the number is in every value, and every third one is terminated."""
    number = np.arange(first, first + count)
    legal = np.stack([number % 2 == 0, number % 2 == 1, number % 3 == 0], 1) if masked else None
    obs = np.stack([number, -number], 1).astype(np.float32)
    return ObservedRows(
        obs, legal, number % 3, number.astype(np.float32) / 2, number % 3 == 0, obs + 0.5,
        None if legal is None else ~legal,
    )  # fmt: skip


def sampled(reader, count=400, seed=0):
    return reader.sample([np.random.default_rng(seed)], GAMMA, count)


def check(batch, expected, masked=True):
    """The batch holds the numbered transitions `expected`, each with all its values."""
    number = batch.obs[0, :, 0].astype(int)
    assert set(number.tolist()) == set(expected)
    assert np.array_equal(batch.obs[0, :, 1], -number) and np.array_equal(batch.next_obs[0, :, 0], number + 0.5)
    assert np.array_equal(batch.action[0], number % 3) and np.array_equal(batch.reward[0], number / 2)
    assert np.allclose(batch.discount[0], np.where(number % 3 == 0, 0.0, 0.9))
    if masked:
        whole = rows(0, number.max() + 1)
        assert np.array_equal(batch.legal[0], whole.legal[number])
        assert np.array_equal(batch.next_legal[0], whole.next_legal[number])


@pytest.mark.parametrize("n_step", [1, 3])
def test_blocks_can_be_read_when_the_next_one_has_come(n_step):
    memory = ObservedMemory(one_group(), 0, 100)
    reader = uniform(memory.streams, [[1]], n_step=n_step)
    sizes = []
    for first, count in ((0, 5), (5, 6), (11, 9), (20, 1), (21, 22)):
        memory.add(1, rows(first, count))
        sizes.append(int(reader.size()[0]))
    assert sizes == [0, 0, BLOCK, BLOCK, 4 * BLOCK] and BLOCK == 8
    check(sampled(reader), range(32))


def test_players_of_a_group_share_the_memory_and_the_oldest_rows_leave():
    """24 rows stay for each player; d brings 11 transitions while b brings 64."""
    memory = ObservedMemory(two_groups(), 1, 24)
    readers = [uniform(memory.streams, [[player]]) for player in (1, 3)]
    memory.add(3, rows(0, 5, masked=False))
    memory.add(1, rows(100, 16, masked=False))
    memory.add(3, rows(5, 6, masked=False))
    assert [int(reader.size()[0]) for reader in readers] == [8, 5]
    check(sampled(readers[0]), range(100, 108), masked=False)
    check(sampled(readers[1]), range(5), masked=False)
    memory.add(1, rows(116, 48, masked=False))
    assert [int(reader.size()[0]) for reader in readers] == [24, 0]
    check(sampled(readers[0]), range(132, 156), masked=False)


def own_streams(count):
    """Streams of a run with `count` rows of player a, numbered from 1,000."""
    spec = one_group()
    streams = Streams(spec, 1, {0: Storage(200)})
    for t in range(count + 1):
        step = blank(spec)
        step.turn[0][0] = True
        step.obs[0][0, 0], step.legal[0][...] = 1000 + t, True
        streams.record_step(step)
        streams.record_actions(0, np.zeros((3, 1), np.int64), {})
    return streams


def test_own_and_observed_rows_are_drawn_with_equal_probability():
    """30 own rows of a and 64 observed ones; none of b."""
    streams, memory = own_streams(30), ObservedMemory(one_group(), 0, 100)
    reader = ObservedReader(uniform(streams, [[0], [1]]), uniform(memory.streams, [[0], [1]]))
    alone = uniform(streams, [[0], [1]]).sample([np.random.default_rng(3), None], np.ones(2), 50)
    batch = reader.sample([np.random.default_rng(3), None], np.ones(2), 50)
    assert np.array_equal(arrays_of(batch.obs)[0], arrays_of(alone.obs)[0]) and np.array_equal(
        batch.weight, alone.weight
    )  # nothing observed yet
    memory.add(0, rows(0, 72))
    assert reader.size().tolist() == [94, 0]
    batch = reader.sample([np.random.default_rng(i) for i in range(2)], np.full(2, 0.9), 40_000)
    assert (batch.weight[0] == 1).all() and (batch.weight[1] == 0).all()
    number = arrays_of(batch.obs)[0][0, :, 0].astype(int)
    counts = np.bincount(number, minlength=1030)
    expected = 40_000 / 94
    drawn = np.concatenate([counts[:64], counts[1000:1030]])
    assert drawn.sum() == 40_000 and (np.abs(drawn - expected) < 6 * np.sqrt(expected)).all()
    observed = number < 1000
    assert np.array_equal(batch.reward[0], np.where(observed, number / 2, 0))
    assert np.array_equal(arrays_of(batch.next_obs)[0][0, :, 0], np.where(observed, number + 0.5, number + 1))


def test_observed_rows_alone_are_enough():
    memory = ObservedMemory(one_group(), 0, 100)
    reader = ObservedReader(uniform(own_streams(0), [[0]]), uniform(memory.streams, [[0]]))
    memory.add(0, rows(0, 16))
    check(sampled(reader), range(8))
