"""Rows that are drawn by their age: half-lives, and windows by the effective sample size."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

import marltrain as mt
from marltrain.core.errors import ConfigError
from marltrain.policies.memory import Storage, Streams
from marltrain.policies.memory.memory_numbers import MemoryNumbers
from marltrain.policies.memory.needs import Needs
from marltrain.policies.memory.readers import UniformReader
from tests.policies.memory.test_priorities import GAMMA, chain, draw, go_on, learn, statistic
from tests.policies.memory.worlds import one_group, rollouts


def reader_of(streams, seats=((0,),), numbers=None, **settings):
    replay = mt.Replay(**{"capacity": 40, "n_step": 1, **settings})
    return streams.reader(
        seats, Needs(False, replay=replay), lambda ring, rows, needs: UniformReader(ring, rows, needs, numbers)
    )


def leaves(reader):
    """The leaves of plane 0 by the batch step of their rows, as shares of their sum, [steps, E]."""
    ring, choice = reader.ring, reader.choice
    reader.size()
    flat = choice._trees["leaf"][0, : ring.capacity * ring.num_envs].reshape(ring.capacity, ring.num_envs)
    shares = flat[ring.held()].astype(np.float64)
    return shares / shares.sum()


# half-lives


@pytest.mark.parametrize("prioritized", [None, mt.Prioritized(alpha=0.5, initial=3.0)])
def test_rows_of_equal_priority_are_drawn_half_as_often_after_a_half_life(prioritized):
    """2 environments and a half-life of 6 env steps: the third batch step before has half the probability."""
    streams = chain(30, rows=12, envs=2)
    reader = reader_of(streams, half_life=6, prioritized=prioritized)
    for value in range(30, 140):  # 46 half-lives: leaves are computed anew several times
        go_on(streams, value)
        if value % 9 == 0:
            reader.size()
    shares = leaves(reader)[:-1]
    assert len(shares) == 12
    np.testing.assert_allclose(shares[3:] / shares[:-3], 2.0, rtol=1e-5)
    np.testing.assert_allclose(shares[-1], [shares[-1, 0]] * 2)
    batch = draw(reader, 64)
    np.testing.assert_allclose(batch.weight, 1.0, rtol=1e-6)


def test_importance_weights_correct_priorities_and_not_age():
    """Priorities 1 and 4 of rows that are one half-life apart: probabilities 1 : 8, weights 1 and 1/2 (beta 1/2)."""
    streams = chain(3)
    reader = reader_of(streams, half_life=1, prioritized=mt.Prioritized(alpha=1.0, beta=0.5, epsilon=1e-12))
    learn(reader, draw(reader, 32), lambda value: [1, 4][int(value)])
    np.testing.assert_allclose(leaves(reader)[:2, 0], [1 / 9, 8 / 9], rtol=1e-6)
    batch = draw(reader, 9)
    by_row = dict(zip(batch.obs[0, :, 0].tolist(), batch.weight[0].tolist(), strict=True))
    assert by_row == {0: pytest.approx(1), 1: pytest.approx(0.5)}
    assert batch.effective == pytest.approx([1 / (1 / 81 + 64 / 81) / 2])


def test_frequencies_follow_priorities_windows_ages_and_masks():
    """48 slots of 5 environments that were 12 slots at first, overwritten; one of two players learned now and then.

    Pearson's statistic of single draws lies within its 0.1 % quantiles.
    """
    spec = one_group("ab", masked=False)
    streams = Streams(spec, 5, {0: Storage(11)})
    holder = rollouts(streams, [[1]])
    for t in range(25):  # the ring grows: the rollout is not taken
        streams.learning(np.array([True, t % 3 > 0]))
        go_on(streams, t)
    ring = streams.rings[0]
    assert ring.capacity == 48 and holder.size().any()
    holder.take(GAMMA)
    reader = reader_of(streams, [[1, 0]], capacity=400, window=180, half_life=40, prioritized=mt.Prioritized(alpha=0.7))
    rng = np.random.default_rng(2)
    for t in range(25, 83):
        streams.learning(np.array([True, t % 3 > 0]))
        go_on(streams, t)
        if t % 20 == 0:
            learn(reader, draw(reader, 300, [t]), lambda _: rng.exponential())
    holder.take(GAMMA)
    size, law = reader.size()[0], {}
    for plane, player in enumerate(reader.choice._players):
        for time in range(82 - 36, 82):
            first = (player * ring.capacity + time % ring.capacity) * 5
            for cell in range(first, first + 5):
                if ring.drawable(np.array([cell]))[0]:
                    priority = float(reader.choice._slots()[plane, time % ring.capacity, cell - first])
                    law[cell] = priority**0.7 * 0.5 ** (5 * (82 - time) / 40)
    assert len(law) == size == 36 * 5 + 24 * 5
    law = {cell: share / sum(law.values()) for cell, share in law.items()}
    rngs = [np.random.default_rng(11)]
    cells = np.concatenate([reader.sample(rngs, GAMMA, 1).cells[0] for _ in range(6000)])
    value, degrees = statistic(cells, law)
    assert chi2.ppf(0.001, degrees) < value < chi2.ppf(0.999, degrees)


def test_a_long_silence_keeps_all_rows_drawable():
    """A seat that no longer learns: its rows become hundreds of half-lives old, and their order of magnitude stays."""
    streams = chain(5, rows=600)
    reader = reader_of(streams, capacity=600, half_life=1, prioritized=mt.Prioritized())
    reader.size()
    streams.learning(np.array([False]))
    for value in range(5, 500):
        go_on(streams, value)
    assert reader.size().tolist() == [4]
    batch = draw(reader, 8)
    assert set(batch.obs[0, :, 0].tolist()) == {0, 1, 2, 3} and np.isfinite(batch.weight).all()


def test_a_new_half_life_holds_for_all_rows():
    streams, replay = chain(12), mt.Replay(40, 1, half_life=2.0)
    numbers = MemoryNumbers(replay, "test")
    reader = reader_of(streams, numbers=numbers, half_life=2.0)
    before = leaves(reader)[:11, 0]
    np.testing.assert_allclose(before[1:] / before[:-1], 2**0.5, rtol=1e-6)
    numbers.set(0, "half_life", 4.0)
    after = leaves(reader)[:11, 0]
    np.testing.assert_allclose(after[1:] / after[:-1], 2**0.25, rtol=1e-6)


# windows by the effective sample size


def test_the_oldest_rows_are_dropped_by_hand():
    """Capacity 10, so that it is checked at each batch step. Priorities of rows 0 to 4: 1, 1, 8, 8, 8.

    Of all 5, the share is 26^2 / (5 * 194) = 0.697; of rows 1 to 4, 25^2 / (4 * 193) = 0.81; of rows 2 to 4, it is 1.
    """
    for least, first in ((0.65, 0), (0.75, 1), (0.9, 2)):
        streams = chain(6, rows=10)
        reader = reader_of(
            streams, capacity=10, effective_share=least, effective_low=1.0 / 10,
            prioritized=mt.Prioritized(alpha=1.0, epsilon=1e-12, initial=8.0),
        )  # fmt: skip
        assert reader.size().tolist() == [5]
        learn(reader, draw(reader, 64), lambda value: [1, 1, 8, 8, 8][int(value)])
        go_on(streams, 6)
        assert sorted(set(draw(reader, 64).obs[0, :, 0].tolist())) == list(range(first, 6))


def test_the_newest_rows_stay_in_any_case():
    """Priorities in powers of 100: no window has a share of 0.9, but the newest row alone; 4 rows are kept."""
    streams = chain(9, rows=10)
    reader = reader_of(
        streams, capacity=10, effective_share=0.95, effective_low=4,
        prioritized=mt.Prioritized(alpha=1.0, initial=1e-3),
    )  # fmt: skip
    learn(reader, draw(reader, 200), lambda value: 100.0**value)
    go_on(streams, 9)
    assert reader.size().tolist() == [4]
    assert np.flatnonzero(leaves(reader)).tolist() == [5, 6, 7, 8]


def test_when_it_is_checked_does_not_matter():
    """A check concerns rows before a multiple of a hundredth of the capacity (3 batch steps), whenever it is made."""
    sizes = []
    for looks in (1, 2, 3):
        streams = chain(200, rows=300)
        reader = reader_of(
            streams, capacity=300, effective_share=0.8, half_life=100, prioritized=mt.Prioritized(initial=1.0)
        )
        learn(reader, draw(reader, 100), lambda value: 1 + value % 7)
        for value in range(200, 332):
            go_on(streams, value)
            if value % looks == 0 or value % 3 == 2:
                reader.size()
        sizes.append(reader.size().tolist())
    assert sizes[0] == sizes[1] == sizes[2] != [300]


def test_a_restored_reader_ages_and_drops_as_before():
    streams = chain(44, rows=51, envs=3)
    settings = {"capacity": 150, "half_life": 30, "effective_share": 0.6, "prioritized": mt.Prioritized()}
    reader = reader_of(streams, **settings)
    learn(reader, draw(reader, 40), lambda value: abs(np.sin(value)))
    others = Streams(streams.spec, 3, {0: Storage(51)})
    saved = reader.state()
    others.restore(streams.state())
    other = reader_of(others, **settings)
    other.restore(saved)
    for value in range(44, 130):
        for each in (streams, others):
            go_on(each, value)
        left, right = draw(reader, 7, [value]), draw(other, 7, [value])
        assert (left.cells == right.cells).all() and (left.weight == right.weight).all()
        assert reader.size().tolist() == other.size().tolist()
        for own, batch in ((reader, left), (other, right)):
            learn(own, batch, lambda value: value / 7)
    assert reader.size()[0] < 150


def test_a_smaller_share_keeps_more():
    sizes = []
    for least in (0.3, 0.6, 0.9):
        streams = chain(150, rows=200)
        reader = reader_of(streams, capacity=200, effective_share=least, half_life=20)
        go_on(streams, 150)
        sizes.append(int(reader.size()[0]))
    assert all(large > small for large, small in pairwise(sizes)) and sizes[-1] >= 20


def test_wrong_settings():
    with pytest.raises(ConfigError, match=r"effective_share=0.5 drops nothing, because draws are uniform"):
        mt.Replay(effective_share=0.5)
    with pytest.raises(ConfigError, match=r"effective_low=0.2 has no effect without effective_share"):
        mt.Replay(effective_low=0.2)
    wrong: list[tuple[str, Any]] = [
        ("half_life", 0), ("effective_share", 0.0), ("effective_share", 1.5), ("effective_low", -1),
    ]  # fmt: skip
    for name, value in wrong:
        given: dict[str, Any] = {"prioritized": mt.Prioritized(), name: value}
        with pytest.raises(ConfigError, match=f"Replay: {name} must be .* got {value}"):
            mt.Replay(**given)
