"""Minibatches: every row of every agent exactly once an epoch, in shares as even as they can be."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.seeds import generator
from marltrain.jit.threads import Threads
from marltrain.policies.backends import make_backend
from marltrain.policies.batches.tensor_batch import TensorBatch
from marltrain.policies.learner import dealing
from marltrain.policies.learner.minibatches import Minibatches
from tests.policies.some_batches import VECTOR, some_rollout

BACKEND = make_backend("torch", "cpu")


def dealt(counts, minibatches, batch_size, epochs=1):
    """Return for each minibatch (rows of each agent, which agents are in it)."""
    weight = (np.arange(max(counts)) < np.array(counts)[:, None]).astype(np.float32)
    number = np.broadcast_to(np.arange(max(counts)), weight.shape) + 100 * np.arange(len(counts))[:, None]
    given = {"number": BACKEND.tensor(number), "obs": {"vector": BACKEND.tensor(number * 1.0)}, "legal": None}
    result = []
    rngs = [generator(k, "update") for k in range(len(counts))]
    for columns, present in Minibatches(weight, minibatches, batch_size).epochs(epochs, rngs, given, BACKEND):
        batch = TensorBatch(**columns)
        assert (batch.obs["vector"] == batch.number).all()
        assert batch.legal is None
        rows = [batch.number[k][batch.weight[k] > 0].tolist() for k in range(len(counts))]
        assert [len(own) > 0 for own in rows] == present.tolist()
        result.append(rows)
    return result


@pytest.mark.parametrize(
    ("counts", "minibatches", "batch_size", "shares"),
    [
        ([10, 7], 3, 64, [[4, 3], [3, 2], [3, 2]]),
        ([10, 2], 3, 64, [[4, 1], [3, 1], [3, 0]]),  # no agent is cut finer than its rows
        ([10, 7], None, 4, [[4, 4], [3, 3], [3, 0]]),  # 10 rows are 3 batches of at most 4, 7 rows are 2
        ([5], None, 64, [[5]]),
        ([4, 0], 2, 64, [[2, 0], [2, 0]]),
    ],
)
def test_shares(counts, minibatches, batch_size, shares):
    result = dealt(counts, minibatches, batch_size, epochs=3)
    assert [[len(own) for own in rows] for rows in result] == shares * 3
    for epoch in range(3):
        piece = result[epoch * len(shares) : (epoch + 1) * len(shares)]
        for k, count in enumerate(counts):
            seen = sorted(row for rows in piece for row in rows[k])
            assert seen == [100 * k + i for i in range(count)]


@pytest.mark.parametrize("block", [1, 3])
def test_threads_deal_the_same_minibatches(block, monkeypatch):
    monkeypatch.setattr(dealing, "MANY", 1)
    weight = np.zeros((3, 60 * block), np.float32)
    weight[0], weight[1, : 31 * block], weight[2, : 4 * block - block // 2] = 1, np.linspace(0.1, 1, 31 * block), 0.5
    threads = Threads()
    given = [None, (threads, 2), (threads, 64)]
    alone, *together = (Minibatches(weight, 4, 64, block=block, even=True, threads=each) for each in given)
    rngs = [[generator(k, "update") for k in range(3)] for _ in range(2)]
    for i in range(20):
        one, other = alone.dealt(3, rngs[0]), together[i % 2].dealt(3, rngs[1])
        assert np.array_equal(one.index, other.index) and np.array_equal(one.weight, other.weight)
        assert one.weight.sum(-1).round(5).tolist() == (one.rows.T > 0).astype(float).tolist()
    assert threads.started == 5
    threads.close()


def test_the_order_is_each_agents_own_and_new_every_epoch():
    both = dealt([8, 8], 2, 64, epochs=2)
    alone = dealt([8], 2, 64, epochs=2)
    assert [rows[0] for rows in both] == [rows[0] for rows in alone]
    assert both[0][0] != both[2][0]
    assert [row - 100 for row in both[0][1]] != both[0][0]
    permutation = generator(0, "update").permutation(8)
    assert alone[0][0] + alone[1][0] == permutation.tolist()


def weighted(weight, minibatches, **options):
    """Return the (weight, mark) of every minibatch; a row's mark is the weight that it had."""
    rngs = [generator(k, "update") for k in range(len(weight))]
    cut = Minibatches(weight, minibatches, 64, **options)
    return [
        (c["weight"].numpy(), c["mark"].numpy())
        for c, _ in cut.epochs(1, rngs, {"mark": BACKEND.tensor(weight.copy())}, BACKEND)
    ]


def test_weights_of_a_minibatch_are_those_of_its_rows_scaled_to_a_sum_of_one():
    given = np.array([[0.5, 0.25, 2.0, 1.0, 3.0], [4.0, 0.5, 0.0, 0.0, 0.0]], np.float32)
    seen: list[list[float]] = [[], []]
    for weight, mark in weighted(given, 2):
        for k in range(2):
            real = weight[k] > 0
            np.testing.assert_allclose(weight[k][real], mark[k][real] / mark[k][real].sum(), rtol=1e-6)
            seen[k] += mark[k][real].tolist()
    assert [sorted(row) for row in seen] == [[0.25, 0.5, 1.0, 2.0, 3.0], [0.5, 4.0]]


def test_a_compiled_backend_is_given_wider_minibatches_of_the_same_rows():
    given = np.ones((2, 7), np.float32)
    plain, wide = weighted(given, 3), weighted(given, 3, width=lambda rows: 8)
    assert [weight.shape for weight, _ in wide] == [(2, 8)] * 3
    for (weight, _), (padded, _) in zip(plain, wide, strict=True):
        assert np.array_equal(padded[:, : weight.shape[1]], weight)
        assert not padded[:, weight.shape[1] :].any()


@pytest.mark.parametrize(
    ("backend", "compiled", "width"),
    [("torch", False, 33), ("torch", True, 48), ("tensorflow", False, 33), ("tensorflow", True, 48)],
)
def test_only_for_a_compiled_backend_rows_are_rounded_up(monkeypatch, backend, compiled, width):
    def stop(*_, width, **others):
        raise LookupError(f"{width(33)} columns")

    thrust = spaces.Box(-1, 1, (2,), np.float32)  # computed by programs in both frameworks
    agent = mt.PPO(VECTOR, thrust, seed=0, policy="beta", backend=backend, device="cpu", jit_compile=compiled)
    learner = agent.learner_
    monkeypatch.setattr("marltrain.policies.learner.passes.Minibatches", stop)
    rollout = some_rollout(np.random.default_rng(0), VECTOR, thrust, [8])
    with pytest.raises(LookupError, match=f"{width} columns"):
        learner.update(rollout, learn=np.ones(1, bool), batch_size=4)


@pytest.mark.parametrize(
    ("counts", "minibatches", "batch_size"),
    [([10, 7, 1], 3, 64), ([11, 2], None, 4), ([4, 0, 9], 2, 64), ([5], None, 64), ([0, 0], 3, 64), ([1, 3], 5, 64)],
)
@pytest.mark.parametrize("epochs", [1, 3])
def test_dealt_by_number_are_the_same_minibatches(counts, minibatches, batch_size, epochs):
    """The same rows in the same places with the same weights; the same numbers are drawn for it."""
    rng = np.random.default_rng(0)
    weight = (np.arange(max(counts) + 1) < np.array(counts)[:, None]) * rng.uniform(
        0.5, 2, (len(counts), max(counts) + 1)
    )
    weight = weight.astype(np.float32)
    number = np.broadcast_to(np.arange(weight.shape[1]), weight.shape)
    cut = Minibatches(weight, minibatches, batch_size, even=True)
    rngs, others = ([generator(k, "update") for k in range(len(counts))] for _ in range(2))
    expected = list(cut.epochs(epochs, rngs, {"number": BACKEND.tensor(number)}, BACKEND))
    result = cut.dealt(epochs, others)
    passes = len(expected)
    assert result.index.shape == result.weight.shape == (len(counts), passes, cut.rows)
    assert result.rows.shape == (passes, len(counts))
    for array, kind in ((result.index, np.int64), (result.weight, np.float32), (result.rows, np.int64)):
        assert array.dtype == kind
        assert array.flags.c_contiguous
    for i, (columns, present) in enumerate(expected):
        np.testing.assert_array_equal(result.index[:, i], columns["number"])
        np.testing.assert_array_equal(result.weight[:, i], columns["weight"])
        np.testing.assert_array_equal(result.rows[i], (columns["weight"] > 0).sum(1))
        np.testing.assert_array_equal(result.rows[i] > 0, present)
    assert [rng.bit_generator.state for rng in rngs] == [rng.bit_generator.state for rng in others]


def test_blocks_stay_together():
    """Ten and four rows in blocks of 3: 4 and 2 blocks, whose last rows may be padding."""
    weight = (np.arange(12) < np.array([[10], [4]])).astype(np.float32)
    given = {"number": BACKEND.tensor(np.arange(12)[None].repeat(2, 0))}
    rngs = [generator(k, "update") for k in range(2)]
    cut = Minibatches(weight, 3, 64, block=3)
    result = list(cut.epochs(1, rngs, given, BACKEND))
    assert [columns["number"].shape[1] for columns, _ in result] == [6, 3, 3]
    assert [present.tolist() for _, present in result] == [[True, True], [True, True], [True, False]]
    for columns, _ in result:
        blocks = columns["number"].numpy().reshape(2, -1, 3)
        assert (blocks == blocks[..., :1] // 3 * 3 + np.arange(3)).all()
    for k, count in enumerate((10, 4)):
        rows = np.concatenate([columns["number"][k][columns["weight"][k] > 0].numpy() for columns, _ in result])
        assert sorted(rows) == list(range(count))
    for columns, present in result:
        for k in np.flatnonzero(present).tolist():
            own = columns["weight"][k].numpy()
            np.testing.assert_allclose(own[own > 0], 1 / (own > 0).sum())


def test_a_batch_size_counts_rows():
    """At most 6 of 11 rows in each of 2 minibatches: 2 and 2 blocks of 3."""
    cut = Minibatches(np.ones((1, 12), np.float32) * (np.arange(12) < 11), None, 6, block=3)
    assert cut.edges == [(0, 2), (2, 4)]
