"""Rows that compiled code deals, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from marltrain.core.layout import Array
from marltrain.policies.learner.dealing import deal


def dealt(rng: np.random.Generator, given: Array, blocks: list[int], gap: int = 0) -> tuple[Array, Array]:
    """Return the row numbers and weights of parts with so many blocks, one after another, with padding between them."""
    shape = (1, 1, len(given) + len(blocks) * gap, given.shape[1])
    index, weight = np.full(shape, -1, np.int64), np.full(shape, np.nan, np.float32)
    parts = np.stack([np.cumsum([0, *blocks[:-1]]) + gap * np.arange(len(blocks)), blocks], 1)
    deal([rng], given.reshape(1, -1), [len(given)], parts, [len(parts)], index, weight)
    return index[0, 0], weight[0, 0]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 63, 64, 65, 66, 1_000, 40_000])
def test_permutations_are_those_of_numpy(count: int) -> None:
    """The generator goes on equally, too."""
    mine, theirs = np.random.default_rng(count), np.random.default_rng(count)
    for _ in range(5):
        made, expected = dealt(mine, np.ones((count, 1), np.float32), [count])[0], theirs.permutation(count)
        assert made[:, 0].tolist() == expected.tolist()
        assert mine.random(dtype=np.float32) == theirs.random(dtype=np.float32)  # takes 32 bits
    assert mine.bit_generator.state == theirs.bit_generator.state


@pytest.mark.parametrize(("block", "blocks"), [(1, [300]), (1, [2, 9, 130, 1]), (3, [20, 19]), (140, [5, 4])])
def test_weights_are_divided_by_the_sums_of_numpy(block: int, blocks: list[int]) -> None:
    given = np.random.default_rng(0).random((sum(blocks), block), np.float32)
    order = np.random.default_rng(1).permutation(len(given))
    sums = np.add.reduceat(given[order].sum(1), np.cumsum([0, *blocks[:-1]]))
    index, weight = dealt(np.random.default_rng(1), given, blocks)
    assert index.tolist() == (order[:, None] * block + np.arange(block)).tolist()
    assert weight.tolist() == (given[order] / np.repeat(sums, blocks)[:, None]).tolist()
    padded, shares = dealt(np.random.default_rng(1), given, blocks, gap=2)
    held = np.concatenate([np.repeat([True, False], [n, 2]) for n in blocks])
    assert (padded[held].tolist(), shares[held].tolist()) == (index.tolist(), weight.tolist())
    assert (padded[~held] == np.arange(block)).all() and (shares[~held] == 0).all()
