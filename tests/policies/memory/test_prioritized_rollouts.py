"""Rollouts with sequences of earlier rows, held to a record kept in lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

import marltrain as mt
from marltrain.core.errors import SaveError
from marltrain.policies.memory import Storage, Streams
from marltrain.policies.memory.needs import Needs
from marltrain.policies.memory.prioritized_rollouts import PrioritizedRolloutReader
from tests.policies.memory.test_priorities import chain, go_on
from tests.policies.memory.test_readers import COLUMNS, WORLDS
from tests.policies.memory.worlds import Record, World, at, drive, rollouts, same

LENGTH, SHARE = 3, 0.7


def reader_of(streams: Any, seats: Any, columns: Any = None, length: int = LENGTH, share: float = SHARE, **own: Any):
    replay = mt.Replay(10_000, 1, mt.Prioritized(**own))
    needs = Needs(True, columns or {}, sequence=length, replay=replay, replay_share=share)
    return streams.reader(seats, needs, PrioritizedRolloutReader)


def rate(reader: Any, batch: Any, errors: Any) -> None:
    batch.errors = np.where(batch.weight > 0, errors, 0.0).astype(np.float32)
    reader.learned(batch)


@pytest.mark.parametrize(("make", "envs", "rows", "dense", "seats"), WORLDS)
def test_rollouts_and_sequences_equal_a_record_kept_in_lists(make, envs, rows, dense, seats):
    """New rows are those of a `RolloutReader`; others were new in an earlier rollout, are in the ring, and in order."""
    spec = make()
    streams = Streams(spec, envs, {g: Storage(rows + 20, COLUMNS) for g in range(len(spec.groups))})
    record, rng = Record(spec, envs), np.random.default_rng(0)
    plain, reader = rollouts(streams, seats, COLUMNS), reader_of(streams, seats, COLUMNS)
    gamma, replayed = np.linspace(0.5, 0.9, len(seats)), 0
    learned: list[set[int]] = [set() for _ in seats]

    def take(t):
        nonlocal replayed
        if rng.random() > 0.2 or not plain.size().any():
            return
        expected = plain.take(gamma)
        batch = reader.take(gamma, [np.random.default_rng([t, k]) for k in range(len(seats))])
        counts = expected.weight.sum(1).astype(int)
        for k, count in enumerate(counts):
            for name in ("action", "reward", "discount", "cut", "truncated", "boot"):
                np.testing.assert_array_equal(getattr(batch, name)[k, :count], getattr(expected, name)[k, :count])
            assert batch.fresh[k].sum() == count and batch.fresh[k, :count].all() and (batch.rows[k, :count] >= 0).all()
            valid = batch.weight[k] > 0
            assert (batch.weight[k, :count] == 1).all() and valid[: valid.sum()].all()
            known = {row.log_prob: row for p in seats[k] for row in record.rows[p]}
            held = [known[log_prob] for log_prob in batch.extras["log_prob"][k, valid]]
            old, boots = list(range(count, len(held))), int(batch.cut[k, :count].sum())
            assert len(old) <= LENGTH * -(-count * SHARE // LENGTH)
            replayed += len(old)
            for i in old:
                row = held[i]
                assert batch.rows[k, i] in learned[k] and row.time >= streams.rings[0].oldest
                assert same(at(batch.obs, k, i), row.obs) and batch.reward[k, i] == row.reward
                if not batch.cut[k, i]:
                    assert row.next is held[i + 1] and batch.boot[k, i] == -1
                    continue
                _, obs, _ = row.end or (False, row.next.obs, None)
                assert batch.boot[k, i] == boots and same(at(batch.boot_obs, k, boots), obs)
                boots += 1
            learned[k] |= set(batch.rows[k, :count].tolist())
        rate(reader, batch, rng.exponential(size=batch.weight.shape))

    drive(World(spec, envs, 3, dense), streams, record, take, 120, resets=[40], cuts=[(20, [0]), (70, [envs - 1, 0])])
    assert replayed > 20


def test_sequences_by_hand():
    """Rows 0 to 4 are new, then 5 and 6. Row 3 alone has a priority that is drawn: sequence 3, 4, weight 1.

    Row 4 is its last one, because 5 has no priority yet. 2 * 1.5 / 3 = 1 sequence.
    """
    streams = chain(0)
    reader = reader_of(streams, [[0]], length=3, share=1.5)
    rngs = [np.random.default_rng(0)]
    for t in range(6):
        go_on(streams, t)
    first = reader.take(np.array([0.9]), rngs)
    assert first.obs[0, :, 0].tolist() == [0, 1, 2, 3, 4] and first.fresh.all()
    rate(reader, first, [[0, 0, 0, 1e9, 0]])
    for t in (6, 7):
        go_on(streams, t)
    second = reader.take(np.array([0.9]), rngs)
    assert second.obs[0, :, 0].tolist() == [5, 6, 3, 4]
    assert second.cut.tolist() == [[False, True, False, True]]
    assert second.fresh.tolist() == [[True, True, False, False]]
    assert second.fresh_weight.tolist() == [[1, 1, 0, 0]] and second.weight.tolist() == [[1, 1, 1, 1]]
    assert second.boot_obs[0, :, 0].tolist() == [7, 5]
    assert second.rows.tolist() == [[5, 6, 3, 4]]


def test_first_rows_follow_the_law_and_have_its_weights():
    """Errors 1, 2, 3 and 4 with alpha 1 and sequences of one row: probabilities of a tenth each; weights P^-beta."""
    streams = chain(0, rows=64)
    reader = reader_of(streams, [[0]], length=1, share=2000.0, alpha=1.0, beta=0.5, epsilon=1e-9)
    for t in range(5):
        go_on(streams, t)
    rngs = [np.random.default_rng(1)]
    rate(reader, reader.take(np.array([0.9]), rngs), [[1, 2, 3, 4]])
    counts = np.zeros(4)
    for t in range(5):
        go_on(streams, 5 + t)
        batch = reader.take(np.array([0.9]), rngs)
        old = batch.rows[0][~batch.fresh[0]]
        counts += np.bincount(old, minlength=4)[:4]
        np.testing.assert_allclose(batch.weight[0][~batch.fresh[0]], (old + 1.0) ** -0.5, rtol=1e-5)
    expected = counts.sum() * np.arange(1, 5) / 10
    assert counts.sum() == 10_000 and ((counts - expected) ** 2 / expected).sum() < chi2.ppf(0.999, 3)


def test_windows_and_agents_without_generators():
    """Rollouts of 3 and, from step 30 on, of 6 rows, of which the window of 4 batch steps holds 4."""
    streams = chain(0, rows=64)
    replay = mt.Replay(64, 1, mt.Prioritized(), window=4)
    needs = Needs(True, sequence=2, replay=replay, replay_share=1.0)
    reader: Any = streams.reader([[0]], needs, PrioritizedRolloutReader)
    rngs, seen = [np.random.default_rng(0)], []
    for t in range(60):
        go_on(streams, t)
        if t % (3 if t < 30 else 6) == 2:
            batch = reader.take(np.array([0.9]), [None] if t == 56 else rngs)
            old = batch.rows[0][~batch.fresh[0]]
            seen.append(len(old))
            assert (old >= t - 4).all()
            rate(reader, batch, np.ones(batch.weight.shape))
            assert reader.choice.held.tolist() == [2 if t == 2 else 4]
    assert seen[0] == seen[-1] == 0 and min(seen[1:10]) > 0


def test_state_and_restore():
    def made() -> Any:
        streams = chain(0, rows=32, envs=2)
        return streams, reader_of(streams, [[0]])

    (streams, reader), (again, other) = made(), made()
    rngs = [np.random.default_rng(0)]
    for t in range(12):
        for each in (streams, again):
            go_on(each, t)
        if t % 4 == 3:
            rate(reader, reader.take(np.array([0.9]), rngs), 1.0 + t)
    state, wrong = reader.state(), reader.state()
    wrong.arrays["choice/priority"][:, -1] = 1.0  # rows that are open
    with pytest.raises(SaveError, match="choice/priority must be positive"):
        other.restore(wrong)
    other.restore(state)
    for each in (streams, again):
        go_on(each, 12)
    first, second = (one.take(np.array([0.9]), [np.random.default_rng(5)]) for one in (reader, other))
    for name in ("rows", "weight", "fresh", "cut"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    assert not first.fresh.all()


def test_rows_that_are_not_rated_yet_are_not_dropped_for_the_effective_sample_size():
    """Rollouts of 5 batch steps of 2 rows, of which all but the newest 2 may be dropped.

    The first one has no priorities when it is taken. Later only equal errors would be effective: the rows of the first
    rollout are dropped when the second is taken, also that of batch step 0, which the ring still holds; those of the
    second are not yet rated and stay.
    """
    streams = chain(0, rows=64, envs=2)
    replay = mt.Replay(20, 1, mt.Prioritized(alpha=1.0), effective_share=1.0)
    needs = Needs(True, sequence=1, replay=replay, replay_share=1.0)
    reader: Any = streams.reader([[0]], needs, PrioritizedRolloutReader)
    for t in range(11):
        go_on(streams, t)
        if t in (5, 10):
            batch = reader.take(np.array([0.9]), [np.random.default_rng(0)])
            assert batch.fresh.sum() == batch.weight.size == 10
            rate(reader, batch, np.arange(1, 11))
            assert reader.choice.held.tolist() == [10]
