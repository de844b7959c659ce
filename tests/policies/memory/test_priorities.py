from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

import marltrain as mt
from marltrain.core.errors import AgentError, ConfigError, SaveError
from marltrain.policies.memory import Storage, Streams
from marltrain.policies.memory.memory_numbers import MemoryNumbers
from marltrain.policies.memory.needs import Needs
from marltrain.policies.memory.priorities import importance
from marltrain.policies.memory.readers import UniformReader
from tests.policies.memory.worlds import Record, World, blank, drive, one_group, rollouts, seeing, two_groups

GAMMA = np.array([0.9])


def reader_of(streams, seats, prioritized=None, n_step=1):
    """A reader whose memory is prioritized."""
    replay = mt.Replay(10_000, n_step, prioritized or mt.Prioritized())
    return streams.reader(seats, Needs(False, n_step=n_step, replay=replay))


def with_numbers(streams, prioritized):
    """A reader of player 0, and the numbers that it follows."""
    replay = mt.Replay(10_000, 1, prioritized)
    numbers = MemoryNumbers(replay, "test")

    def make(ring, rows, needs):
        return UniformReader(ring, rows, needs, numbers)

    return streams.reader([[0]], Needs(False, replay=replay), make), numbers


def chain(steps, rows=16, envs=1, rewards=None):
    """Players of a simultaneous game after `steps` decisions; all but the last are closed."""
    streams = Streams(one_group("a", masked=False), envs, {0: Storage(rows)})
    for t in range(steps):
        go_on(streams, t, 0.0 if rewards is None else rewards[t])
    return streams


def go_on(streams, value, reward=0.0):
    """One more batch step, seen as `value`."""
    step = blank(streams.spec, streams.num_envs)
    step.turn[0][:], step.obs[0][:], step.reward[:] = True, value, reward
    if streams.rings[0].now >= 0:
        streams.record_actions(0, np.zeros((streams.spec.groups[0].size, streams.num_envs), np.int64), {})
    streams.record_step(step)


def draw(reader, batch_size, seeds=(0,)):
    return reader.sample([np.random.default_rng(seed) for seed in seeds], np.full(len(seeds), 0.9), batch_size)


def learn(reader, batch, error_of):
    """Give the batch's rows errors: `error_of` their observations."""
    batch.errors = np.vectorize(error_of)(batch.obs[..., 0]).astype(np.float32)
    reader.learned(batch)


# the priorities follow the rows: held against a slow record


WORLDS = [
    pytest.param(two_groups, 3, 7, False, [[0], [2], [2, 0]], id="ragged"),
    pytest.param(one_group, 3, 13, True, [[2], [0, 1]], id="dense"),
    pytest.param(seeing, 2, 6, False, [[1], [0, 1]], id="stacked frames, ragged"),
]


class Slow:
    """Priorities in dictionaries, one for each agent: {(player, time, environment): priority}."""

    def __init__(self, streams, record, seats):
        self.streams, self.record, self.seats = streams, record, seats
        self.priorities: list[dict[Any, float]] = [{} for _ in seats]
        self.largest = [1.0] * len(seats)

    def follow(self):
        ring = self.streams.rings[0]
        for k, players in enumerate(self.seats):
            rows = {(p, r.time, r.env) for p in players for r in self.record.drawable(p, ring.oldest)}
            self.priorities[k] = {row: self.priorities[k].get(row, self.largest[k]) for row in sorted(rows)}

    def learned(self, batch, errors):
        ring = self.streams.rings[0]
        for k, rows in enumerate(batch.rows):
            for row, error, weight in zip(rows, errors[k], batch.weight[k], strict=True):
                if weight == 0:
                    continue
                at, env = divmod(int(row), ring.num_envs)
                time, player = divmod(at, ring.group.size)
                place = ring.group.players[player], time, env
                assert place in self.priorities[k]
                self.priorities[k][place] = float(np.float32(error + 1e-6))
                self.largest[k] = max(self.largest[k], self.priorities[k][place])


def compare(reader, slow):
    """Every priority is that of the record, and every sum is right."""
    ring, choice = slow.streams.rings[0], reader.choice
    assert reader.size().tolist() == [len(own) for own in slow.priorities]
    slots, planes = choice._slots(), iter(range(len(choice._players)))
    for k, players in enumerate(slow.seats):
        for player in players:
            own, plane = np.zeros(slots.shape[1:], np.float32), next(planes)
            for (p, time, env), priority in slow.priorities[k].items():
                if p == player:
                    own[time % ring.capacity, env] = priority
            assert (slots[plane] == own).all()
            total = (own[own > 0].astype(np.float64) ** choice._alpha[k]).astype(np.float32).sum(dtype=np.float64)
            assert choice._trees["total"][plane] == pytest.approx(total, rel=1e-12)
    assert choice.largest.tolist() == slow.largest


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("make", "envs", "rows", "dense", "seats"), WORLDS)
def test_priorities_follow_the_rows(make, envs, rows, dense, seats, seed):
    """Rows are overwritten, abandoned, masked and lose frames; at times rows are drawn and get errors."""
    spec = make()
    streams = Streams(spec, envs, {g: Storage(rows) for g in range(len(spec.groups))})
    record = Record(spec, envs)
    reader, slow = reader_of(streams, seats), Slow(streams, record, seats)
    rng, rngs = np.random.default_rng(seed), [np.random.default_rng(k) for k in range(len(seats))]

    def on_step(t):
        if t % (seed + 1):
            return
        slow.follow()
        compare(reader, slow)
        if all(slow.priorities) and rng.random() < 0.7:
            batch = reader.sample(rngs, np.full(len(seats), 0.9), 5)
            batch.errors = rng.exponential(size=batch.weight.shape).astype(np.float32)
            slow.learned(batch, batch.errors)
            reader.learned(batch)
            compare(reader, slow)

    masks = [(int(t), rng.random(len(spec.players)) < 0.6) for t in rng.integers(80, size=9)]
    drive(
        World(spec, envs, seed, dense), streams, record, on_step, 80, resets=[31], cuts=[(17, [0]), (44, [envs - 1])],
        masks=masks,
    )  # fmt: skip


def test_a_new_row_does_not_inherit_the_priority_of_the_row_that_it_overwrites():
    streams = chain(9, rows=8)  # the ring has 9 slots
    reader = reader_of(streams, [[0]], mt.Prioritized(initial=2.0))
    late = draw(reader, 64)
    learn(reader, late, lambda value: 7.0 if value == 1 else 0.5)
    slots = reader.choice._slots()[0, :, 0]
    assert slots[1] == np.float32(7.000001) and slots[0] == np.float32(0.500001)
    for value in range(9, 12):  # batch steps 9, 10, 11 overwrite 0, 1, 2
        go_on(streams, value)
    assert reader.size().tolist() == [8]
    slots = reader.choice._slots()[0, :, 0]
    assert slots[[0, 1, 2]].tolist() == [2.0, 2.0, 0.0]  # of 9 and 10; 11 is not decided
    learn(reader, late, lambda value: 50.0)  # of rows 0, 1 and 2 nothing is left
    slots = reader.choice._slots()[0, :, 0]
    assert slots[[0, 1, 2]].tolist() == [2.0, 2.0, 0.0] and (slots[3:8] == 50).all()


def test_a_ring_that_grows_keeps_the_priorities():
    spec = one_group("ab", masked=False)
    streams = Streams(spec, 3, {0: Storage(4)})
    holder = rollouts(streams, [[1]])
    for value in range(5):
        go_on(streams, value)
    reader = reader_of(streams, [[0]], mt.Prioritized(alpha=1.0))
    learn(reader, draw(reader, 64), lambda value: value + 1)
    before, ring = reader.choice._slots()[0].copy(), streams.rings[0]
    for value in range(5, 9):
        go_on(streams, value)
    assert ring.capacity == 10 and holder.size().tolist() == [24]
    assert reader.size().tolist() == [24]
    slots = reader.choice._slots()[0]
    assert (slots[:4] == before[:4]).all() and (slots[4:8] == 4.000001).all() and (slots[8:] == 0).all()
    assert reader.choice._trees["total"][0] == pytest.approx(slots.sum(dtype=np.float64))


# the law of the draws


def statistic(cells, law):
    """Pearson's statistic of drawn cells against {cell: probability}, and its degrees of freedom."""
    found = dict(zip(*np.unique(cells, return_counts=True), strict=True))
    assert set(found) <= set(law)
    expected = {cell: p * len(cells) for cell, p in law.items()}
    return sum((found.get(cell, 0) - n) ** 2 / n for cell, n in expected.items()), len(law) - 1


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_frequencies_are_those_of_the_law(alpha):
    """13 slots of 7 environments after 31 batch steps, one row a draw: Pearson's statistic within its 0.1 % quantiles.

    Two players, of whom one learned only in some batch steps.
    """
    spec = one_group("ab", masked=False)
    streams = Streams(spec, 7, {0: Storage(12)})
    for t in range(31):
        streams.learning(np.array([True, t % 3 > 0]))
        go_on(streams, t)
    reader, ring = reader_of(streams, [[1, 0]], mt.Prioritized(alpha=alpha)), streams.rings[0]
    rng = np.random.default_rng(5)
    learn(reader, draw(reader, 400), lambda _: rng.exponential())
    slots = np.stack([reader.choice._slots()[reader.choice._players.tolist().index(p)] for p in (0, 1)]).reshape(-1)
    drawable = np.flatnonzero(ring.drawable(np.arange(ring.next.size)))
    assert set(np.flatnonzero(slots)) == set(drawable)
    assert len(drawable) == reader.size()[0] not in (64, 128, 256)
    powers = slots[drawable].astype(np.float64) ** alpha
    law = dict(zip(drawable.tolist(), (powers / powers.sum()).tolist(), strict=True))
    rngs = [np.random.default_rng(11)]
    cells = np.concatenate([reader.sample(rngs, GAMMA, 1).cells[0] for _ in range(6000)])
    value, degrees = statistic(cells, law)
    assert chi2.ppf(0.001, degrees) < value < chi2.ppf(0.999, degrees)
    apart = np.concatenate([reader.sample(rngs, GAMMA, 12).cells[0] for _ in range(500)])
    value, degrees = statistic(apart, law)
    assert value < chi2.ppf(0.999, degrees)  # draws from 12 parts vary less


def test_each_row_of_a_batch_comes_from_its_own_part_of_the_sum():
    """Priorities 1, 2, 3, 4 and 10: rows 0 to 3 share the first half of the sum, row 4 is the second."""
    streams = chain(6)
    reader = reader_of(streams, [[0]], mt.Prioritized(alpha=1.0, epsilon=1e-12))
    learn(reader, draw(reader, 64), lambda value: [1, 2, 3, 4, 10][int(value)])
    for seed in range(20):
        assert draw(reader, 4, [seed]).obs[0, 2:, 0].tolist() == [4, 4]
        assert (draw(reader, 4, [seed]).obs[0, :2, 0] < 4).all()


def test_importance_weights_by_hand():
    """Priorities 1 and 4: probabilities ** alpha 1/3 and 2/3; (N P) ** -beta over the largest is 1 and 2 ** -0.5."""
    streams = chain(3)
    reader = reader_of(streams, [[0]], mt.Prioritized(alpha=0.5, beta=0.5, epsilon=1e-12))
    learn(reader, draw(reader, 32), lambda value: [1, 4][int(value)])
    batch = draw(reader, 6)
    assert batch.obs[0, :, 0].tolist() == [0, 0, 1, 1, 1, 1]
    np.testing.assert_allclose(batch.weight[0], np.array([1.0] * 2 + [np.sqrt(0.5)] * 4), rtol=1e-6)
    shares, scale = importance(batch.weight)
    np.testing.assert_allclose(shares[0] * scale[0], batch.weight[0] / 6, rtol=1e-6)
    assert shares.sum() == pytest.approx(1)


def test_the_effective_share_is_that_of_the_law():
    """Priorities 1 and 4 at alpha 1: 1 / (P1^2 + P2^2) of 2 rows, P = 1/5, 4/5; 5 draws hold them as often as P says.

    Of 80 exponential priorities, the mean over many draws is near the exact share.
    """
    reader = reader_of(chain(3), [[0]], mt.Prioritized(alpha=1.0, beta=0.3, epsilon=1e-12))
    assert draw(reader, 5).effective == pytest.approx([1.0])
    learn(reader, draw(reader, 32), lambda value: [1, 4][int(value)])
    assert draw(reader, 5).effective == pytest.approx([1 / (1 / 25 + 16 / 25) / 2])
    reader, rng = reader_of(chain(21, rows=20, envs=4), [[0]], mt.Prioritized(alpha=0.7)), np.random.default_rng(3)
    learn(reader, draw(reader, 2000), lambda value: rng.exponential())
    powers = reader.choice._slots()[reader.choice._slots() > 0].astype(np.float64) ** 0.7
    exact = powers.sum() ** 2 / (len(powers) * (powers**2).sum())
    assert 0.2 < exact < 0.9
    assert draw(reader, 20_000).effective == pytest.approx([exact], rel=0.01)


def test_padding_has_no_weight_and_gets_no_priority():
    streams = chain(4)
    reader = reader_of(streams, [[0], [0]])
    batch = reader.sample([np.random.default_rng(0), None], np.array([0.9, 0.9]), 3)
    assert batch.weight.tolist() == [[1.0] * 3, [0.0] * 3]
    learn(reader, batch, lambda value: 9.0)
    assert reader.choice.largest.tolist() == [pytest.approx(9.000001), 1.0]
    shares, scale = importance(batch.weight)
    np.testing.assert_allclose(shares, np.array([[1 / 3] * 3, [0.0] * 3]), rtol=1e-6)
    assert scale.tolist() == [1.0, 1.0]


def test_agents_of_a_reader_draw_as_they_would_alone():
    """Each has priorities of its own over the same rows."""
    streams = chain(12, envs=5)
    both, alone = reader_of(streams, [[0], [0]]), [reader_of(streams, [[0]]) for _ in range(2)]
    for seed in range(3):
        batch, singles = draw(both, 9, [seed, seed + 10]), [draw(alone[k], 9, [seed + 10 * k]) for k in range(2)]
        for k, single in enumerate(singles):
            assert (batch.cells[k] == single.cells[0]).all() and (batch.weight[k] == single.weight[0]).all()
            learn(alone[k], single, lambda value, k=k: abs(np.sin(value + k)))
        batch.errors = np.stack([single.errors[0] for single in singles])
        both.learned(batch)
    assert (batch.cells[0] != batch.cells[1]).any()


def test_n_step_transitions_begin_at_the_drawn_rows():
    streams = chain(6, rewards=[0, 1, 2, 4, 8, 16])
    reader = reader_of(streams, [[0]], mt.Prioritized(alpha=1.0), n_step=3)
    learn(reader, draw(reader, 64), lambda value: 1e6 if value == 1 else 1e-6)
    batch = reader.sample([np.random.default_rng(0)], np.array([0.5]), 4)
    assert batch.reward.tolist() == [[2 + 4 / 2 + 8 / 4] * 4] and batch.next_obs[0, :, 0].tolist() == [4] * 4


# numbers and states


def test_a_new_alpha_holds_for_all_rows_and_a_new_beta_for_the_next_batch():
    streams = chain(4)
    reader, numbers = with_numbers(streams, mt.Prioritized(alpha=1.0, beta=1.0))
    learn(reader, draw(reader, 64), lambda value: [1, 4, 9][int(value)])
    numbers.set(0, "alpha", 0.5)
    numbers.set(0, "beta", mt.linear(0.0, 1.0, 10))
    assert (draw(reader, 8).weight == 1).all()
    assert reader.choice._trees["total"][0] == pytest.approx(6, rel=1e-5)
    numbers.apply_schedules(10)
    found = np.unique(draw(reader, 12).weight[0])
    np.testing.assert_allclose(found, np.array([1 / 3, 1 / 2, 1.0]), rtol=1e-5)
    with pytest.raises(ConfigError, match="alpha must be at most 1"):
        numbers.set(0, "alpha", 2)
    with pytest.raises(ConfigError, match="'epsilon' of the memory is structural"):
        numbers.set(0, "epsilon", 0.1)


def test_a_restored_reader_goes_on_exactly():
    def played():
        streams = chain(20, rows=11, envs=3)
        reader = reader_of(streams, [[0]])
        learn(reader, draw(reader, 40), lambda value: abs(np.sin(value)))
        return streams, reader

    streams, reader = played()
    saved, ring = reader.state(), streams.state()
    assert reader.state().arrays["priority"].shape == (1, 12, 3)
    others = Streams(streams.spec, 3, {0: Storage(11)})
    others.restore(ring)
    other = reader_of(others, [[0]])
    other.restore(saved)
    for value in range(20, 26):
        for each in (streams, others):
            go_on(each, value)
        left, right = draw(reader, 7, [value]), draw(other, 7, [value])
        assert (left.obs == right.obs).all() and (left.weight == right.weight).all()
        for own, batch in ((reader, left), (other, right)):
            learn(own, batch, lambda value: value / 7)
    assert (reader.state().arrays["priority"] == other.state().arrays["priority"]).all()
    for wrong in (-1.0, np.nan, 0.0):
        saved.arrays["priority"] = saved.arrays["priority"].copy()
        saved.arrays["priority"][0, 3, 1] = wrong
        with pytest.raises(SaveError, match="priority"):
            reader_of(others, [[0]]).restore(saved)


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("largest", 0.5, r"largest\[0\] must be from 1.0 to 3.40"),
        ("largest", -1.0, r"largest\[0\] must be from 1.0 to 3.40"),
        ("largest", 1e308, r"largest\[0\] must be from 1.0 to 3.40"),
        ("largest", np.nan, r"largest\[0\] must be from 1.0 to 3.40"),
        ("first", -1, r"first\[0\] must be from 0 to 5, got -1"),
        ("first", 6, r"first\[0\] must be from 0 to 5, got 6"),
        ("first", 2**63 - 1, r"first\[0\] must be from 0 to 5"),
    ],
)
def test_largest_priorities_and_windows_that_there_are_not_are_refused(name, wrong, message):
    """6 batch steps, of which the newest, 5, is not decided: no priority can be infinite, and no window is ahead."""
    reader = reader_of(chain(6), [[0]])
    state = reader.state()
    state.arrays[name][0] = wrong
    with pytest.raises(SaveError, match=message):
        reader.restore(state)


def test_wrong_errors_and_settings():
    reader = reader_of(chain(4), [[0]])
    for error in (np.nan, np.inf, -1.0):
        with pytest.raises(AgentError, match="priorities must be finite and at least 0, got the error"):
            learn(reader, draw(reader, 4), lambda value, error=error: error)
    for wrong in ({"alpha": -0.1}, {"beta": 1.5}, {"initial": 0.0}, {"epsilon": 0.0}):
        with pytest.raises(ConfigError, match=f"Prioritized: {next(iter(wrong))} must be"):
            mt.Prioritized(**wrong)
    with pytest.raises(ConfigError, match="prioritized must be"):
        mt.Replay(prioritized=True)  # type: ignore[arg-type]
