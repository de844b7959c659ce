"""Sequences: consecutive decisions of one player, held to a record kept in lists; replay in turn with rollouts."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from marltrain.core.errors import ConfigError
from marltrain.policies.memory import SequenceReader, Storage, Streams
from marltrain.policies.memory.needs import Needs
from tests.policies.memory.test_readers import COLUMNS, WORLDS, masks
from tests.policies.memory.worlds import Record, World, at, drive, same

LENGTH = 4


def sequences_of(batch, k):
    """Return the row numbers of each sequence of agent k."""
    rows = int(batch.weight[k].sum())
    ends = [i + 1 for i in range(rows) if batch.cut[k, i]]
    assert ends[-1] == rows
    return [list(range(start, stop)) for start, stop in zip([0, *ends], ends, strict=False)]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("make", "envs", "rows", "dense", "seats"), WORLDS)
def test_sequences_equal_a_record_kept_in_lists(make, envs, rows, dense, seats, seed):
    """Each row follows the one before in the record; a sequence is short only where it cannot go on."""
    spec = make()
    streams = Streams(spec, envs, {g: Storage(rows, COLUMNS) for g in range(len(spec.groups))})
    record, rngs = Record(spec, envs), [np.random.default_rng(seed + k) for k in range(len(seats))]
    reader = streams.reader(seats, Needs(False, COLUMNS, sequence=LENGTH))
    gamma = np.linspace(0.5, 0.9, len(seats))
    seen = [0, 0]

    def check(t):
        if not (reader.size() > 0).all():
            return
        batch = reader.sample(rngs, gamma, 10)  # 3 sequences
        known = [{row.log_prob: row for p in seats[k] for row in record.rows[p]} for k in range(len(seats))]
        for k in range(len(seats)):
            found = sequences_of(batch, k)
            assert len(found) == 3 and not batch.weight[k, sum(map(len, found)) :].any()
            for boots, numbers in enumerate(found):
                held = [known[k][batch.extras["log_prob"][k, i]] for i in numbers]
                for i, row in zip(numbers, held, strict=True):
                    assert same(at(batch.obs, k, i), row.obs) and batch.action[k, i] == row.action
                    assert batch.reward[k, i] == row.reward and row.closed_at is not None and row.learnable
                    ended = row.end is not None and row.end[0]
                    assert batch.discount[k, i] == np.float32(0 if ended else gamma[k])
                assert all(row.next is after for row, after in pairwise(held))
                assert (batch.boot[k, numbers[:-1]] == -1).all() and batch.boot[k, numbers[-1]] == boots
                last = held[-1]
                _, obs, legal = last.end or (False, last.next.obs, last.next.legal)
                assert same(at(batch.boot_obs, k, boots), obs) and same(at(batch.boot_legal, k, boots), legal)
                if len(numbers) < LENGTH:
                    assert last.end is not None or last.next.closed_at is None or not last.next.learnable
                seen[len(numbers) == LENGTH] += 1

    drive(World(spec, envs, seed, dense), streams, record, check, 60, masks=masks(len(spec.players), 3, 60) * seed)
    assert rows == 1 or min(seen) > 5, "sequences of one kind only"


@pytest.mark.parametrize(("make", "envs", "rows", "dense", "seats"), WORLDS)
def test_a_burn_in_comes_before_the_rows_that_are_learned_from(make, envs, rows, dense, seats):
    """At the same place of each block; of the decisions before it in the episode, as many as the memory has."""
    spec, burn_in = make(), 2
    streams = Streams(spec, envs, {g: Storage(rows, COLUMNS) for g in range(len(spec.groups))})
    record, rngs = Record(spec, envs), [np.random.default_rng(k) for k in range(len(seats))]
    reader = streams.reader(seats, Needs(False, COLUMNS, sequence=LENGTH, block=LENGTH, burn_in=burn_in))
    lengths = [0] * (burn_in + 1)

    def check(t):
        if not (reader.size() > 0).all():
            return
        batch = reader.sample(rngs, np.full(len(seats), 0.9), 5)  # 3 sequences of 2 rows to learn from
        ring = reader.ring
        assert batch.weight.shape == batch.begins.shape == (len(seats), 3 * LENGTH)
        for k in range(len(seats)):
            known = {row.log_prob: row for p in seats[k] for row in record.rows[p]}
            for start in range(0, 3 * LENGTH, LENGTH):
                weight, begins = batch.weight[k, start : start + LENGTH], batch.begins[k, start : start + LENGTH]
                held = [known[p] for p in batch.extras["log_prob"][k, start : start + LENGTH]]
                assert weight[: burn_in + 1].tolist() == [0] * burn_in + [1] and begins[0]
                if weight[-1]:
                    assert not begins[-1] and held[burn_in].next is held[-1]
                else:
                    onward = held[burn_in].next
                    assert begins[-1] and (onward is None or onward.closed_at is None or not onward.learnable)
                first = burn_in
                while not begins[first]:
                    assert held[first].before is held[first - 1] and held[first - 1].learnable
                    first -= 1
                earlier = held[first].before
                if first and earlier is not None and earlier.learnable and ring.complete is None:
                    assert earlier.time < ring.oldest
                assert all(begins[:first])
                lengths[burn_in - first] += 1

    drive(World(spec, envs, 3, dense), streams, record, check, 60, masks=masks(len(spec.players), 3, 60))
    assert rows == 1 or min(lengths) > 5, lengths


def test_a_sequence_has_a_row():
    with pytest.raises(ConfigError, match="at least 1 row, got Needs"):
        SequenceReader(None, [], Needs(False))  # type: ignore[arg-type]
