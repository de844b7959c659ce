"""Permutations in compiled code, against those of numpy."""

from __future__ import annotations

import numpy as np
import pytest

from marltrain.policies.learner.dealing import permutation


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 63, 64, 65, 66, 1_000, 40_000])
def test_permutations_are_those_of_numpy(count: int) -> None:
    """The generator goes on equally, too."""
    mine, theirs = np.random.default_rng(count), np.random.default_rng(count)
    for _ in range(5):
        made, expected = permutation(mine, count), theirs.permutation(count)
        assert made.dtype == expected.dtype and made.tolist() == expected.tolist()
        assert mine.random(dtype=np.float32) == theirs.random(dtype=np.float32)  # takes 32 bits
    assert mine.bit_generator.state == theirs.bit_generator.state
