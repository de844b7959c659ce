from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2

from marltrain.core.errors import AgentError, ConfigError
from marltrain.policies.memory import Storage, Streams
from marltrain.policies.memory.choice import SCAN_BELOW
from marltrain.policies.memory.needs import Column
from tests.policies.memory.worlds import (
    Record,
    World,
    at,
    blank,
    drive,
    one_group,
    rollouts,
    same,
    seeing,
    two_groups,
    uniform,
)
from tests.tiers import rounds

COLUMNS = {"log_prob": Column()}
WORLDS = [  # spec, environments, rows, dense, seats of a reader with several rows, all of group 0
    pytest.param(two_groups, 3, 7, False, [[0], [2], [2, 0]], id="ragged"),
    pytest.param(two_groups, 2, 40, False, [[2], [0]], id="ragged, long ring"),
    pytest.param(one_group, 3, 7, True, [[2], [0, 1]], id="dense"),
    pytest.param(seeing, 2, 6, False, [[1], [0], [0, 1]], id="stacked frames, ragged"),
    pytest.param(seeing, 3, 9, True, [[1], [0]], id="stacked frames, dense"),
    pytest.param(seeing, 2, 1, False, [[1], [0]], id="stacked frames, hardly any room"),
]


def expected_reward(row, gamma, n):
    """Follow the record n decisions ahead; return reward, discount, what is seen then and what is legal."""
    total, factor = 0.0, 1.0
    for _ in range(n):
        total += factor * row.reward
        factor *= gamma
        if row.end is not None:
            terminated, obs, legal = row.end
            return total, 0.0 if terminated else factor, obs, legal
        row = row.next
        if row.closed_at is None or not row.learnable:
            break
    return total, factor, row.obs, row.legal


def check_transitions(batch, streams, record, players, gamma, n):
    """Compare every row of agent 0's batch with the record, row by row; each was decided while its seat learned."""
    ring = streams.rings[0]
    times = {t % ring.capacity: t for t in range(ring.oldest, ring.now + 1)}
    for b, (row, slot, env) in enumerate(zip(*np.unravel_index(batch.cells[0], ring.axes), strict=True)):
        p = ring.group.players[row]
        assert p in players
        found = next(r for r in record.rows[p] if (r.time, r.env) == (times[slot], env))
        reward, discount, obs, legal = expected_reward(found, gamma, n)
        assert found.learnable
        assert same(at(batch.obs, 0, b), found.obs) and same(at(batch.legal, 0, b), found.legal)
        assert batch.action[0, b] == found.action and batch.extras["log_prob"][0, b] == found.log_prob
        assert batch.reward[0, b] == pytest.approx(reward, abs=1e-5)
        assert batch.discount[0, b] == pytest.approx(discount, abs=1e-6)
        assert same(at(batch.next_obs, 0, b), obs) and same(at(batch.next_legal, 0, b), legal)


def masks(players, seed, steps):
    """Masks [P] of a few batch steps."""
    rng = np.random.default_rng(seed)
    return [(int(t), rng.random(players) < 0.5) for t in rng.integers(steps, size=12)]


@pytest.mark.parametrize("seed", range(rounds(1, 3)))
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize(("make", "envs", "rows", "dense", "seats"), WORLDS)
def test_transitions_equal_a_record_kept_in_lists(make, envs, rows, dense, seats, n, seed):
    """Those of the last seed are drawn from the decisions of players whose seats learn, which changes at times."""
    spec = make()
    streams = Streams(spec, envs, {g: Storage(rows, COLUMNS) for g in range(len(spec.groups))})
    record = Record(spec, envs)
    readers = [uniform(streams, [row], COLUMNS, n) for row in seats]
    rng = np.random.default_rng(seed)

    def compare(t):
        ring = streams.rings[0]
        for reader, players in zip(readers, seats, strict=True):
            size = sum(len(record.drawable(p, ring.oldest)) for p in players)
            assert reader.size().tolist() == [size]
            slots = range(ring.oldest, t + 1)
            for p in players:
                decided = sum(row.decided and row.time >= ring.oldest for row in record.rows.get(p, []))
                assert (
                    ring.acted[ring.group.players.index(p)][[time % ring.capacity for time in slots]].sum() == decided
                )
            if size and t % 5 == 0:
                check_transitions(reader.sample([rng], np.array([0.9]), 7), streams, record, players, 0.9, n)

    drive(
        World(spec, envs, seed, dense), streams, record, compare, 70, resets=[31],
        cuts=[(17, [0]), (44, [envs - 1, 0])], masks=masks(len(spec.players), n, 70) if seed == 2 else [],
    )  # fmt: skip


def test_many_ends_at_once():
    """120 parts end at every third batch step or so: the table of ends grows."""
    spec = one_group()
    streams, record = Streams(spec, 40, {0: Storage(5, COLUMNS)}), Record(spec, 40)
    drive(World(spec, 40, 0, dense=True, end_chance=0.3), streams, record, lambda t: None, 30)
    assert streams.rings[0].ends.used > 64
    batch = uniform(streams, [[1]], COLUMNS).sample([np.random.default_rng(0)], np.array([0.9]), 200)
    check_transitions(batch, streams, record, [1], 0.9, 1)


def test_ends_are_given_back():
    spec = one_group()
    streams = Streams(spec, 4, {0: Storage(5, COLUMNS)})
    drive(World(spec, 4, 0, dense=True, end_chance=0.5), streams, Record(spec, 4), lambda t: None, 300)
    ring = streams.rings[0]
    assert ring.ends.used == (ring.next < -1).sum() > 0
    assert len(ring.ends.time) == 64


def chain(rewards, ends=(), rows=16):
    """One player, one environment, a decision each batch step; ends: batch step -> "terminated" or "truncated"."""
    spec = one_group("a", masked=False)
    streams = Streams(spec, 1, {0: Storage(rows)})
    for t, reward in enumerate([0.0, *rewards]):
        step = blank(spec, 1)
        step.turn[0][:], step.obs[0][:], step.reward[:] = True, t, reward
        if t in dict(ends):
            getattr(step, dict(ends)[t])[:] = step.ended[:] = True
            step.final_obs[0][:] = 100 + t
        streams.record_step(step)
        streams.record_actions(0, np.zeros((1, 1), np.int64), {})
    return streams


def transitions(streams, n, gamma=0.5):
    reader = uniform(streams, [[0]], n_step=n)
    batch = reader.sample([np.random.default_rng(1)], np.array([gamma]), 100)
    columns = batch.obs[0, :, 0], batch.reward[0], batch.discount[0], batch.next_obs[0, :, 0]
    return sorted(set(zip(*(column.tolist() for column in columns), strict=True)))


def test_three_steps_by_hand():
    """Rewards 1, 2, 4, 8, 16 follow decisions 0 to 4; decision 5 is open."""
    assert transitions(chain([1, 2, 4, 8, 16]), 3) == [
        (0, 1 + 2 / 2 + 4 / 4, 0.125, 3),
        (1, 2 + 4 / 2 + 8 / 4, 0.125, 4),
        (2, 4 + 8 / 2 + 16 / 4, 0.125, 5),
        (3, 8 + 16 / 2, 0.25, 5),
        (4, 16, 0.5, 5),
    ]


@pytest.mark.parametrize(("how", "kept"), [("terminated", 0.0), ("truncated", 1.0)])
def test_three_steps_across_an_end_by_hand(how, kept):
    """The end arrives with reward 4, after decision 2."""
    assert transitions(chain([1, 2, 4, 8, 16], {3: how}.items()), 3) == [
        (0, 3, 0.125 * kept, 103),
        (1, 4, 0.25 * kept, 103),
        (2, 4, 0.5 * kept, 103),
        (3, 16, 0.25, 5),
        (4, 16, 0.5, 5),
    ]


def test_gamma_is_each_agents_own():
    spec = one_group()
    streams = Streams(spec, 2, {0: Storage(8, COLUMNS)})
    drive(World(spec, 2, 0, dense=True, end_chance=0), streams, Record(spec, 2), lambda t: None, 6)
    reader = uniform(streams, [[0], [1], [2]])
    rngs = [np.random.default_rng(7) for _ in range(3)]
    batch = reader.sample(rngs, np.array([0.5, 0.25, 0.75]), 4)
    assert batch.discount.tolist() == [[0.5] * 4, [0.25] * 4, [0.75] * 4]
    rows, slots, envs = np.unravel_index(batch.cells, streams.rings[0].axes)
    assert (slots[0] == slots[2]).all() and (envs[0] == envs[2]).all()  # equal streams draw equal places
    assert rows.tolist() == [[0] * 4, [1] * 4, [2] * 4]


def test_an_agents_draws_do_not_depend_on_who_else_learns():
    spec = two_groups()
    streams = Streams(spec, 3, {0: Storage(40, COLUMNS)})
    drive(World(spec, 3, 0), streams, Record(spec, 3), lambda t: None, 60)
    alone = uniform(streams, [[2]]).sample([np.random.default_rng(7)], np.array([0.9]), 5)
    both = uniform(streams, [[0], [2]]).sample(
        [np.random.default_rng(8), np.random.default_rng(7)], np.array([0.9, 0.9]), 5
    )
    assert (alone.cells[0] == both.cells[1]).all() and (alone.reward[0] == both.reward[1]).all()


@pytest.mark.parametrize("batch_size", [1, 3000], ids=["by trying cells", "by listing rows"])
def test_draws_are_uniform_over_the_rows_of_all_seats(batch_size):
    """Seats 0 and 2 hold different numbers of rows: each row, not each seat, is equally likely."""
    spec = two_groups()
    streams = Streams(spec, 3, {0: Storage(50, COLUMNS)})
    record = Record(spec, 3)
    drive(World(spec, 3, 3), streams, record, lambda t: None, 90)
    reader = uniform(streams, [[0, 2]])
    ring = streams.rings[0]
    available = int(reader.size()[0])
    assert available == sum(len(record.closed(p, ring.oldest)) for p in (0, 2)) > 64
    rng, draws = np.random.default_rng(0), 3000
    batches = [reader.sample([rng], np.array([0.9]), batch_size).cells[0] for _ in range(draws // batch_size)]
    _, counts = np.unique(np.concatenate(batches), return_counts=True)
    mean = draws / available
    chi_square = (np.square(counts - mean) / mean).sum() + (available - len(counts)) * mean
    assert abs(chi_square - available) < 4 * np.sqrt(2 * available)


def test_an_agent_without_rows_gets_padding():
    """Player 1 alone decides: agent 0 has nothing to learn from, and agent 1 draws as if it were alone."""
    spec = one_group()
    streams = Streams(spec, 2, {0: Storage(4)})
    for _ in range(3):
        step = blank(spec, 2)
        step.turn[0][1] = True
        streams.record_step(step)
        streams.record_actions(0, np.array([[0, 0], [1, 1], [0, 0]]), {})
    rngs = [np.random.default_rng(0), np.random.default_rng(1)]
    batch = uniform(streams, [[0], [1]]).sample(rngs, np.array([0.9, 0.9]), 5)
    assert batch.weight.tolist() == [[0.0] * 5, [1.0] * 5]
    assert (batch.action == 1).all()
    assert rngs[0].random() == np.random.default_rng(0).random()
    alone = uniform(streams, [[1]]).sample([np.random.default_rng(1)], np.array([0.9]), 5)
    assert (alone.cells[0] == batch.cells[1]).all()


def test_nothing_to_learn_from_is_an_error():
    streams = Streams(one_group(), 2, {0: Storage(4, COLUMNS)})
    with pytest.raises(AgentError, match="no agent of the learner has a closed row"):
        uniform(streams, [[0]]).sample([np.random.default_rng(0)], np.array([0.9]), 4)
    with pytest.raises(AgentError, match="no row was closed"):
        rollouts(streams, [[0]]).take(np.array([0.9]))
    with pytest.raises(ConfigError, match="n_step"):
        uniform(streams, [[0]], n_step=0)


def learned_by_turns():
    """Three players, 13 slots of 17 environments, 31 batch steps; each seat learned in some runs of them."""
    spec = one_group()
    streams, record = Streams(spec, 17, {0: Storage(12, COLUMNS)}), Record(spec, 17)
    turns = [(t, [t % 3 == 0, t % 2 == 0, t % 5 != 0]) for t in range(0, 31, 2)]
    drive(World(spec, 17, 2), streams, record, lambda t: None, 31, masks=turns)
    return streams, record


class Counting:
    """In place of a generator: gives 0, 1, 2, ... below what is asked for."""

    def integers(self, limit, size):
        self.limit = limit
        return np.arange(size) % limit


def test_each_row_that_may_be_learned_from_is_listed_once():
    """Few rows are listed, and one is drawn by a whole number below their count."""
    streams, record = learned_by_turns()
    reader, rng = uniform(streams, [[2, 0]]), Counting()
    oldest = streams.rings[0].oldest
    (size,) = reader.size()
    cells = reader.sample([rng], np.array([0.9]), int(size)).cells[0]
    assert rng.limit == size == sum(len(record.drawable(p, oldest)) for p in (0, 2))
    assert len(set(cells.tolist())) == size
    own = uniform(streams, [[2, 0]], COLUMNS)
    check_transitions(own.sample([rng], np.array([0.9]), int(size)), streams, record, [0, 2], 0.9, 1)


def test_where_cells_are_tried_each_row_is_as_likely():
    """Pearson's statistic over 99 rows, against its 0.1 % quantiles."""
    streams, _ = learned_by_turns()
    reader, rng = uniform(streams, [[2, 0]]), np.random.default_rng(3)
    (size,) = reader.size()
    count = 2
    assert size >= SCAN_BELOW * count and size % count
    cells = np.concatenate([reader.sample([rng], np.array([0.9]), count).cells[0] for _ in range(4000)])
    _, counts = np.unique(cells, return_counts=True)
    assert len(counts) == size
    expected = len(cells) / size
    assert chi2.ppf(0.001, size - 1) < ((counts - expected) ** 2 / expected).sum() < chi2.ppf(0.999, size - 1)


def test_a_transition_of_several_steps_ends_before_a_decision_made_while_the_seat_did_not_learn():
    """Rewards 1, 2, 4, 8, 16 follow decisions 0 to 4; the seat does not learn when it decides 2."""
    spec = one_group("a", masked=False)
    streams = Streams(spec, 1, {0: Storage(16)})
    for t, reward in enumerate([0, 1, 2, 4, 8, 16]):
        step = blank(spec, 1)
        step.turn[0][:], step.obs[0][:], step.reward[:] = True, t, reward
        streams.record_step(step)
        streams.learning(np.array([t != 2]))
        streams.record_actions(0, np.zeros((1, 1), np.int64), {})
    assert transitions(streams, 3) == [
        (0, 1 + 2 / 2, 0.25, 2),
        (1, 2, 0.5, 2),
        (3, 8 + 16 / 2, 0.25, 5),
        (4, 16, 0.5, 5),
    ]
